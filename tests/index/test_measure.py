"""What the index can carry: events a second from a real stream, and searches over a million letters.

`make measure-index`, on a quiet machine.
"""
# ruff: noqa: T201 - a measurement says what it found

import json
import random
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlx_router.index.queries import Wanted
from dlx_router.index.reader import Reader
from dlx_router.index.schema import open_writer
from dlx_router.index.store import Message, Store
from dlx_router.journal.batch import Batch
from dlx_router.journal.events import fragments
from tests.core.core_samples import NOW, letter
from tests.index.conftest import Desk
from tests.journal.journal_samples import RULING, props
from tests.support.eventually import eventually

EVENTS, LETTERS, BATCH = 200_000, 1_000_000, 100
WORDS = ("timeout", "refused", "missing", "locked", "invalid", "duplicate", "expired", "unknown")


def batches(count: int, seed: int = 1, vhost: str = "/") -> Iterator[bytes]:
    """Journal messages of distinct letters, each with an error of its own words."""
    draw, batch = random.Random(seed), Batch(1)
    for number in range(count):
        dead = letter(id=f"{draw.getrandbits(128):032x}", failed_queue=f"orders.{number % 50}", vhost=vhost)
        error = {"type": "Failed", "message": f"order {number} {draw.choice(WORDS)} {draw.getrandbits(64):x}"}
        own = props(message_id=b"m-%d" % number, correlation_id=b"c-%d" % (number % 1000))
        extra = f'"error":{json.dumps(error)},"body_mode":"none"'
        ruled = fragments(dead, RULING)
        batch.add(
            ruled.entry(
                dead.id, NOW + number, first_ms=NOW, last_ms=NOW, crc32=7, size=3, serial=number, props=own, extra=extra
            )
        )
        if batch.events == BATCH:
            batch.close()
            yield batch.body
            batch = Batch(1)


@pytest.mark.measure
def test_twenty_thousand_events_a_second_come_from_a_stream(desk: Desk) -> None:
    """Published by another client while the index reads; the clock stops when the last event is in the file."""
    channel = desk.amqp.connection.channel()
    for body in batches(EVENTS):
        channel.basic_publish("", "dlx-router.journal", body, None)
    channel.close()
    desk.ask("POST", "/index/rebuild")
    began = time.monotonic()

    def count() -> int:
        return sum(sum(queue["states"].values()) for queue in Reader(desk.index).failed_queues(lambda _v, _q: True))

    eventually(lambda: desk.index.exists() and count() >= EVENTS, 240, every=0.1)
    rate = EVENTS / (time.monotonic() - began)
    print(f"{rate:,.0f} events/s")
    assert rate >= 20_000


@pytest.mark.measure
@pytest.mark.timeout(900)
def test_a_search_over_a_million_letters_takes_200_ms_at_most(tmp_path: Path) -> None:
    """p95 of words that many, few and no letters have, alone and with filters, and of lists."""
    file = tmp_path / "index.sqlite"
    store = Store(open_writer(file, max_bytes=8 << 30))
    for number, body in enumerate(batches(LETTERS)):
        store.apply("/", [Message(number, body)])
    store.close()
    draw, reader, took = random.Random(2), Reader(file), []
    for _ in range(300):
        n = draw.randrange(LETTERS)
        wanted = draw.choice(
            (
                Wanted(text=f"m-{n}"),
                Wanted(text=draw.choice(WORDS)),
                Wanted(text=f"order {draw.choice(WORDS)}"),
                Wanted(text=f'"c {n % 1000}"', failed_queue=f"orders.{n % 50}"),
                Wanted(text=draw.choice(WORDS), states=("dead",), failed_queue=f"orders.{n % 50}"),
                Wanted(text="nobodyhasthis"),
                Wanted(failed_queue=f"orders.{n % 50}"),
                Wanted(states=("parked",)),
                Wanted(),
            )
        )
        began = time.perf_counter()
        reader.letters(wanted, lambda _vhost, _queue: True, limit=100, before=None)
        took.append(time.perf_counter() - began)
    p95 = statistics.quantiles(took, n=20)[-1]
    size = file.stat().st_size / LETTERS
    print(f"p95 {p95 * 1000:.0f} ms, most {max(took) * 1000:.0f} ms, {size:.0f} bytes a letter")
    assert p95 <= 0.2
