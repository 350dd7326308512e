"""What the rows beside it stand on: a row's size and folder, router processes, and what they use."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
import psutil

from tests.support.router import Router
from tools.bench.contestants import management
from tools.bench.letters import QUEUE, Letters
from tools.bench.wire import BenchError
from tools.polling import until

MB: Final = 1e6
READY_S: Final = 900
ROOMY: Final = {"vm_memory_high_watermark.absolute": "8GB", "disk_free_limit.absolute": "1GB"}


class Row(NamedTuple):
    """One line of a section. `ok` False: it is not within its limit."""

    what: str
    found: str
    ok: bool = True


@dataclass
class Bench:
    """What was asked for. `size`: of what the row is about; `folder`: where it may write."""

    size: int
    version: str
    folder: Path
    options: dict[str, str] = field(default_factory=dict)

    def say(self, text: str) -> None:
        """How far it is."""
        print(f"  {text}", flush=True)

    @contextmanager
    def router(self, node: Any, policies: str, name: str = "router", **env: str) -> Iterator[Router]:  # noqa: ANN401 - a node of tools/brokers, or of a cluster
        """A router process, not started yet; gone after the block. `env`: settings without their prefix."""
        folder = self.folder / f"{name}-policies"
        folder.mkdir(exist_ok=True)
        (folder / "policies.yaml").write_text(policies, encoding="utf-8")
        urls = {"amqp_url": node.amqp_url, "management_url": node.management_url}
        process = Router(**urls, policies=folder, log=self.folder / f"{name}.log", env=env)
        try:
            yield process
        finally:
            process.close()


def started(router: Router) -> float:
    """Seconds until it is ready."""
    began = time.monotonic()
    router.start(within=READY_S)
    return time.monotonic() - began


def used_mb(router: Router) -> float:
    """Resident memory of the router and of what it started, in 10^6 bytes."""
    process = psutil.Process(router.pid)
    return float(sum(member.memory_info().rss for member in (process, *process.children(recursive=True)))) / MB


def broker_mb(node: Any) -> float:  # noqa: ANN401 - a node of tools/brokers
    """What the broker says that it uses."""
    return float(management(node.management_url, "GET", "/api/nodes")[0]["mem_used"]) / MB


def settled(router: Router, least: int, within_s: float) -> None:
    """The router has settled so many letters; BenchError where nothing moves for a minute."""
    most, moved_s, deadline = -1.0, time.monotonic(), time.monotonic() + within_s
    while most < least:
        if (now := router.metric("settled_total")) > most:
            most, moved_s = now, time.monotonic()
        if time.monotonic() - moved_s > 60 or time.monotonic() > deadline:  # noqa: PLR2004 - a minute
            raise BenchError(f"{most:.0f} of {least} letters are settled, and no more are")
        time.sleep(0.2)


def patiently(look: Callable[[], object], why: str, within_s: float) -> float:
    """Seconds until it is so; BenchError where it is not in time."""
    began = time.monotonic()
    until(look, lambda: BenchError(f"{why} within {within_s:.0f} s"), within_s=within_s, every_s=0.1)
    return time.monotonic() - began


def asked(router: Router, method: str, path: str, **more: Any) -> httpx.Response:  # noqa: ANN401 - of httpx
    """The router's API."""
    url = f"http://127.0.0.1:{router.port}/api/v1{path}"
    return httpx.request(method, url, timeout=60, trust_env=False, **more)


class Died(Letters):
    """Letters of 1 KiB that died at a queue of this name, or of these in turn."""

    def __init__(self, *queues: str) -> None:
        super().__init__(1024, seed=0)
        self._at = [queue.encode() for queue in queues]

    def __call__(self, index: int) -> tuple[bytes, bytes]:
        """Content header and body; the names are as long as that of the benchmark's own queue."""
        header, body = super().__call__(index)
        name = self._at[index % len(self._at)]
        if len(name) != len(QUEUE):
            raise BenchError(f"queue {name.decode()} must have {len(QUEUE)} characters")
        return header.replace(QUEUE.encode(), name), body


def rate(letters: float, seconds: float) -> str:
    """Letters a second, as people read them."""
    return f"{letters / max(seconds, 1e-9):,.0f}/s"
