"""A steady load for as long as you like, and what the router uses meanwhile: `make soak MINUTES=10` → docs/soak.md.

Letters are dead at once, into two queues, retried once, retried in vain (the load and the books of tools/chaos/run.py)
at a rate far below what the router can, and some are parked. Every minute the broker closes the router's connections,
and every minute the policies are changed and read again. Then everything drains, and every letter is accounted for.

Flat: the median of the last third is at most 5 % over that of the middle third (memory; descriptors and tasks may be 3
more, being so few). The first third is warming up.

Exit: 0 flat and nothing lost · 1 not · 2 the run could not be made.
"""

import argparse
import json
import logging
import os
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any, Final

import pika

from tools.brokers import RELEASES, BrokerError
from tools.brokers.programs import provide
from tools.chaos.accounting import PARKING
from tools.chaos.drain import drain
from tools.chaos.load import Load
from tools.chaos.report import Report
from tools.chaos.soak.page import markdown
from tools.chaos.soak.process_usage import Sample, Trend, Watch, every
from tools.chaos.testbed import INBOX, POLICIES, Scene, SceneError, soon

ROOT: Final = Path(__file__).parents[3]
LOOK_S: Final = 2.0
MINUTE_S: Final = 60.0  # a connection broken, and policies read again, so often
HOMELESS: Final = "homeless.work"  # no policy names it: its letters are parked
MORE: Final = "  - {{name: more, queue: more.{}, definition: {{max-delivery-attempts: 2}}}}\n"
HOMELESS_A_LOOK: Final = 20


@dataclass
class Soak:
    """One run and what came of it."""

    version: str
    minutes: float
    rate: float
    disturbed_every_s: float = MINUTE_S
    load_before: float = field(default_factory=lambda: round(os.getloadavg()[0], 2))
    date: str = field(default_factory=lambda: datetime.now(UTC).date().isoformat())
    reconnects: int = 0
    reloads: int = 0
    parked: int = 0
    looks: int = 0
    trends: list[Trend] = field(default_factory=list)
    samples: list[Sample] = field(default_factory=list)
    report: Report | None = None

    @property
    def broken(self) -> list[str]:
        """What is not flat, and every law that does not hold."""
        growth = [
            f"{trend.measure} grew: {trend.thirds[1]:g} → {trend.thirds[2]:g}"
            for trend in self.trends
            if not trend.flat
        ]
        return [*growth, *(self.report.broken if self.report else [])]


class Course:
    """What happens at each look, and at each minute."""

    def __init__(self, scene: Scene, soak: Soak) -> None:
        self._scene, self._soak = scene, soak
        self._router = scene.routers[0]
        self.watch = Watch(self._router)
        self._minutes = count(1)
        self._next_s = time.monotonic() + soak.disturbed_every_s

    def look(self) -> None:
        """Some letters without a home, a sample, and once a minute a broken connection and other policies."""
        self._scene.channel(self._orphan)
        self.watch.look()
        if time.monotonic() > self._next_s:
            self._next_s += self._soak.disturbed_every_s
            self._disturb(next(self._minutes))

    def _orphan(self, channel: Any) -> None:  # noqa: ANN401 - pika ships no types
        channel.confirm_delivery()  # 3.10 loses some of what is not confirmed as its connection ends
        for number in range(HOMELESS_A_LOOK):
            channel.basic_publish("", HOMELESS, b"%d" % number, pika.BasicProperties(delivery_mode=2))
        self._soak.parked += HOMELESS_A_LOOK

    def _disturb(self, minute: int) -> None:
        before = self._router.metric("reloads_total", result="success")
        file = self._scene.folder / "policies" / "chaos.yaml"
        file.write_text(f"{POLICIES}{MORE.format(minute)}", encoding="utf-8")
        self._router.signal(signal.SIGHUP)
        if not soon(lambda: self._router.metric("reloads_total", result="success") > before, 20):
            raise SceneError(f"policies were not read again in minute {minute}: {self._router.ask('/readyz')}")
        self._soak.reloads += 1
        self._soak.reconnects += self._scene.close_connections()


def run(soak: Soak, folder: Path) -> Soak:
    """Load, looks, drain, audit."""
    with ExitStack() as stack:
        scene = Scene(provide(soak.version), folder)
        stack.callback(scene.close)
        scene.channel(_homeless)
        scene.replicas(1)
        load = Load(scene.url, soak.rate)
        load.start()
        stack.callback(load.close)
        load.hold(PARKING)  # these are counted, not audited: they have no way
        report = soak.report = Report(scene.node.version, _router_version(), 0, soak.minutes, (1,))
        window = scene.window()
        course = Course(scene, soak)
        every(LOOK_S, soak.minutes * MINUTE_S, course.look)
        report.allowed = window * soak.reconnects
        report.seconds = soak.minutes * MINUTE_S
        _count_parked(scene, soak, report)
        drain(scene, load, report)
        report.verdict = load.books.judge(report.allowed)
        soak.trends, soak.looks, soak.samples = course.watch.trends(), len(course.watch.samples), course.watch.samples
        return soak


def _homeless(channel: Any) -> None:  # noqa: ANN401 - pika ships no types
    arguments = {"x-message-ttl": 0, "x-dead-letter-exchange": INBOX, "x-queue-type": "quorum"}
    safe = {"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}
    channel.queue_declare(HOMELESS, durable=True, arguments=arguments | safe)


def _count_parked(scene: Scene, soak: Soak, report: Report) -> None:
    """Every letter without a home is in parking; more only what a broken connection left in doubt."""
    soon(lambda: scene.depths()[PARKING] >= soak.parked, MINUTE_S)
    parked = scene.channel(lambda channel: channel.queue_purge(PARKING).method.message_count)
    if not soak.parked <= parked <= soak.parked + report.allowed:
        report.violations.append(f"{soak.parked} letters belong into parking, and {parked} are there")


def _router_version() -> str:
    text = (ROOT / "dlx_router" / "__init__.py").read_text(encoding="utf-8")
    return next((line.split('"')[1] for line in text.splitlines() if line.startswith("__version__")), "?")


def main(argv: Sequence[str] | None = None) -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="of load (default 10)")
    parser.add_argument("--rate", type=float, default=300.0, help="letters a second (default 300)")
    parser.add_argument("--version", choices=list(RELEASES), default="4.3", help="of RabbitMQ (default 4.3)")
    parser.add_argument("--no-page", dest="page", action="store_false", help="leave docs/soak.md as it is")
    given = parser.parse_args(argv)
    logging.getLogger("pika").setLevel(logging.CRITICAL)  # says the same as the books
    try:
        with tempfile.TemporaryDirectory(prefix="dlx-router-soak-") as folder:
            soak = run(Soak(given.version, given.minutes, given.rate), Path(folder))
    except (BrokerError, SceneError) as error:
        print(error, file=sys.stderr)
        return 2
    text = markdown(soak)
    (ROOT / "build").mkdir(exist_ok=True)
    document = asdict(soak) | {"broken": soak.broken}
    (ROOT / "build" / "soak.json").write_text(json.dumps(document, indent=1, default=str) + "\n", encoding="utf-8")
    if given.page:
        (ROOT / "docs" / "soak.md").write_text(text, encoding="utf-8")
    print(text)
    return 1 if soak.broken else 0


if __name__ == "__main__":
    sys.exit(main())
