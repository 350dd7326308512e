"""Which faults come next on three nodes, and on which of them: a seed says all of it."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

NODES: Final = 3
ROUTERS: Final = 2
STRATEGIES: Final = ("autoheal", "pause_minority")

KILLED: Final = "node killed"
ROLLING: Final = "rolling restart"
PAUSED: Final = "one node paused, 40 to 57 s"
PAUSED_LONG: Final = "one node paused, 76 to 90 s"
TWO_PAUSED: Final = "two nodes paused, 40 to 57 s"
TWO_PAUSED_LONG: Final = "two nodes paused, 76 to 90 s"
ROUTER_KILLED: Final = "router killed"
ROUTER_FROZEN: Final = "router frozen, 5 to 30 s"

_SECONDS: Final = {
    KILLED: (0.0, 10.0),  # until it is started again
    ROLLING: (1.0, 3.0),  # between two nodes
    PAUSED: (40.0, 57.0),
    PAUSED_LONG: (76.0, 90.0),
    TWO_PAUSED: (40.0, 57.0),
    TWO_PAUSED_LONG: (76.0, 90.0),
    ROUTER_KILLED: (0.0, 2.0),
    ROUTER_FROZEN: (5.0, 30.0),
}
_MANY: Final = {ROLLING: NODES, TWO_PAUSED: 2, TWO_PAUSED_LONG: 2}
KINDS: Final = tuple(_SECONDS)
OF_ROUTERS: Final = frozenset({ROUTER_KILLED, ROUTER_FROZEN})
PAUSES: Final = frozenset({PAUSED, PAUSED_LONG, TWO_PAUSED, TWO_PAUSED_LONG})


@dataclass(frozen=True)
class Part:
    """A cluster of its own, with a share of the time."""

    version: str
    strategy: str

    def __str__(self) -> str:
        return f"{self.version}:{self.strategy}"


PARTS: Final = tuple(Part(version, strategy) for version in ("4.3", "4.0") for strategy in STRATEGIES)
"""RabbitMQ 4.3 reads `cluster_partition_handling` and does nothing by it; 4.0, with Mnesia, obeys."""


@dataclass(frozen=True)
class Drawn:
    """A fault to come. `members`: which nodes, or which router, in this order."""

    kind: str
    members: tuple[int, ...]
    seconds: float


def drawn(seed: int, part: Part, kinds: tuple[str, ...] = KINDS) -> Iterator[Drawn]:
    """Each kind once, shuffled, again and again, without end; the same for the same seed and part."""
    chance = random.Random(f"{seed} {part}")
    while True:
        bag = list(kinds)
        chance.shuffle(bag)
        yield from (_fault(kind, chance) for kind in bag)


def _fault(kind: str, chance: random.Random) -> Drawn:
    of = ROUTERS if kind in OF_ROUTERS else NODES
    members = tuple(chance.sample(range(of), _MANY.get(kind, 1)))
    return Drawn(kind, members, chance.uniform(*_SECONDS[kind]))
