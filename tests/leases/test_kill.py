"""Router and broker killed while letters are leased: what is done is gone for good, what is not comes back.

`make lease-audit` does the same with 100,000 receives, 20 workers and 5 kills.
"""

import os
import random
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
import pika
import pytest

from tests.leases.conftest import Bench, body_of
from tests.support.bulk import DEAD
from tests.support.client import Client
from tests.support.eventually import eventually
from tests.support.policies import POLICY
from tests.support.router import Router
from tests.support.vhost import Vhost
from tools import brokers

pytestmark = pytest.mark.usefixtures("newest")  # what it shows is the same on every version

Start = Callable[..., Router]
RECEIVES: Final = int(os.environ.get("DLX_ROUTER_LEASE_RECEIVES", "1500"))
WORKERS: Final = int(os.environ.get("DLX_ROUTER_LEASE_WORKERS", "6"))
KILLS: Final = int(os.environ.get("DLX_ROUTER_LEASE_KILLS", "2"))
SEED: Final = int(os.environ.get("DLX_ROUTER_LEASE_SEED", "0")) or random.SystemRandom().randrange(1 << 30)
BATCH: Final = 10
VISIBILITY_S: Final = 5.0
QUEUE: Final = "DLQ.work"


def test_a_killed_router_gives_letters_back_and_knows_what_was_done(
    vhost: Vhost, amqp: Client, start_router: Start
) -> None:
    bench = Bench(vhost, amqp, start_router(POLICY))
    queue = bench.failed("work", ["done", "held"])
    done, held = bench.receive(queue, max=2, visibility="10m")
    assert bench.ended(done, "done") == "done"
    bench.router.kill()
    bench.router.start()
    (again,) = bench.receive(queue, wait=10)
    assert (body_of(again), again["id"]) == ("held", held["id"])
    late, twice = bench.change(held, "done"), bench.change(done, "done")
    assert (late.status_code, late.json()["ended"]) == (410, "lost")
    assert (twice.status_code, twice.json()["ended"]) == (410, "done")
    assert bench.ended(again, "done") == "done"
    assert bench.receive(queue, wait=0.5) == []


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_equal_letters_that_nobody_received_are_not_deleted_after_a_kill(
    vhost: Vhost, amqp: Client, start_router: Start, kind: str
) -> None:
    """Ten of twenty equal messages are done; the other ten look like copies that the broker brought back."""
    bench = Bench(vhost, amqp, start_router(POLICY))
    filled(amqp, kind, 20, equal=True)
    for letter in bench.receive(QUEUE, max=10, not_a_dead_letter_queue=True):
        assert bench.ended(letter, "done") == "done"
    bench.router.kill()
    bench.router.start()
    assert bench.receive(QUEUE, max=20, wait=1, not_a_dead_letter_queue=True) == []
    eventually(lambda: amqp.depth("dlx-router.parking") == 10)


def test_a_router_that_is_stopped_gives_letters_back_at_once(vhost: Vhost, amqp: Client, start_router: Start) -> None:
    bench = Bench(vhost, amqp, start_router(POLICY))
    queue = bench.failed("work", ["a", "b"])
    assert len(bench.receive(queue, max=2, visibility="10m")) == 2
    assert bench.router.stop() == 0
    assert amqp.depth(queue) == 2


def test_another_replica_leads_and_says_that_the_lease_was_lost(
    vhost: Vhost, amqp: Client, start_router: Start, tmp_path: Path
) -> None:
    key = tmp_path / "key"
    key.write_text("0123456789abcdef0123456789abcdef")
    shared = {"PROVENANCE_KEY_FILE": str(key), "HEARTBEAT": "2"}
    first = Bench(vhost, amqp, start_router(POLICY, **shared))
    queue = first.failed("work", ["hello"])
    (letter,) = first.receive(queue)
    second = Bench(vhost, amqp, start_router(POLICY, **shared))
    first.router.kill()
    (again,) = second.receive(queue, wait=10)
    late = second.change(letter, "done")
    assert (body_of(again), late.status_code, late.json()["ended"]) == ("hello", 410, "lost")
    assert second.ended(again, "done") == "done"


@dataclass
class Ledger:
    """What workers were given and what they were answered. Times by one clock."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    received: int = 0
    handed: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    done: dict[str, float] = field(default_factory=dict)  # confirmed
    doubtful: set[str] = field(default_factory=set)  # said to be done, and nobody answered
    wrong: list[str] = field(default_factory=list)
    answers: Counter[str] = field(default_factory=Counter)


class Worker(threading.Thread):
    """Receives until it is told to stop: ends most letters as done, some otherwise, and forgets some."""

    def __init__(self, number: int, bench: Bench, ledger: Ledger, stopping: threading.Event) -> None:
        super().__init__(daemon=True)
        self._bench, self._ledger, self._stopping = bench, ledger, stopping
        self._chance = random.Random(SEED + number)

    def run(self) -> None:
        while not self._stopping.is_set():
            try:
                asked = time.monotonic()
                answer = self._bench.asked(QUEUE, max=BATCH, wait=0.5, visibility=VISIBILITY_S)
            except httpx.TransportError:
                self._stopping.wait(0.2)
                continue
            if answer.status_code != 200:
                self._count(f"receive {answer.status_code}")
                self._stopping.wait(0.2)
                continue
            for letter in self._taken(answer.json()["letters"], asked):
                self._work_off(letter)

    def _taken(self, letters: list[dict[str, Any]], asked: float) -> list[dict[str, Any]]:
        with self._ledger.lock:
            for letter in letters:
                body = body_of(letter)
                self._ledger.received += 1
                self._ledger.handed[body].append(asked)
                if self._ledger.done.get(body, asked + 1) < asked:
                    self._ledger.wrong.append(f"{body} was done, and handed out again")
        return letters

    def _work_off(self, letter: dict[str, Any]) -> None:
        body, way = body_of(letter), self._chance.random()
        if way < 0.03:
            return  # a worker that hangs: it runs out
        try:
            answer = self._bench.change(letter, "release" if way < 0.1 else "done")
        except httpx.TransportError:
            with self._ledger.lock:
                self._ledger.doubtful.add(body)
            return
        self._count(f"{'release' if way < 0.1 else 'done'} {answer.status_code}")
        ended = answer.json().get("ended") if answer.status_code in {200, 410} else None
        with self._ledger.lock:
            if answer.status_code == 200 and ended == "done":
                if body in self._ledger.done:
                    self._ledger.wrong.append(f"{body} was done twice")
                self._ledger.done[body] = time.monotonic()
            elif answer.status_code not in {200, 410}:
                self._ledger.doubtful.add(body)

    def _count(self, what: str) -> None:
        with self._ledger.lock:
            self._ledger.answers[what] += 1


def tokens_of(count: int) -> str:
    lines = [f"  - {{name: worker{n}, token: worker-{n:020d}, role: operator}}" for n in range(count)]
    return "\n".join(["tokens:", *lines])


def filled(client: Client, kind: str, count: int, *, equal: bool = False) -> set[str]:
    client.queue(QUEUE, kind, **({"delivery_limit": 1_000_000} if kind == "quorum" else {}))
    channel = client.connection.channel()
    channel.confirm_delivery()
    for number in range(count):
        name = 0 if equal else number
        given = pika.BasicProperties(delivery_mode=2, message_id=f"m{name}", headers=DEAD)
        channel.basic_publish("", QUEUE, f"letter {name}".encode(), given)
    return {f"letter {number}" for number in range(count)}


@pytest.mark.slow
@pytest.mark.timeout(300 + RECEIVES // 20)
@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_killed_again_and_again_what_is_done_is_gone_and_what_is_not_comes_back(
    own_broker: brokers.Node, kind: str, tmp_path: Path
) -> None:
    own_broker.start()
    vhost = Vhost.make(own_broker, "leases")
    (tmp_path / "policies.yaml").write_text(POLICY, encoding="utf-8")
    (tmp_path / "tokens").write_text(tokens_of(WORKERS), encoding="utf-8")
    router = Router(
        amqp_url=vhost.amqp_url,
        management_url=vhost.management_url,
        policies=tmp_path,
        log=tmp_path / "router.log",
        env={"API_TOKENS_FILE": str(tmp_path / "tokens"), "HEARTBEAT": "2"},
    )
    with Client(vhost.amqp_url) as client:
        letters = filled(client, kind, RECEIVES * 9 // 10)
    router.start()
    ledger, stopping = Ledger(), threading.Event()
    benches = [Bench(vhost, None, router, f"worker-{n:020d}") for n in range(WORKERS)]  # type: ignore[arg-type]  # they only ask
    workers = [Worker(n, bench, ledger, stopping) for n, bench in enumerate(benches)]
    for worker in workers:
        worker.start()
    try:
        for kill in range(1, KILLS + 1):
            eventually(lambda kill=kill: ledger.received > kill * RECEIVES // (KILLS + 1), 60 + RECEIVES // 50)  # type: ignore[misc]  # a default binds it
            _killed(own_broker, router, is_broker=kill % 2 == 0)
        eventually(lambda: len(ledger.done.keys() | ledger.doubtful) >= len(letters), 120 + RECEIVES // 50, every=0.5)
        eventually(lambda: _depth(vhost) == 0, 30, every=0.5)
    finally:
        stopping.set()
        for worker in workers:
            worker.join(60)
        router.close()
    print(f"\nseed {SEED}: {ledger.received} receives of {len(letters)} letters, {dict(ledger.answers)}")  # noqa: T201 - the measurement
    assert ledger.wrong == [], f"seed {SEED}"
    assert letters <= ledger.done.keys() | ledger.doubtful
    assert _depth(vhost) == 0, "what is done is gone"
    vhost.close()
    own_broker.kill()


def _killed(broker: brokers.Node, router: Router, *, is_broker: bool) -> None:
    if is_broker:
        broker.kill()
        broker.start()
        router.await_ready(60)
    else:
        router.kill()
        router.start(within=60)


def _depth(vhost: Vhost) -> int:
    with Client(vhost.amqp_url) as client:
        return client.depth(QUEUE)
