"""A journal at its retention: what a router meets that starts on it, leads, and makes its index of it."""

import time
from collections.abc import Iterator
from typing import Any, Final

from dlx_router.broker.stream import COMPRESSED_SINCE, Retention, journal_stream, section
from dlx_router.core.names import Names
from dlx_router.journal.fields import MEDIA_TYPE
from tests.support.router import Router
from tools.bench.redrive.index_search import BATCH, batches
from tools.bench.wire import Wire
from tools.brokers import running
from tools.scale.bench import MB, ROOMY, Bench, Row, asked, patiently, rate, started, used_mb

OVER: Final = 1.2  # so much more is written than it keeps
POLICY: Final = 'version: 1\npolicies:\n  - {name: all, match: "#", definition: {max-delivery-attempts: 1}}\n'
FULL: Final = 0.9
QUIET_S: Final = 5


def measure(bench: Bench) -> Iterator[Row]:
    """`size`: bytes that the stream keeps, in segments of a tenth of it, at most as the router declares them."""
    segment = min(Retention().segment_bytes, max(1_000_000, bench.size // 10))
    stream = journal_stream(Names(), Retention(max_bytes=bench.size, segment_bytes=segment))
    env = {"INDEX_PATH": str(bench.folder / "index.sqlite")}
    with running(bench.version, config=ROOMY) as node:
        with Wire(node.amqp_url) as wire:
            wire.queue(stream.name, dict(stream.arguments))
            events, took = _filled(bench, wire, stream.name)
        yield Row("events written by the bench, in batches made before", f"{events:,}, {rate(events, took)}")
        kept = _messages(node, stream.name)
        yield Row("events that the broker kept", f"{kept * BATCH:,}", kept * BATCH < events)
        with bench.router(node, POLICY, **env) as router:
            yield Row("router ready after", f"{started(router):.1f} s")
            led = patiently(
                lambda: asked(router, "GET", "/tasks", params={"vhost": "/"}).is_success, "nobody leads", 600
            )
            yield Row("leads, its tasks read, after further", f"{led:.1f} s")
            yield from _indexed(router, kept * BATCH, float(bench.options.get("minutes", "20")))
            yield Row("memory of router and index", f"{used_mb(router):.0f} MB")


def _filled(bench: Bench, wire: Wire, stream: str) -> tuple[int, float]:
    """Until more was written than is kept; → events, and the seconds of writing alone."""
    written, messages, took, waiting = 0, 0, 0.0, list[bytes]()
    for body in batches(1 << 40):
        waiting.append(body)
        written += len(body)
        if len(waiting) == 500 or written > OVER * bench.size:  # noqa: PLR2004 - some MB at once
            began = time.monotonic()
            wire.fill("", stream, len(waiting), lambda index: (_header(len(waiting[index])), waiting[index]))
            took, messages = took + time.monotonic() - began, messages + len(waiting)
            waiting.clear()
            if messages % 50_000 == 0:
                bench.say(f"{messages * BATCH:,} events, {written / MB:,.0f} MB")
        if written > OVER * bench.size:
            break
    return messages * BATCH, took


def _header(size: int) -> bytes:
    return b"\0\x3c\0\0" + size.to_bytes(8) + section(MEDIA_TYPE, COMPRESSED_SINCE, b"")


def _messages(node: Any, stream: str) -> int:  # noqa: ANN401 - a node of tools/brokers
    output = node.rabbitmqctl("list_queues", "name", "messages")
    return next(int(line.split("\t")[1]) for line in output.splitlines() if line.startswith(f"{stream}\t"))


def _indexed(router: Router, events: int, minutes: float) -> Iterator[Row]:
    """The index is made anew; after so many minutes its rate is known, and the rest is told by it."""
    began, reading = time.monotonic(), _Reading(router, events)
    while not reading.is_over() and time.monotonic() - began < 60 * minutes:
        time.sleep(0.5)
    took = reading.since_s - began
    if reading.is_over():
        yield Row("index made anew of all of it", f"{took:.0f} s, {rate(reading.read, took)}")
    else:
        rest = (events - reading.read) * took / max(reading.read, 1.0)
        yield Row(
            f"index made anew: events read in {minutes:g} minutes", f"{reading.read:,.0f}, {rate(reading.read, took)}"
        )
        yield Row("all of them, at that rate", f"{(took + rest) / 60:.0f} minutes")


class _Reading:
    """Whether the index has read all: it read much, and reads no more."""

    def __init__(self, router: Router, least: int) -> None:
        self._router, self._least = router, least
        self.read, self.since_s = 0.0, time.monotonic()

    def is_over(self) -> bool:
        """Nothing was read for some seconds, and at least most of it before."""
        if (now := self._router.metric("index_events_total")) > self.read:
            self.read, self.since_s = now, time.monotonic()
        return self.read > FULL * self._least and time.monotonic() - self.since_s > QUIET_S
