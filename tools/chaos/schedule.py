"""Which fault comes next, and how long letters took to flow again after it."""

import random
import time
from functools import partial
from typing import Final

from tools.chaos.faults import KINDS, Arena, Fault
from tools.chaos.load import Load
from tools.chaos.testbed import soon

FLOWS_S: Final = 300.0
NEEDS_SEVERAL: Final = {"replica killed", "leader paused"}


def strike(kind: str, arena: Arena, started_s: float) -> Fault:
    """Do it, and wait until letters flow again. Raises BrokerError or httpx.HTTPError where it could not be done."""
    arena.note = ""
    arena.replica = arena.chance.randrange(len(arena.scene.routers))
    arena.takeovers.clear()
    arena.await_ready()
    begun = time.monotonic()
    KINDS[kind](arena)
    ended = time.monotonic()
    flow = soon(partial(flows, arena.load, arena.load.books.numbers), FLOWS_S, every=0.02)
    recovered = time.monotonic() - ended if flow else None
    takeover = arena.takeovers[0] if arena.takeovers else None
    return Fault(begun - started_s, kind, arena.replica, ended - begun, recovered, takeover, arena.note)


def flows(load: Load, since: int) -> bool:
    """A swift letter numbered `since` or later has arrived."""
    return load.books.newest >= since


class Bag:
    """Draws kinds: each once, shuffled, again and again. What needs several replicas waits until there are."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._left: list[str] = []

    def draw(self, replicas: int) -> str:
        """The next kind."""
        fits = [kind for kind in self._left if replicas > 1 or kind not in NEEDS_SEVERAL]
        if not fits:
            fits = self._left = [kind for kind in KINDS if replicas > 1 or kind not in NEEDS_SEVERAL]
            self._chance.shuffle(self._left)
        self._left.remove(kind := fits[0])
        return kind
