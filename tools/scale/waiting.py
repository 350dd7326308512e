"""Many letters wait in a rung: memory, how late other waits end meanwhile, and a restart."""

import statistics
import time
from collections.abc import Iterator
from typing import Final

from tools.bench.contestants import INBOX
from tools.bench.letters import KEY
from tools.bench.wire import BenchError, Wire
from tools.brokers import running
from tools.measure import wait_accuracy
from tools.scale.bench import ROOMY, Bench, Died, Row, broker_mb, rate, settled, started, used_mb

RUNG: Final = "dlx-router.delay.86400000"
LIMIT_MB: Final = 120
STEP: Final = 100_000
RATE: Final = 200
POLICY: Final = """\
version: 1
policies:
  - {name: waiting, queue: orders, definition: {max-delivery-attempts: 2, redelivery-delay: 1d}}
  - {name: late, match: "late.#", definition: {max-delivery-attempts: 2, redelivery-delay: 5s}}
"""


def measure(bench: Bench) -> Iterator[Row]:
    """Letters come to the inbox as if a consumer had rejected them, and each waits for a day."""
    with running(bench.version, config=ROOMY) as node, bench.router(node, POLICY) as router:
        started(router)
        yield Row("router's memory before", f"{used_mb(router):.0f} MB")
        began, most = time.monotonic(), 0.0
        with Wire(node.amqp_url) as wire:
            letters = Died("orders")
            for filled in range(0, bench.size, STEP):
                count = min(STEP, bench.size - filled)
                wire.fill(INBOX, KEY, count, letters)
                settled(router, filled + count, 600)
                most = max(most, used_mb(router))
                bench.say(f"{filled + count:,} wait, {most:.0f} MB")
            took = time.monotonic() - began
            if (depth := wire.depth(RUNG)[0]) != bench.size:
                raise BenchError(f"{depth} letters lie in {RUNG}, not {bench.size}")
        yield Row("begin to wait", rate(bench.size, took))
        yield Row("router's memory, the most (≤ 120 MB)", f"{most:.0f} MB", most <= LIMIT_MB)
        yield Row("broker's memory", f"{broker_mb(node):,.0f} MB")
        yield from _lateness(node.amqp_url, int(bench.options.get("seconds", "30")))
        router.stop()
        yield Row("router started again, ready after", f"{started(router):.1f} s")
        router.stop()
        node.stop()
        began = time.monotonic()
        node.start()
        yield Row("broker started again, serves after", f"{time.monotonic() - began:.1f} s")
        yield Row("router started then, ready after", f"{started(router):.1f} s")
        with Wire(node.amqp_url) as wire:
            depth = wire.depth(RUNG)[0]
        yield Row("letters that still wait", f"{depth:,}", depth == bench.size)


def _lateness(url: str, seconds: int) -> Iterator[Row]:
    late = sorted(wait_accuracy.measure(url, RATE, seconds))
    shown = (statistics.median(late), late[int(len(late) * 0.99)], late[-1])
    text = " / ".join(f"{value * 1000:.0f}" for value in shown)
    yield Row(f"waits of 5 s at {RATE}/s end late by, median / p99 / most", f"{text} ms", late[0] >= 0)
