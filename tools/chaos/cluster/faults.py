"""The faults of three nodes: done as they were drawn, and how long letters took to flow again."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from signal import SIGCONT, SIGSTOP
from typing import Final

from tools.chaos.cluster.accounting import WAYS, Books
from tools.chaos.cluster.load import Load
from tools.chaos.cluster.monitor import Watch
from tools.chaos.cluster.schedule import (
    KILLED,
    OF_ROUTERS,
    PAUSED,
    PAUSED_LONG,
    ROLLING,
    ROUTER_FROZEN,
    ROUTER_KILLED,
    TWO_PAUSED,
    TWO_PAUSED_LONG,
    Drawn,
)
from tools.chaos.cluster.testbed import NodesScene
from tools.chaos.testbed import soon

FLOWS_S: Final = 150.0
WHOLE_S: Final = 150.0
REST_S: Final = 5.0
QUIET_BEFORE_KILL_S: Final = 45.0


@dataclass
class Fault:
    """What was done, from when to when (seconds since 1970), and after how long every way flowed again."""

    drawn: Drawn
    begun_s: float
    ended_s: float
    flows: float | None = None
    control_flows: float | None = None
    whole: float | None = None  # until all three nodes served
    note: str = ""  # who led the inboxes

    def __str__(self) -> str:
        at = ",".join(map(str, self.drawn.members))
        lasted = self.ended_s - self.begun_s
        return (
            f"{self.drawn.kind} ({at}) lasted {lasted:.1f} s, flows after {_s(self.flows)}"
            f" (control {_s(self.control_flows)}), three nodes serve after {_s(self.whole)} {self.note}"
        )


def _s(value: float | None) -> str:
    return "never" if value is None else f"{value:.1f} s"


def strike(scene: NodesScene, load: Load, watch: Watch, drawn: Drawn, last_node_fault_s: float) -> Fault:
    """Do it, and wait until all flows again. BrokerError where a node does not start."""
    if drawn.kind == ROUTER_KILLED:  # so that what the journal does not say of letters lost before was never settled
        time.sleep(max(0.0, last_node_fault_s + QUIET_BEFORE_KILL_S - time.time()))
    aligned = "" if drawn.kind in OF_ROUTERS else scene.align()
    watch.fault = drawn.kind
    fault = Fault(drawn, time.time(), 0.0, note=aligned)
    try:
        _ACTS[drawn.kind](scene, watch, drawn)
    finally:
        fault.ended_s = time.time()
        watch.fault = f"after {drawn.kind}"
    _recovered(load, watch, fault)
    time.sleep(REST_S)
    return fault


def is_of_nodes(fault: Fault) -> bool:
    """A node was away, not a router."""
    return fault.drawn.kind not in OF_ROUTERS


def _recovered(load: Load, watch: Watch, fault: Fault) -> None:
    since = (load.main.books.numbers, load.control.books.numbers)

    def look() -> bool:
        now = time.time() - fault.ended_s
        if fault.flows is None and _flows(load.main.books, since[0]):
            fault.flows = now
        if fault.control_flows is None and _flows(load.control.books, since[1]):
            fault.control_flows = now
        if fault.whole is None and all(watch.up()):
            fault.whole = now
        return None not in {fault.flows, fault.control_flows, fault.whole}

    soon(look, FLOWS_S, every=0.1)


def _flows(books: Books, since: int) -> bool:
    return all(books.newest[way] >= since for way in WAYS)


def _kill(scene: NodesScene, watch: Watch, drawn: Drawn) -> None:
    at = drawn.members[0]
    watch.down.add(at)
    scene.nodes[at].kill()
    time.sleep(drawn.seconds)
    scene.nodes[at].start()
    watch.down.discard(at)


def _roll(scene: NodesScene, watch: Watch, drawn: Drawn) -> None:
    for at in drawn.members:
        watch.down.add(at)
        scene.nodes[at].stop()
        scene.nodes[at].start()
        watch.down.discard(at)
        soon(lambda: all(watch.up()), WHOLE_S, every=0.2)
        time.sleep(drawn.seconds)


def _pause(scene: NodesScene, watch: Watch, drawn: Drawn) -> None:
    watch.down.update(drawn.members)
    for at in drawn.members:
        scene.nodes[at].send(SIGSTOP)
    try:
        time.sleep(drawn.seconds)
    finally:
        for at in drawn.members:
            scene.nodes[at].send(SIGCONT)
        watch.down.difference_update(drawn.members)


def _kill_router(scene: NodesScene, _watch: Watch, drawn: Drawn) -> None:
    router = scene.routers[drawn.members[0]]
    router.kill()
    time.sleep(drawn.seconds)
    router.start(wait=False)


def _freeze_router(scene: NodesScene, _watch: Watch, drawn: Drawn) -> None:
    router = scene.routers[drawn.members[0]]
    router.signal(SIGSTOP)
    try:
        time.sleep(drawn.seconds)
    finally:
        router.signal(SIGCONT)


_ACTS: Final[dict[str, Callable[[NodesScene, Watch, Drawn], None]]] = {
    KILLED: _kill,
    ROLLING: _roll,
    PAUSED: _pause,
    PAUSED_LONG: _pause,
    TWO_PAUSED: _pause,
    TWO_PAUSED_LONG: _pause,
    ROUTER_KILLED: _kill_router,
    ROUTER_FROZEN: _freeze_router,
}
