"""Many vhosts in one process: start, memory, connections, what it costs to wait, and a letter in each."""

import time
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import quote

import psutil

from tools.bench.contestants import management
from tools.bench.wire import Wire
from tools.brokers import running
from tools.scale.bench import ROOMY, Bench, Row, patiently, started, used_mb

IDLE_S: Final = 20
POLICY: Final = 'version: 1\npolicies:\n  - {name: all, match: "#", definition: {max-delivery-attempts: 1}}\n'
_HEADER: Final = b"\0\x3c\0\0" + (5).to_bytes(8) + b"\x10\0\2"


def measure(bench: Bench) -> Iterator[Row]:
    """VHOSTS=*, all with the same policy."""
    names = [f"v{number:03}" for number in range(bench.size)]
    with running(bench.version, config=ROOMY) as node, bench.router(node, POLICY, VHOSTS=",".join(names)) as router:
        for name in names:
            _make(node, name)
        yield Row("first start: declares all, ready after", f"{started(router):.1f} s")
        router.stop(within=120)
        yield Row("second start: ready after", f"{started(router):.1f} s")
        mb = used_mb(router)
        yield Row("router's memory", f"{mb:.0f} MB, {mb / bench.size:.1f} MB a vhost")
        process = psutil.Process(router.pid)
        yield Row("connections to the broker", f"{len(process.net_connections('tcp')):,} sockets")
        before, began = sum(process.cpu_times()[:2]), time.monotonic()
        time.sleep(IDLE_S)
        share = (sum(process.cpu_times()[:2]) - before) / (time.monotonic() - began)
        yield Row("CPU while nothing comes", f"{100 * share:.0f} % of a core", share < 0.5)  # noqa: PLR2004 - half a core
        began = time.monotonic()
        for name in names:
            _kill(node, name)
        patiently(lambda: router.metric("settled_total") >= bench.size, "letters are not settled", 120)
        yield Row("a letter in each: all routed after", f"{time.monotonic() - began:.1f} s")
        began = time.monotonic()
        router.stop(within=120)
        yield Row("drained and stopped after", f"{time.monotonic() - began:.1f} s")


def _make(node: Any, name: str) -> None:  # noqa: ANN401 - a node of tools/brokers
    management(node.management_url, "PUT", f"/api/vhosts/{quote(name, safe='')}", {})
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    management(node.management_url, "PUT", f"/api/permissions/{quote(name, safe='')}/guest", everything)


def _kill(node: Any, name: str) -> None:  # noqa: ANN401 - as _make
    with Wire(f"{node.amqp_base}/{quote(name, safe='')}") as wire:
        wire.queue("work", {"x-message-ttl": 0, "x-dead-letter-exchange": "dlx-router.inbox"})
        wire.fill("", "work", 1, lambda _index: (_HEADER, b"hello"))
