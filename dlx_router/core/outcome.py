"""What can become of a letter: the results of `decide`, as values.

`failed` in each: conditions that could not be evaluated, with why; they counted as false.
"""

from dlx_router.core.value import value
from dlx_router.core.words import Action, Cause


@value(frozen=True, slots=True)
class Retry:
    """Back to the failed queue when `due_ms` (epoch) has come; `wait_ms` from now."""

    wait_ms: int
    due_ms: int
    attempts: int
    action: Action = Action.RETRY
    cause: Cause | None = None
    failed: tuple[str, ...] = ()


@value(frozen=True, slots=True)
class DeadLetter:
    """To its final target. `keys` are the routing key and, where the original keys are kept, the CC keys.

    `queue` is the dead-letter queue to be created first, else None.
    """

    exchange: str
    keys: tuple[str, ...]
    attempts: int
    cause: Cause
    queue: str | None = None
    missing_headers: int = 0
    action: Action = Action.DEAD_LETTER
    failed: tuple[str, ...] = ()


@value(frozen=True, slots=True)
class Park:
    """Nowhere to go: kept in the parking queue, with the cause; `target` is where it could not go."""

    cause: Cause
    attempts: int = 0
    target: str = ""
    action: Action = Action.PARK
    failed: tuple[str, ...] = ()


@value(frozen=True, slots=True)
class Hold:
    """A refused target or an outage: waits without using an attempt; `tries` holds so far, this one included.

    `cause` None: nothing is wrong, it was published to wait. `refusals`: how often it was sent and not confirmed.
    """

    cause: Cause | None
    due_ms: int
    tries: int
    attempts: int
    target: str = ""
    action: Action = Action.HOLD
    failed: tuple[str, ...] = ()
    refusals: int = 0


@value(frozen=True, slots=True)
class Discard:
    """The policy says so; the only way to drop."""

    attempts: int
    action: Action = Action.DISCARD
    cause: Cause | None = None
    failed: tuple[str, ...] = ()


@value(frozen=True, slots=True)
class Forward:
    """It has not failed: on to where its relay leads. `keys`: the routing key and, where they are kept, CC keys.

    `kept`: the original keys, so that the CC header stays as it came.
    """

    exchange: str
    keys: tuple[str, ...]
    kept: bool = False
    missing_headers: int = 0
    attempts: int = 0
    action: Action = Action.FORWARD
    cause: Cause | None = None
    failed: tuple[str, ...] = ()


Decision = Retry | DeadLetter | Park | Hold | Discard | Forward
