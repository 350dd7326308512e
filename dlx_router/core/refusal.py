"""What is done next about a letter whose copy did not arrive: one step for every answer, and never a drop.

Asked only where something failed, and only about a letter whose consumer is there: what came by a consumer that is gone
the broker has again. Where a compiled route was taken, the letter is judged in full first, and then this is asked.
"""

from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Final, NamedTuple

from dlx_router.core.decision import GRACED
from dlx_router.core.next_step import (
    BACK_MS,
    NOTHING,
    AfterRefusal,
    AskAlone,
    BackInLine,
    GiveBack,
    HoldOnLadder,
    KeepForOwnQueue,
    Learned,
    LeaveSourceAlone,
    MoveNatively,
    ParkNow,
    QuarantineRaw,
    StayStuck,
    TryAgain,
)
from dlx_router.core.words import Cause

NACK_PAUSE_S: Final = 0.2
INSIST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 60.0
SINGLE_MOST: Final = 20  # publishes of one letter to one queue that does not take it
IN_ORDER_MOST: Final = 100  # … where nothing may overtake it
SEVERAL_MOST: Final = 5  # … where each may leave a copy: an exchange may lead to queues that did take it
SEVERAL_STEPS: Final = 2
INSIST_MS: Final = 45_000  # no letter stays unacked over a minute
PATIENT_MS: Final = 30_000
FIFO: Final = "fifo"
OWN_QUEUE: Final = "own_queue"
NO_CONFIRM: Final = "no confirm came in time"
MISSING: Final = {404: Cause.MISSING_EXCHANGE, 403: Cause.FORBIDDEN}
PRECONDITION_FAILED: Final = 406
LARGER: Final = "larger than"  # 406: "message size … is larger than …", in any version


class NotTaken(StrEnum):
    """Why its copy is not where it should be; in the publisher's words, where those say all."""

    NACKED = "nacked"  # basic.nack: the target is full, or was deleted meanwhile
    RETURNED = "returned"  # basic.return: the exchange leads to no queue
    TIMEOUT = "timeout"  # no confirm came in time
    RESTS = "rests"  # not sent: its target refused or was silent just now, or nobody is free to ask it
    KEPT = "kept"  # not sent: it is kept for a queue of ours that refuses still


@dataclass(frozen=True, slots=True)
class PublishClosedChannel:
    """The broker closed the channel for this publish alone."""

    code: int
    text: str


@dataclass(frozen=True, slots=True)
class HeaderTooLarge:
    """Nothing was sent, because its header fills more than a frame.

    `alone`: on a channel of its own. `bare`: without what the broker wrote on top when it died.
    """

    text: str
    alone: bool = True
    bare: bool = False


@dataclass(frozen=True, slots=True)
class CopyUnwritable:
    """Nothing was sent, because AMQP has no bytes for it."""

    text: str


@dataclass(frozen=True, slots=True)
class ResourceRefused:
    """Not sent, because what it needs is not there, or is a queue of ours that refused others (`TARGET_REFUSED`).

    `final`: no waiting helps.
    """

    cause: Cause
    text: str
    final: bool = False


@dataclass(frozen=True, slots=True)
class InDoubt:
    """The channel closed with others in flight, and nobody knows whose fault it was.

    `refused`: why the queue of ours that it goes to refused others, "" where it did not. `was_silent`: its target did
    not answer, and has rested for long enough. `in_time`: every one that was asked alone before it was answered.
    """

    refused: str = ""
    was_silent: bool = False
    in_time: bool = True


BrokerAnswer = NotTaken | ResourceRefused | PublishClosedChannel | HeaderTooLarge | CopyUnwritable | InDoubt


class SourceKind(Enum):
    """What rejecting a letter does in the queue that it was taken from."""

    ATTACHED = "attached"  # somebody else's: it may be dropped, and each return may count
    CAUGHT = "caught"  # ours: it surely goes to quarantine
    UNCAUGHT = "uncaught"  # ours: nobody knows where it goes
    RETIRED = "retired"  # ours: it is dropped, because that queue has no dead-letter exchange

    @property
    def is_ours(self) -> bool:
        """Whether a letter may be returned there any number of times."""
        return self is not SourceKind.ATTACHED


class RelayLine(NamedTuple):
    """The line of a relay, to which a living message can go back.

    `strict`: nothing may overtake. `full`: its bytes are as many as may wait. `over`: nothing more is sent from it.
    """

    strict: bool = False
    full: bool = False
    over: bool = False


class RefusalFacts(NamedTuple):
    """What is known of a letter, its source and its target.

    `to_own`: its copy goes to a rung, to parking or to quarantine. `raw`: it goes to quarantine as it came. `in_order`:
    its source is our queue in which nothing overtakes. `line`: it lives, and this is the relay it came by. `refusals`:
    how often it was sent to this target and not confirmed, in earlier waits too. `most`: after so many of them it is
    parked, because each may have left a copy. `rests`: its target refused or was silent just now; of what lives in a
    relay, only silent. `missing_ms`: since its target was first found missing, in the deliveries before this one too;
    only in order.
    """

    source: SourceKind
    to_own: bool = False
    raw: bool = False
    in_order: bool = False
    line: RelayLine | None = None
    refusals: int = 0
    most: int = SINGLE_MOST
    rests: bool = False
    missing_ms: float = 0
    unacked_ms: float = 0
    grace_ms: float = 0

    @property
    def stays_ours(self) -> bool:
        """Whether its copy goes to a queue of ours, which must never refuse."""
        return self.to_own or self.raw

    @property
    def is_spent(self) -> bool:
        """Return True if this refusal is the last; internal queues are retried without limit."""
        return not self.stays_ours and self.refusals + 1 >= self.most

    @property
    def back(self) -> RelayLine | None:
        """The line that it can go back to."""
        return None if self.stays_ours else self.line


def after(answer: BrokerAnswer, facts: RefusalFacts) -> AfterRefusal:
    """What is done next. Total: it never raises, and no step drops the letter."""
    match answer:
        case NotTaken():
            return _not_taken(answer, facts)
        case ResourceRefused(cause, text, final):
            return _refused(facts, cause, Learned(why=text), final=final)
        case PublishClosedChannel(code, text):
            return _closed(code, text, facts)
        case HeaderTooLarge():
            return _too_large(answer, facts)
        case CopyUnwritable(text):
            return _unpublishable(text, facts) if facts.raw else _malformed(text)
        case InDoubt():
            return _doubted(answer, facts)


def _not_taken(why: NotTaken, facts: RefusalFacts) -> AfterRefusal:
    match why:
        case NotTaken.NACKED:
            return _nacked(facts)
        case NotTaken.RETURNED:
            return _refused(facts, Cause.UNROUTABLE, Learned(why="", forget=True))
        case NotTaken.TIMEOUT if facts.back is not None and not facts.is_spent:
            return _line_waits(facts, facts.back, Learned(refused=True, silent=True))
        case NotTaken.TIMEOUT:
            silent = Learned(why=NO_CONFIRM, refused=True, silent=not facts.stays_ours)
            return _refused(facts, Cause.TARGET_REFUSED, silent, final=facts.is_spent)
        case NotTaken.RESTS:
            return _spared(facts)
        case NotTaken.KEPT:
            return _kept(facts)


def _nacked(facts: RefusalFacts) -> AfterRefusal:
    """Asked a second time soon, because its queue may be gone by then; a relay asks in order.

    A nack does not mean that nobody has it: other queues of the exchange may, and one with `reject-publish-dlx` has
    dead-lettered it. So each counts, and the last one parks.
    """
    if facts.is_spent:
        return AfterRefusal(ParkNow(Cause.TARGET_REFUSED), Learned(why="", refused=True, full=facts.line is None))
    if facts.back is not None:
        return _line_waits(facts, facts.back, Learned(refused=True))
    if facts.refusals == 0:
        return AfterRefusal(TryAgain(NACK_PAUSE_S), Learned(refused=True, full=not facts.stays_ours))
    return _refused(facts, Cause.TARGET_REFUSED, Learned(why="", refused=True))


def _kept(facts: RefusalFacts) -> AfterRefusal:
    """A return may be a letter's last, but in a queue of ours."""
    is_back = facts.source.is_ours and facts.unacked_ms > BACK_MS
    return AfterRefusal(GiveBack(OWN_QUEUE) if is_back else KeepForOwnQueue())


def _refused(facts: RefusalFacts, cause: Cause, learned: Learned, *, final: bool = False) -> AfterRefusal:
    """A target that is full, gone or forbidden; our own queues must never be."""
    if facts.stays_ours:
        return AfterRefusal(KeepForOwnQueue(learned.why or cause), learned._replace(refused=True))
    if final:
        return AfterRefusal(ParkNow(cause), learned)
    return _waits(facts, cause, learned._replace(full=cause is Cause.TARGET_REFUSED))


def _spared(facts: RefusalFacts) -> AfterRefusal:
    """It is not sent to a target that rests. Queues of ours never rest; what refuses there is kept."""
    if facts.stays_ours:
        return _refused(facts, Cause.TARGET_REFUSED, NOTHING)
    if facts.back is not None:
        return _line_waits(facts, facts.back, NOTHING)
    return _waits(facts, Cause.TARGET_REFUSED, NOTHING)


def _waits(facts: RefusalFacts, cause: Cause, learned: Learned) -> AfterRefusal:
    """On the ladder. In order nothing overtakes: tried each second, parked where its target is missing for too long.

    What was not sent climbs no step. Where a publish may leave copies the steps are longer.
    """
    missing, several = cause in GRACED, facts.most <= SEVERAL_MOST
    if not facts.in_order:
        steps = 1 if missing or not several else SEVERAL_STEPS
        return AfterRefusal(HoldOnLadder(cause, steps if missing or learned.refused else 0), learned)
    learned = learned._replace(missing=missing)
    if learned.full and facts.refusals:
        learned = learned._replace(pause_s=min((4.0 if several else 2.0) ** facts.refusals, LONGEST_PAUSE_S))
    if missing and facts.missing_ms >= facts.grace_ms:
        return AfterRefusal(ParkNow(cause), learned)
    if facts.unacked_ms > INSIST_MS and facts.source.is_ours:
        return AfterRefusal(GiveBack(FIFO), learned)
    return AfterRefusal(TryAgain(INSIST_PAUSE_S), learned)


def _line_waits(facts: RefusalFacts, line: RelayLine, learned: Learned) -> AfterRefusal:
    """Back to its place in the line; but nobody fills our memory, or waits unacked for ever."""
    is_patient = facts.unacked_ms < PATIENT_MS and not line.full
    if line.strict or line.over or is_patient:
        return AfterRefusal(BackInLine(), learned)
    return _waits(facts, Cause.TARGET_REFUSED, learned)


def _closed(code: int, text: str, facts: RefusalFacts) -> AfterRefusal:
    """It alone was in flight, so it is the culprit; 406 is the letter's own fault."""
    reason = f"{code} {text}"
    if code == PRECONDITION_FAILED and (facts.raw or LARGER in text):
        return _unpublishable(reason, facts)
    if facts.raw:
        return _refused(facts, Cause.TARGET_REFUSED, Learned(why=reason))
    if code in MISSING:
        forbidden = MISSING[code] is Cause.FORBIDDEN and not facts.stays_ours
        return _refused(facts, MISSING[code], Learned(why=reason, forget=True, forbidden=forbidden))
    return _malformed(reason)


def _too_large(answer: HeaderTooLarge, facts: RefusalFacts) -> AfterRefusal:
    """Mostly by what the broker wrote on top when it died: where nobody else can move it, it is tried without that."""
    if not answer.alone and not facts.raw:
        return AfterRefusal(QuarantineRaw(Cause.TOO_LARGE))
    if answer.bare or facts.source in {SourceKind.CAUGHT, SourceKind.UNCAUGHT}:
        return _unpublishable(answer.text, facts)
    return AfterRefusal(AskAlone(bare=True) if facts.raw else QuarantineRaw(Cause.TOO_LARGE))


def _malformed(why: str) -> AfterRefusal:
    return AfterRefusal(QuarantineRaw(f"{Cause.MALFORMED}: {why}"))


def _unpublishable(why: str, facts: RefusalFacts) -> AfterRefusal:
    """Nobody can publish it: the broker moves it unchecked, where that is sure not to drop it."""
    match facts.source:
        case SourceKind.ATTACHED:
            return AfterRefusal(LeaveSourceAlone(why))
        case SourceKind.UNCAUGHT | SourceKind.RETIRED:
            return AfterRefusal(StayStuck(why))
        case SourceKind.CAUGHT:
            return AfterRefusal(MoveNatively(why))


def _doubted(answer: InDoubt, facts: RefusalFacts) -> AfterRefusal:
    """One after the other; behind one confirm that did not come, others' targets are spared."""
    if not facts.stays_ours and facts.refusals >= facts.most:
        return AfterRefusal(ParkNow(Cause.TARGET_REFUSED))
    if facts.rests:
        return _spared(facts)
    if answer.refused:
        return _refused(facts, Cause.TARGET_REFUSED, Learned(why=answer.refused))
    if answer.was_silent:
        return AfterRefusal(AskAlone(beside=True))
    return AfterRefusal(AskAlone()) if answer.in_time or facts.stays_ours else _spared(facts)
