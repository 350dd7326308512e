"""The end of a part: letters that are under way arrive, and what only stands still is helped on as an operator would.

Two helps, neither of which touches what a router has: another leader for a queue whose own dead-letter worker stands,
and, once, new connections for the load's own consumers. What a consumer answers on a dead connection between two nodes
is gone, and the broker waits for that answer as long as the consumer's channel is there.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import httpx
import pika

from tools.chaos.cluster.load import Load
from tools.chaos.cluster.report import PartReport
from tools.chaos.cluster.testbed import CONTROL, VHOST, NodesScene
from tools.chaos.testbed import soon

DRAIN_S: Final = 360.0
UNCHANGED_S: Final = 40.0


class Drain:
    """Until every letter was found, or nothing was found for a while and nothing waits; then the routers end."""

    def __init__(self, scene: NodesScene, load: Load, report: PartReport, log: Callable[[str], None]) -> None:
        self._scene, self._load, self._report, self._log = scene, load, report, log
        self._looks: list[tuple[float, int]] = []
        self._missed: tuple[int, int] | None = None  # letters and the control's, when the consumers connected anew

    def run(self) -> None:
        """Nothing is published any more."""
        started, report = time.monotonic(), self._report
        if not soon(self._at_rest, DRAIN_S, every=1.0):
            waits = _waiting(self._scene)
            report.violations.append(f"letters still waited {DRAIN_S:g} s after the last publish: {waits}")
        report.drained_s = time.monotonic() - started
        if self._missed:
            ours, theirs = self._missing()
            report.came_anew = (max(0, self._missed[0] - ours), max(0, self._missed[1] - theirs))
        for at, router in enumerate(self._scene.routers):
            if code := router.stop():
                report.violations.append(f"router {at} did not drain: exit {code}")

    def _at_rest(self) -> bool:
        missing = self._missing()
        if not any(missing):
            return True
        if not self._unchanged() or _waiting(self._scene):
            return False
        if stages := _stages(self._scene):
            self._lead_anew(stages)
        elif self._missed is None:
            self._missed = missing
            self._log(f"the load's consumers connect anew: {missing[0]} letters are missing, {missing[1]} control's")
            self._load.connect_anew()
        else:
            return True
        self._looks.clear()
        return False

    def _missing(self) -> tuple[int, int]:
        return len(self._load.main.books.lost()), len(self._load.control.books.lost())

    def _unchanged(self) -> bool:
        self._looks.append((time.monotonic(), self._load.main.books.finds + self._load.control.books.finds))
        same = [when for when, finds in self._looks if finds == self._looks[-1][1]]
        return time.monotonic() - same[0] > UNCHANGED_S

    def _lead_anew(self, stages: list[tuple[str, str, int]]) -> None:
        """As an operator would: each of these queues gets another leader, and with it another worker."""
        for vhost, queue, many in stages:
            self._report.led_anew.append(f"{self._report.part}: {vhost}/{queue}, where {many} letters lay")
            self._log(f"led anew: {self._report.led_anew[-1]}: {self._scene.lead_anew(vhost, queue)}")


def _stages(scene: NodesScene) -> list[tuple[str, str, int]]:
    """Where letters lie that died and that the broker's own worker does not hand over: vhost, queue, how many."""
    looks = {vhost: scene.stages(vhost, node=0) for vhost in (VHOST, CONTROL)}
    return [(vhost, queue, stage.many) for vhost, look in looks.items() if look for queue, stage in look.dead.items()]


def _waiting(scene: NodesScene) -> dict[str, int]:
    with suppress(pika.exceptions.AMQPError, httpx.HTTPError, OSError):
        both = {f"{vhost}/{queue}": many for vhost in (VHOST, CONTROL) for queue, many in scene.depths(vhost).items()}
        return {queue: many for queue, many in both.items() if many}
    return {"nobody can tell": 1}
