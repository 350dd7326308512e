"""Part `search` of `run.py` beside it: a million letters written by the index's own writer, and what searches take."""

import json
import random
import statistics
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

from dlx_router.index.queries import Wanted
from dlx_router.index.reader import Reader
from dlx_router.index.schema import open_writer
from dlx_router.index.store import Message, Store
from dlx_router.index.worker import AT_ONCE
from dlx_router.journal.packing import packed

BATCH: Final = 100
QUERIES: Final = 300
QUEUES: Final = 50
WORDS: Final = ("timeout", "refused", "missing", "locked", "invalid", "duplicate", "expired", "unknown")
_encode: Final = json.JSONEncoder(separators=(",", ":")).encode
_T0_MS: Final = 1_700_000_000_000


def batches(letters: int, seed: int = 1) -> Iterator[bytes]:
    """Messages of a journal in format 2: each event is another letter, with an error in words of its own."""
    draw, lines = random.Random(seed), list[str]()
    shared: dict[str, int] = {}
    for number in range(letters):
        queue = f"orders.{number % QUEUES}"
        if queue not in shared:
            shared[queue] = len(shared)
            lines.append(_encode(_shared(queue)))
        lines.append(_encode([shared[queue], *_row(number, draw)]))
        if (number + 1) % BATCH == 0 or number == letters - 1:
            yield packed("\n".join(lines).encode())
            lines.clear()
            shared.clear()


def _row(number: int, draw: random.Random) -> list[Any]:
    letter, step = f"{draw.getrandbits(128):032x}", f"{draw.getrandbits(32):08x}"
    props = {"message_id": f"m-{number}", "correlation_id": f"c-{number % 1000}"}
    error = {"type": "Failed", "message": f"order {number} {draw.choice(WORDS)} {draw.getrandbits(64):x}"}
    return [letter, step, _T0_MS + number, None, number, number, 7, 3, [_T0_MS // 1000], props, {"error": error}]


def _shared(queue: str) -> dict[str, Any]:
    died = {"queue": queue, "reason": "rejected", "count": 1, "exchange": "shop", "routing_keys": [queue]}
    return {
        "v": 1,
        "kind": "dead_lettered",
        "router_id": "bench",
        "vhost": "/",
        "source": "dlx-router.inbox",
        "arrival": "inbox",
        "exchange": "dlx-router.inbox",
        "routing_key": queue,
        "failed_queue": queue,
        "reason": "rejected",
        "attempts": 1,
        "redrives": 0,
        "tries": 0,
        "policy": "all",
        "revision": "0123456789ab",
        "target": {"exchange": "", "routing_key": f"DLQ.{queue}"},
        "deaths": [died],
        "body_mode": "none",
    }


def fill(file: Path, letters: int) -> float:
    """Write them, as many at once as the index does when it is behind; → events a second, their making taken off."""
    store, spent = Store(open_writer(file, max_bytes=8 << 30)), 0.0
    messages = (Message(number, body) for number, body in enumerate(batches(letters)))
    while at_once := [*islice(messages, AT_ONCE)]:
        began = time.perf_counter()
        store.apply("/", at_once)
        spent += time.perf_counter() - began
    count = store.count()
    store.close()
    if count != letters:
        raise AssertionError(f"{count} of {letters} letters are in the index")
    return letters / spent


def searches(file: Path, letters: int) -> list[float]:
    """Seconds of each of some hundred questions: words that many, few and no letters have, with filters, and lists."""
    draw, reader, took = random.Random(2), Reader(file), []
    for _ in range(QUERIES):
        n = draw.randrange(letters)
        word, queue = draw.choice(WORDS), f"orders.{n % QUEUES}"
        wanted = draw.choice((
            Wanted(text=f"m-{n}"),
            Wanted(text=word),
            Wanted(text=f"order {word}"),
            Wanted(text=f'"c {n % 1000}"', failed_queue=queue),
            Wanted(text=word, states=("dead",), failed_queue=queue),
            Wanted(text="nobodyhasthis"),
            Wanted(failed_queue=queue),
            Wanted(states=("parked",)),
            Wanted(),
        ))  # fmt: skip
        began = time.perf_counter()
        reader.letters(wanted, lambda _vhost, _queue: True, limit=100, before=None)
        took.append(time.perf_counter() - began)
    reader.close()
    return took


def measured(folder: Path, letters: int) -> dict[str, float]:
    """Events a second, and the searches' p50, p95 and longest in ms."""
    file = folder / "index.sqlite"
    rate = fill(file, letters)
    took = searches(file, letters)
    cuts = statistics.quantiles(took, n=20)
    return {
        "letters": letters,
        "events_per_s": round(rate),
        "p50_ms": round(cuts[9] * 1000, 1),
        "p95_ms": round(cuts[-1] * 1000, 1),
        "max_ms": round(max(took) * 1000, 1),
        "bytes_a_letter": round(file.stat().st_size / letters),
    }
