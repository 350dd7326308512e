"""Returns: what the broker counts as a letter goes back, and how far from its limit a task stays.

A quorum queue ends a letter that was returned too often; each lost connection is a return, and before 4.3 each nack.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from dlx_router.core import attending
from dlx_router.core.attending import QueueFacts

UNKNOWN_MOST: Final = 2  # returns, where nobody tells the limit: by tasks that go on by themselves, or that count
ASK: Final = "set MANAGEMENT_URL, which tells its type and delivery-limit"


class Returns(NamedTuple):
    """Of one queue. `limit`: what was returned more often the broker ends, None: nothing, as far as anybody knows.

    `most`: a letter that was returned so often is returned no more by a task that goes on by itself, None: any number.
    `is_free`: a nack is no return. `remedy`: what an operator can do about the limit. `is_known`: somebody tells it;
    else each start of a task may be the last that a letter survives, and no number of returns is for people.
    """

    limit: int | None = None
    most: int | None = None
    is_free: bool = True
    remedy: str = attending.RAISE
    is_known: bool = True

    @property
    def are_counted(self) -> bool:
        """Whether anything depends on how often a letter was returned."""
        return self.most is not None

    def here(self, shown: int) -> int:
        """How often a letter was returned in this queue that shows so many returns.

        On 4.0 to 4.2 it shows those of the quorum queue that it came from until its first return here, and the broker
        counts these from 0 (`rabbit_fifo_client:add_delivery_count_header`, `rabbit_fifo:return_one`). More than the
        limit are surely those: no letter of this queue lives to have them.
        """
        is_others = self.is_known and not self.is_free and self.limit is not None and shown > self.limit
        return 0 if is_others else shown

    def is_near(self, count: int) -> bool:
        """Whether a letter that was returned so often must not be given back: it goes to parking."""
        return not self.is_free and self._is_near(count)

    def are_spent(self, count: int, *, goes_on: bool) -> bool:
        """Whether a task must stop. `goes_on`: by itself; half of the returns are for people, who start and resume.

        Where a nack is free, only lost connections have brought a letter near: it is given back before the next is.
        """
        return (goes_on and self.most is not None and count >= self.most) or (self.is_free and self._is_near(count))

    def _is_near(self, count: int) -> bool:
        if not self.is_known and not self.is_free:
            return count >= UNKNOWN_MOST
        return self.limit is not None and attending.is_near(count, self.limit)

    def why_not(self, queue: str, count: int) -> str:
        """Why it stopped, and what now."""
        limit = f"{self.limit} times" if self.is_known else "its delivery-limit (which is not known)"
        return (
            f"letters of {queue!r} were returned {count} times, and the broker ends what is returned more than {limit}"
            f": {self.remedy}, and resume once what interrupted the task is mended"
        )


def limits_of(facts: Mapping[str, Any]) -> QueueFacts:
    """What of the management API's answer says how many returns letters of a queue survive; nothing: as if quorum."""
    arguments, policy = facts.get("arguments") or {}, facts.get("effective_policy_definition") or {}
    return QueueFacts(str(facts.get("type", "quorum")), arguments, policy)


def returns_of(facts: Mapping[str, Any], version: tuple[int, ...]) -> Returns:
    """What holds for a queue of which the management API tells this; nothing: it may be a quorum queue."""
    is_free = version >= attending.RETURNS_FREE_SINCE
    if facts.get("type") is None:
        return Returns(attending.unknown_limit(version), UNKNOWN_MOST, is_free, ASK, is_known=False)
    known = limits_of(facts)
    limit, remedy = attending.delivery_limit(known, version), attending.remedy(known, version)
    return Returns() if limit is None else Returns(limit, max(limit // 2, 1), is_free, remedy)
