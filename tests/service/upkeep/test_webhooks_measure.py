"""What telling costs letters: the rate beside two dead receivers, against none. `make measure-webhooks`."""
# ruff: noqa: T201 - a measurement says what it found

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.support.bulk import dying_queue, frozen, pour
from tests.support.client import Client
from tests.support.eventually import eventually
from tests.support.receiver import Receiver
from tests.support.router import Router

POLICIES: Final = "{version: 1, policies: [{name: all, match: '#', definition: {max-delivery-attempts: 1}}]}"
LETTERS, ROUNDS, QUEUES, LEAST = 20_000, 5, 20, 0.97


def rate(router: Router, amqp: Client, turn: str) -> float:
    """Letters a second that lie in the inbox when the router begins; each queue of the round is a new group."""
    before = router.metric("settled_total")
    with frozen(router):
        for number in range(QUEUES):
            pour(amqp, dying_queue(amqp, f"{turn}.q{number}"), (b"%500d" % n for n in range(LETTERS // QUEUES)))
        began = time.monotonic()
    eventually(lambda: router.metric("settled_total") - before == LETTERS, 100, every=0.02)
    return LETTERS / (time.monotonic() - began)


@pytest.mark.measure
@pytest.mark.timeout(500)
def test_dead_receivers_cost_letters_nothing(start_router: Callable[..., Router], amqp: Client, tmp_path: Path) -> None:
    """By turns the file names nobody who lives, or one who lives: the same router, the same work."""
    path, measured = tmp_path / "webhooks.yaml", {"dead": [], "none": []}  # type: ignore[var-annotated]  # rates
    with Receiver(hangs=True) as hangs, Receiver(status=500) as fails:
        dead = [
            f"  - {{format: slack, url: '{receiver.url()}', allow-addresses: 127.0.0.0/8}}"
            for receiver in (hangs, fails)
        ]
        none = ["  - {format: slack, url: 'https://h.example/', events: redrive.halted}"]
        path.write_text("\n".join(["webhooks:", *none]), encoding="utf-8")
        router = start_router(POLICIES, WEBHOOKS_FILE=str(path), INDEX_PATH=str(tmp_path / "index"))
        eventually(lambda: "webhooks.began" in router.output, 60, every=0.1)
        rate(router, amqp, "warm")
        for turn in range(ROUNDS):
            for name, entries in (("dead", dead), ("none", none)):
                read = router.output.count("webhooks.read")
                path.write_text("\n".join(["webhooks:", *entries, f"# {turn}"]), encoding="utf-8")
                eventually(lambda n=read: router.output.count("webhooks.read") > n, 10)  # type: ignore[misc]  # of this turn
                if name == "dead":  # something waits for each of them, and is tried while letters are counted
                    pour(amqp, dying_queue(amqp, f"first{turn}"), [b"x"])
                    eventually(lambda: router.metric("webhooks_waiting") >= 2, 60, every=0.1)
                measured[name].append(rate(router, amqp, f"{name}{turn}"))
        assert fails.posts, "they were asked"
    ratio = statistics.median(measured["dead"]) / statistics.median(measured["none"])
    print(f"{ {name: [round(value) for value in rates] for name, rates in measured.items()} } ratio {ratio:.3f}")
    assert ratio >= LEAST
