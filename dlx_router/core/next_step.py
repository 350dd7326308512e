"""What can be done next about a letter whose copy did not arrive: the results of `refusal.after`, as values."""

from dataclasses import dataclass
from typing import Final, NamedTuple

from dlx_router.core.words import Cause

BACK_MS: Final = 45_000


@dataclass(frozen=True, slots=True)
class TryAgain:
    """The same copy is sent again after a pause; what it needs is looked for before."""

    after_s: float


@dataclass(frozen=True, slots=True)
class AskAlone:
    """Published alone, so that only it can be meant by the answer.

    `beside`: on a channel that is lent for it, because it may take the whole timeout. `bare`: as of `HeaderTooLarge`.
    """

    beside: bool = False
    bare: bool = False


@dataclass(frozen=True, slots=True)
class HoldOnLadder:
    """It waits on the ladder and uses no attempt; `decision.hold` parks it where the grace of its cause is over.

    `steps`: how far up the ladder; 0 where it was not sent.
    """

    cause: Cause
    steps: int = 1


@dataclass(frozen=True, slots=True)
class ParkNow:
    """Into parking: no waiting helps, or it has waited for the whole grace where nothing may overtake it."""

    cause: Cause


@dataclass(frozen=True, slots=True)
class BackInLine:
    """At its place in the line of its relay, which parks it where its source deletes it at one of its next returns."""


@dataclass(frozen=True, slots=True)
class KeepForOwnQueue:
    """It stays unacked until the queue of ours takes letters again; `why` is told, "": nothing new."""

    why: str = ""


@dataclass(frozen=True, slots=True)
class GiveBack:
    """It returns to a queue of ours, where that may happen any number of times; `why`: as metrics name it."""

    why: str


@dataclass(frozen=True, slots=True)
class QuarantineRaw:
    """Into quarantine as it came, alone on its channel."""

    cause: str


@dataclass(frozen=True, slots=True)
class MoveNatively:
    """Nobody can publish it. Rejected, and so moved into quarantine by its queue's own dead-letter exchange."""

    why: str


@dataclass(frozen=True, slots=True)
class StayStuck:
    """It can neither be published nor surely be rejected: readiness says so, and it is given back after a while."""

    why: str
    back_after_s: float = BACK_MS / 1000


@dataclass(frozen=True, slots=True)
class LeaveSourceAlone:
    """It stays in a queue of somebody else, of which nothing more is taken before the router starts anew."""

    why: str


NextStep = (
    TryAgain
    | AskAlone
    | HoldOnLadder
    | ParkNow
    | BackInLine
    | KeepForOwnQueue
    | GiveBack
    | QuarantineRaw
    | MoveNatively
    | StayStuck
    | LeaveSourceAlone
)


class Learned(NamedTuple):
    """What is remembered of it, whatever the next step is.

    `why`: the broker's words, "" where it had none, None where nothing new was said. `refused`: it was sent once more
    and not confirmed. `forget`: the resource is looked for again before the next letter. `full`: the target gets
    less. `silent`: it rests. `forbidden`: publishes to its exchange go alone. `missing`: the target of this letter,
    which nothing overtakes, is missing or is not; None where that is not known. `pause_s`: the target rests so long.
    """

    why: str | None = None
    refused: bool = False
    forget: bool = False
    full: bool = False
    silent: bool = False
    forbidden: bool = False
    missing: bool | None = None
    pause_s: float = 0.0


NOTHING: Final = Learned()


class AfterRefusal(NamedTuple):
    """The next step, and what is remembered."""

    step: NextStep
    learned: Learned = NOTHING
