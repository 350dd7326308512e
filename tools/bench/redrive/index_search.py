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

BATCH: Final = 100
QUERIES: Final = 300
QUEUES: Final = 50
WORDS: Final = ("timeout", "refused", "missing", "locked", "invalid", "duplicate", "expired", "unknown")
_T0_MS: Final = 1_700_000_000_000


def batches(letters: int, seed: int = 1) -> Iterator[bytes]:
    """Messages of a journal: each event is another letter, with an error in words of its own."""
    draw, lines = random.Random(seed), []
    for number in range(letters):
        lines.append(json.dumps(_event(number, draw), separators=(",", ":")).encode())
        if len(lines) == BATCH or number == letters - 1:
            yield b"\n".join(lines) + b"\n"
            lines.clear()


def _event(number: int, draw: random.Random) -> dict[str, Any]:
    letter, queue = f"{draw.getrandbits(128):032x}", f"orders.{number % QUEUES}"
    died = {
        "queue": queue,
        "reason": "rejected",
        "count": 1,
        "time_ms": _T0_MS,
        "exchange": "shop",
        "routing_keys": [queue],
    }
    return {
        "v": 1,
        "event_id": f"{letter}-{draw.getrandbits(32):08x}",
        "id": letter,
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
        "ts_ms": _T0_MS + number,
        "first_death_ms": _T0_MS,
        "last_death_ms": _T0_MS,
        "props": {"message_id": f"m-{number}", "correlation_id": f"c-{number % 1000}"},
        "digest": {"crc32": 7, "size": 3},
        "error": {"type": "Failed", "message": f"order {number} {draw.choice(WORDS)} {draw.getrandbits(64):x}"},
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
    found = store.count()
    store.close()
    if found != letters:
        raise AssertionError(f"{found} of {letters} letters are in the index")
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
