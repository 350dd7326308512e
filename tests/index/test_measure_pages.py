"""What the console costs: a page with a million letters in the index, and routing beside people who look.

`make measure-console`, on a quiet machine.
"""
# ruff: noqa: T201 - a measurement says what it found

import statistics
import time
from typing import Any, Final

import httpx
import pytest

from tests.index.conftest import Desk
from tests.index.test_measure import LETTERS, batches
from tests.support.bulk import INBOX, pour
from tests.support.eventually import eventually
from tests.support.page_views import page_views

TIMES: Final = 20
P95_S: Final = 0.150
PAGES_A_SECOND: Final = 10
ROUTED: Final = 30_000
ROUNDS: Final = 9
SHARE: Final = 0.85


def web(desk: Desk) -> httpx.Client:
    """Somebody at the console of the router itself; on loopback nobody logs in."""
    return httpx.Client(base_url=f"http://127.0.0.1:{desk.router.port}", timeout=60, trust_env=False)


def paths(desk: Desk) -> list[str]:
    group = desk.get("/groups", limit=1)[1]["groups"][0]["id"]
    letter = desk.get("/letters", limit=1)[1]["letters"][0]["id"]
    return [
        "/", "/groups", "/groups?sort=-deaths", "/groups?sort=-lying", f"/groups/{group}", "/letters",
        "/letters?sort=last", "/letters?queue=orders.7",
        "/letters?queue=orders.7&state=dead", "/letters?q=timeout", "/letters?q=m-4711",
        "/letters?state=parked", f"/letters/{letter}", "/tasks", "/redrive?queue=DLQ.orders.7", "/policies",
        "/explain?queue=orders.7", "/audit",
    ]  # fmt: skip


@pytest.mark.measure
@pytest.mark.timeout(1800)
def test_a_page_takes_150_ms_at_most_with_a_million_letters(desk: Desk) -> None:
    channel = desk.amqp.connection.channel()
    for body in batches(LETTERS, vhost=desk.vhost.name):
        channel.basic_publish("", "dlx-router.journal", body, None)
    channel.close()
    eventually(lambda: sum(map(count, desk.get("/queues")[1]["failed"])) >= LETTERS, 900, every=1)
    took: dict[str, list[float]] = {}
    with web(desk) as client:
        for _ in range(TIMES):
            for path in paths(desk):
                began = time.perf_counter()
                answer = client.get(path)
                took.setdefault(path, []).append(time.perf_counter() - began)
                assert answer.status_code == 200, (path, answer.text)
    for path, its in took.items():
        print(f"{path:40} median {statistics.median(its) * 1000:4.0f} ms, most {max(its) * 1000:4.0f} ms")
    p95 = statistics.quantiles([seconds for its in took.values() for seconds in its], n=20)[-1]
    print(f"p95 of all pages {p95 * 1000:.0f} ms")
    assert p95 <= P95_S


def count(failed: dict[str, Any]) -> int:
    return sum(failed["states"].values())


def routed(desk: Desk, name: str) -> float:
    """Letters a second that go from the inbox into their dead-letter queue."""
    queue = desk.amqp.queue(name, dead_letter_exchange=INBOX)
    pour(desk.amqp, queue, ["x" * 1024] * ROUTED)
    channel = desk.amqp.connection.channel()
    channel.basic_qos(prefetch_count=1000)
    began = time.monotonic()
    for done, (method, _, _) in enumerate(channel.consume(queue), 1):
        if done % 500 == 0 or done == ROUTED:
            channel.basic_nack(method.delivery_tag, multiple=True, requeue=False)
        if done == ROUTED:
            break
    channel.close()
    dead = f"DLQ.{name}"
    eventually(lambda: desk.amqp.exists(dead) and desk.amqp.depth(dead) == ROUTED, 300, every=0.02)
    return ROUTED / (time.monotonic() - began)


@pytest.mark.measure
@pytest.mark.timeout(1800)
def test_routing_is_as_fast_beside_ten_pages_a_second(desk: Desk) -> None:
    """Rounds with and without by turns, so that a machine that tires does so for both."""
    routed(desk, "warm")
    rates: dict[bool, list[float]] = {True: [], False: []}
    pages = 0
    for number in range(ROUNDS):
        for beside in (False, True) if number % 2 else (True, False):
            if beside:
                with page_views(desk.router.port, PAGES_A_SECOND) as took:
                    rates[beside].append(routed(desk, f"beside.{number}"))
                pages += len(took)
            else:
                rates[beside].append(routed(desk, f"alone.{number}"))
    shares = [beside / alone for beside, alone in zip(rates[True], rates[False], strict=True)]
    share = statistics.median(shares)
    for beside, its in rates.items():
        print(f"{'beside pages' if beside else 'alone'}: {[round(rate) for rate in its]} letters/s")
    print(f"{share:.3f} of the rate alone ({min(shares):.2f} to {max(shares):.2f}); {pages} pages")
    assert share >= SHARE
