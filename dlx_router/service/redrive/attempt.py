"""Attempt: the how-manieth run of a task this is, and so how careful it is; Doubt: what runs before it left. Pure."""

from dataclasses import dataclass, replace
from typing import Final

from dlx_router.service.redrive.sender import MAX_TWICE

FIRST_PAUSE_S: Final = 0.25
LONGEST_PAUSE_S: Final = 5.0
LONGEST_UNCONFIRMED_S: Final = 60.0  # each run then leaves a copy more at a target that may have it


@dataclass(frozen=True, slots=True)
class Attempt:
    """`follows`: the broker may still hold letters for the run before. `goes_on`: nobody asked for this one.

    `failures`: runs since the last that sent anything, that one with them. `unconfirmed`: those
    of them whose copies the broker did not confirm in time.
    """

    follows: bool = False
    goes_on: bool = False
    failures: int = 0
    unconfirmed: int = 0

    def after(self, *, moved: bool, unconfirmed: bool) -> "Attempt":
        """The next one, where the broker interrupted this. `moved`: it had sent some."""
        before = replace(self, failures=0, unconfirmed=0) if moved else self
        late = before.unconfirmed + unconfirmed
        return Attempt(follows=True, goes_on=True, failures=before.failures + 1, unconfirmed=late)

    @property
    def pause_s(self) -> float:
        """How long to wait before it."""
        if not self.failures:
            return 0.0
        most = LONGEST_UNCONFIRMED_S if self.unconfirmed else LONGEST_PAUSE_S
        return float(min(FIRST_PAUSE_S * 2.0 ** min(self.failures - 1, 20), most))

    @property
    def is_careful(self) -> bool:
        """Whether one letter alone is sent until the broker confirms it."""
        return self.unconfirmed > 0


class Doubt:
    """Letters of one task that are sent, and may lie in its queue all the same: nobody saw the broker take the ack.

    They are the first there, so a run that goes on sends them again, as far as the limit lets it.
    """

    def __init__(self) -> None:
        self._until = 0  # once so many are sent none of them is left

    def recounted(self, before: int, now: int) -> None:
        """The journal tells of `now` letters that were sent; `before` were known."""
        if now > before:
            self._until = now + (now - before) + max(self._until - before, 0)

    def left(self, sent: int, limit: int) -> int:
        """How many a task may leave there that ends once it has sent so many; 0: it has looked through all."""
        return min(max(self._until - sent, 0), MAX_TWICE) if limit and sent >= limit else 0

    def explained(self, why: str, sent: int, limit: int) -> str:
        """The same, and how many may lie there."""
        left = self.left(sent, limit)
        text = f"up to {left} of those that were sent may still lie in the queue, because a connection was lost"
        return "; ".join(part for part in (why, text if left else "") if part)


FIRST: Final = Attempt()
RESUMED: Final = Attempt(follows=True)
TAKEN_OVER: Final = Attempt(follows=True, goes_on=True)
