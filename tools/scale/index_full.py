"""The index at its bound: what it writes and how it is searched while the oldest letters go for new ones. No broker."""

import sqlite3
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from dlx_router.index.schema import is_passing, open_writer
from dlx_router.index.store import Message, Store
from dlx_router.index.worker import AT_ONCE
from tools.bench.redrive.index_search import BATCH, batches, searches
from tools.scale.bench import MB, Bench, Row, rate

FULL: Final = 0.9
MOST_LETTERS: Final = 40_000_000
PASSES: Final = 4  # so often a twentieth goes before it is over


@dataclass
class Filling:
    """What the index's process does, timed: it writes, and makes room as soon as the file is full."""

    store: Store
    most_bytes: int
    events: dict[bool, int] = field(default_factory=lambda: {False: 0, True: 0})  # by whether it was full before
    seconds: dict[bool, float] = field(default_factory=lambda: {False: 0.0, True: 0.0})
    freed_s: list[float] = field(default_factory=list)

    def write(self, messages: Sequence[Message]) -> None:
        """All of them, whatever room it takes."""
        was_full, began = bool(self.freed_s), time.perf_counter()
        while True:
            try:
                self.store.apply("/", messages)
                break
            except sqlite3.OperationalError as error:
                if not is_passing(error):
                    raise
                self.make_room()
        if self.store.used_bytes() > FULL * self.most_bytes:
            self.make_room()
        self.events[was_full] += BATCH * len(messages)
        self.seconds[was_full] += time.perf_counter() - began

    def make_room(self) -> None:
        """As the index's process does."""
        began = time.perf_counter()
        self.store.shrink(max(100, self.store.count() // 20))
        self.freed_s.append(time.perf_counter() - began)


def measure(bench: Bench) -> Iterator[Row]:
    """`size`: its bytes. Filled until it is full, and on until a twentieth of its letters has gone several times."""
    file = bench.folder / "index.sqlite"
    filling = Filling(Store(open_writer(file, max_bytes=bench.size)), bench.size)
    messages = (Message(number, body) for number, body in enumerate(batches(MOST_LETTERS)))
    while len(filling.freed_s) < PASSES and (at_once := [*islice(messages, AT_ONCE)]):
        filling.write(at_once)
        if sum(filling.events.values()) % 640_000 == 0:
            bench.say(f"{sum(filling.events.values()):,} events, {filling.store.used_bytes() / MB:,.0f} MB")
    letters = filling.store.count()
    filling.store.close()
    size = file.stat().st_size
    yield Row("letters in it", f"{letters:,}, {size / max(letters, 1):,.0f} bytes each")
    yield Row("file", f"{size / MB:,.0f} MB", size <= bench.size)
    for full, what in ((False, "until it was full"), (True, "at the bound, room made for them")):
        yield Row(f"events written {what}", rate(filling.events[full], filling.seconds[full]))
    yield Row("longest that room was made, for a twentieth of the letters", f"{max(filling.freed_s):.1f} s")
    began = time.perf_counter()
    Store(open_writer(file, max_bytes=bench.size)).close()
    yield Row("opened again after", f"{time.perf_counter() - began:.1f} s")
    took = sorted(searches(file, letters))
    shown = (statistics.median(took), statistics.quantiles(took, n=20)[-1], took[-1])
    text = " / ".join(f"{value * 1000:.0f}" for value in shown)
    yield Row("searches, median / p95 / longest", f"{text} ms")
