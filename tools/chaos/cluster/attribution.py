"""Who lost a letter, the broker or the router, and by which argument.

* Of a quorum source the broker loses nothing that it confirmed, and its hop into the inbox is at least once. So a
  letter that is missing was lost by the router, outright.
* Of a classic source the broker may lose letters: while they lie there, and on the hop into the inbox, which is at
  most once. The journal tells whether a router had the letter. A router settles a letter after the stream confirmed its
  event, or keeps the event in memory and writes it later; where memory was not enough it writes a `gap`, and only a
  router that is killed takes events with it. So where there is no event of a letter, no gap covers it and no router was
  killed near it, no router ever settled it: it was lost before. And a node must have had a fault near it, or have heard
  nothing of another one (its log says so), or nobody knows.
* A classic letter that was retried is back in its classic queue once the journal says `released`: from there on the
  same holds as in the beginning.

What none of this decides is `undecided`, and breaks the law as what the router lost does.
"""

from dataclasses import dataclass, field
from typing import Final

from tools.chaos.cluster.accounting import Lost

ROUTER: Final = "router"
BROKER: Final = "broker"
UNDECIDED: Final = "undecided"
BACK_IN_SOURCE: Final = "released"
BEFORE_S: Final = 120.0  # so long a letter may lie in a classic queue whose node then goes
AFTER_S: Final = 30.0  # so long a node's fault is felt after its end
KILL_S: Final = 30.0  # so long before the death of a router it may have had an event in memory only


@dataclass
class Troubles:
    """What happened meanwhile; spans in seconds since 1970."""

    nodes: list[tuple[float, float]] = field(default_factory=list)  # faults of nodes, and of connections between them
    kills: list[float] = field(default_factory=list)  # of routers
    gaps: list[tuple[float, float]] = field(default_factory=list)  # of the journal

    def near_a_node(self, at_s: float) -> bool:
        """A node was or went away around the time."""
        return any(begun - BEFORE_S <= at_s <= ended + AFTER_S for begun, ended in self.nodes)

    def untold(self, at_s: float) -> bool:
        """The journal may miss what happened to a letter that was confirmed at this time."""
        killed = any(0 <= kill - at_s <= KILL_S for kill in self.kills)
        return killed or any(begun - KILL_S <= at_s <= ended + 1 for begun, ended in self.gaps)


def attributed(letter: Lost, told: str | None, troubles: Troubles) -> tuple[str, str]:
    """Who lost it, and why that is so. `told`: the kind of its last event in the journal; None: it has none."""
    if not letter.way.classic:
        return ROUTER, "of a quorum source"
    if told == BACK_IN_SOURCE and troubles.near_a_node(letter.confirmed_s):
        return BROKER, "the router gave it back to the classic source, confirmed"
    if told is not None:
        return ROUTER, f"the journal says {told}"
    if troubles.untold(letter.confirmed_s):
        return UNDECIDED, "the journal may miss it"
    if not troubles.near_a_node(letter.confirmed_s):
        return UNDECIDED, "no router settled it, and no node had a fault, nor a connection of two"
    return BROKER, "no router settled it: lost in the classic source or on the hop out of it"
