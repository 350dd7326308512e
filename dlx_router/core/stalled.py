"""Stalled: for how long a consumer stands still, judged by counts that are looked at every few seconds.

A broker delivers what is ready to whoever has room for it. So a queue with ready messages whose consumer has room, and
which nobody else takes from either, stands still. A moment of it is nothing: such counts are never of one moment.
"""

from typing import Final, NamedTuple

MOST_S: Final = 3.0  # a longer time between two looks counts as this: whoever was frozen saw nothing in it


class Look(NamedTuple):
    """What was counted at one moment. `last_tag`: of the consumer's last delivery. `owed`: it may be given one."""

    at_s: float
    ready: int
    consumers: int
    last_tag: int
    owed: bool

    @property
    def lacks(self) -> bool:
        """Whether there is something that should be delivered, or nobody whom the broker would deliver it to."""
        return self.owed and (self.ready > 0 or self.consumers == 0)


class Stand(NamedTuple):
    """The last look at a consumer, and for how long it stands still by then; 0.0: not at all, as far as is known."""

    look: Look
    for_s: float = 0.0


def judged(before: Stand | None, look: Look) -> Stand:
    """How the consumer stands at this look. `before`: at the last look at the same consumer."""
    if before is None or not (before.look.lacks and look.lacks) or moves(before.look, look):
        return Stand(look)
    return Stand(look, before.for_s + max(0.0, min(look.at_s - before.look.at_s, MOST_S)))


def moves(before: Look, look: Look) -> bool:
    """Whether anything was delivered between the two: to us, or to somebody else who takes from the queue."""
    return look.last_tag != before.last_tag or look.ready < before.ready
