"""What is done next about a letter whose copy did not arrive: each case in words, then what holds in all of them."""

from dataclasses import replace
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.core.backoff import ladder_elapsed_ms
from dlx_router.core.decision import GRACED, hold
from dlx_router.core.next_step import (
    NOTHING,
    AskAlone,
    BackInLine,
    GiveBack,
    HoldOnLadder,
    KeepForOwnQueue,
    Learned,
    LeaveSourceAlone,
    MoveNatively,
    NextStep,
    ParkNow,
    QuarantineRaw,
    StayStuck,
    TryAgain,
)
from dlx_router.core.outcome import Hold, Park
from dlx_router.core.refusal import (
    IN_ORDER_MOST,
    SEVERAL_MOST,
    SINGLE_MOST,
    BrokerAnswer,
    CopyUnwritable,
    HeaderTooLarge,
    InDoubt,
    NotTaken,
    PublishClosedChannel,
    RefusalFacts,
    RelayLine,
    ResourceRefused,
    SourceKind,
    after,
)
from dlx_router.core.words import Cause, State
from tests.core.core_samples import hard_law, law, letter

PLAIN: Final = RefusalFacts(SourceKind.ATTACHED, grace_ms=30_000)  # from a queue of somebody else, to one of somebody
SEVERAL: Final = PLAIN._replace(most=SEVERAL_MOST)
OWN: Final = PLAIN._replace(to_own=True)
RAW: Final = OWN._replace(raw=True)
FIFO: Final = PLAIN._replace(source=SourceKind.CAUGHT, in_order=True)
ALIVE: Final = PLAIN._replace(line=RelayLine())
LATE: Final = ALIVE._replace(unacked_ms=30_000)
N, GONE = NotTaken, PublishClosedChannel(404, "no exchange")
TOO_LARGE: Final = PublishClosedChannel(406, "message size 20 is larger than 10")
WRONG: Final = PublishClosedChannel(406, "user_id wrong")
FULL: Final = Learned(why="", refused=True, full=True)
SILENT: Final = "no confirm came in time"


def _from(facts: RefusalFacts, source: SourceKind) -> RefusalFacts:
    return facts._replace(source=source)


# fmt: off
ASKED: Final[list[tuple[str, BrokerAnswer, RefusalFacts, NextStep, Learned]]] = [
    ("a first nack: its queue may be gone by then", N.NACKED, PLAIN, TryAgain(0.2), Learned(refused=True, full=True)),
    ("a second nack", N.NACKED, PLAIN._replace(refusals=1), HoldOnLadder(Cause.TARGET_REFUSED), FULL),
    ("a second nack, and each may leave a copy", N.NACKED, SEVERAL._replace(refusals=1),
     HoldOnLadder(Cause.TARGET_REFUSED, 2), FULL),
    ("the last nack", N.NACKED, SEVERAL._replace(refusals=4), ParkNow(Cause.TARGET_REFUSED), FULL),
    ("the last nack of one queue", N.NACKED, PLAIN._replace(refusals=19), ParkNow(Cause.TARGET_REFUSED), FULL),
    ("a nack of a queue that dead-letters what it refuses", N.NACKED, PLAIN._replace(most=1),
     ParkNow(Cause.TARGET_REFUSED), FULL),
    ("silent for the last time", N.TIMEOUT, SEVERAL._replace(refusals=4), ParkNow(Cause.TARGET_REFUSED),
     Learned(why=SILENT, refused=True, silent=True)),
    ("no confirm in time", N.TIMEOUT, PLAIN, HoldOnLadder(Cause.TARGET_REFUSED),
     Learned(why=SILENT, refused=True, full=True, silent=True)),
    ("returned: looked for again before the next", N.RETURNED, PLAIN, HoldOnLadder(Cause.UNROUTABLE),
     Learned(why="", forget=True)),
    ("not sent, because its target rests", N.RESTS, PLAIN, HoldOnLadder(Cause.TARGET_REFUSED, 0), NOTHING),
    ("no such exchange", GONE, PLAIN, HoldOnLadder(Cause.MISSING_EXCHANGE),
     Learned(why="404 no exchange", forget=True)),
    ("no right", PublishClosedChannel(403, "refused"), PLAIN, HoldOnLadder(Cause.FORBIDDEN),
     Learned(why="403 refused", forget=True, forbidden=True)),
    ("the letter is not as AMQP wants it", WRONG, PLAIN, QuarantineRaw("malformed: 406 user_id wrong"), NOTHING),
    ("closed for a reason that nobody foresaw", PublishClosedChannel(405, "locked"), PLAIN,
     QuarantineRaw("malformed: 405 locked"), NOTHING),
    ("what it needs is not there", ResourceRefused(Cause.UNROUTABLE, "no queue"), PLAIN,
     HoldOnLadder(Cause.UNROUTABLE), Learned(why="no queue")),
    ("what it needs can never be there", ResourceRefused(Cause.FORBIDDEN, "ours", final=True), PLAIN,
     ParkNow(Cause.FORBIDDEN), Learned(why="ours")),
    # a queue of ours
    ("ours nacks once", N.NACKED, OWN, TryAgain(0.2), Learned(refused=True)),
    ("ours nacks twice", N.NACKED, OWN._replace(refusals=1), KeepForOwnQueue("target_refused"),
     Learned(why="", refused=True)),
    ("ours is silent, and never rests", N.TIMEOUT, OWN, KeepForOwnQueue(SILENT), Learned(why=SILENT, refused=True)),
    ("ours is gone", N.RETURNED, OWN, KeepForOwnQueue("unroutable"), Learned(why="", refused=True, forget=True)),
    ("the exchange of a rung is gone", GONE, OWN, KeepForOwnQueue("404 no exchange"),
     Learned(why="404 no exchange", refused=True, forget=True)),
    ("a rung cannot be made", ResourceRefused(Cause.FORBIDDEN, "no right", final=True), OWN,
     KeepForOwnQueue("no right"), Learned(why="no right", refused=True)),
    ("ours refused others", ResourceRefused(Cause.TARGET_REFUSED, "full"), OWN, KeepForOwnQueue("full"),
     Learned(why="full", refused=True)),
    ("kept, and a return may be its last", N.KEPT, OWN._replace(unacked_ms=1e9), KeepForOwnQueue(), NOTHING),
    ("kept, from a queue of ours", N.KEPT, _from(OWN, SourceKind.UNCAUGHT)._replace(unacked_ms=45_000),
     KeepForOwnQueue(), NOTHING),
    ("kept for long, from a queue of ours", N.KEPT, _from(OWN, SourceKind.UNCAUGHT)._replace(unacked_ms=45_001),
     GiveBack("own_queue"), NOTHING),
    # in order
    ("in order, and the target is missing", N.RETURNED, FIFO, TryAgain(1.0),
     Learned(why="", forget=True, missing=True)),
    ("in order, and the target is missing for as long as may be", GONE, FIFO._replace(missing_ms=30_000),
     ParkNow(Cause.MISSING_EXCHANGE), Learned(why="404 no exchange", forget=True, missing=True)),
    ("in order, and the target is full", N.NACKED, FIFO._replace(missing_ms=1e9, refusals=1), TryAgain(1.0),
     FULL._replace(missing=False, pause_s=2.0)),
    ("in order, and unacked for long", N.NACKED, FIFO._replace(unacked_ms=45_001, refusals=1), GiveBack("fifo"),
     FULL._replace(missing=False, pause_s=2.0)),
    ("in order, unacked for long, but its grace is over", N.RETURNED,
     FIFO._replace(missing_ms=30_000, unacked_ms=50_000), ParkNow(Cause.UNROUTABLE),
     Learned(why="", forget=True, missing=True)),
    ("in order, behind a target that rests", N.RESTS, FIFO, TryAgain(1.0), Learned(missing=False)),
    # alive, in a relay
    ("a relay's target is full", N.NACKED, ALIVE, BackInLine(), Learned(refused=True)),
    ("a relay's target is silent", N.TIMEOUT, ALIVE, BackInLine(), Learned(refused=True, silent=True)),
    ("a relay's target rests", N.RESTS, ALIVE, BackInLine(), NOTHING),
    ("a relay's target is full for 30 s", N.NACKED, LATE, HoldOnLadder(Cause.TARGET_REFUSED), Learned(refused=True)),
    ("a relay's line is full", N.TIMEOUT, ALIVE._replace(line=RelayLine(full=True)),
     HoldOnLadder(Cause.TARGET_REFUSED), Learned(refused=True, silent=True)),
    ("a strict relay waits for its target for longer", N.NACKED, LATE._replace(line=RelayLine(strict=True, full=True)),
     BackInLine(), Learned(refused=True)),
    ("… and not for ever", N.NACKED, LATE._replace(line=RelayLine(strict=True), refusals=99, most=100),
     ParkNow(Cause.TARGET_REFUSED), Learned(why="", refused=True)),
    ("a relay that ends", N.NACKED, LATE._replace(line=RelayLine(over=True)), BackInLine(), Learned(refused=True)),
    ("a relay's exchange has no route", N.RETURNED, ALIVE, HoldOnLadder(Cause.UNROUTABLE),
     Learned(why="", forget=True)),
    ("what came by a relay is held, and the rung refuses", N.NACKED, ALIVE._replace(to_own=True, refusals=1),
     KeepForOwnQueue("target_refused"), Learned(why="", refused=True)),
    # what cannot be published
    ("its header does not fit, found among others", HeaderTooLarge("big", alone=False), _from(PLAIN, SourceKind.CAUGHT),
     QuarantineRaw("too_large"), NOTHING),
    ("its header does not fit, from somebody else's queue", HeaderTooLarge("big"), PLAIN,
     QuarantineRaw("too_large"), NOTHING),
    ("as it came it does not fit either", HeaderTooLarge("big"), RAW, AskAlone(bare=True), NOTHING),
    ("bare it does not fit either", HeaderTooLarge("big", bare=True), RAW, LeaveSourceAlone("big"), NOTHING),
    ("its header does not fit, from a queue of ours", HeaderTooLarge("big"), _from(PLAIN, SourceKind.CAUGHT),
     MoveNatively("big"), NOTHING),
    ("no bytes for it", CopyUnwritable("short"), PLAIN, QuarantineRaw("malformed: short"), NOTHING),
    ("no bytes for it as it came", CopyUnwritable("short"), _from(RAW, SourceKind.CAUGHT), MoveNatively("short"),
     NOTHING),
    ("larger than the broker takes, from somebody else's queue", TOO_LARGE, PLAIN,
     LeaveSourceAlone("406 message size 20 is larger than 10"), NOTHING),
    ("larger than the broker takes, from a queue of ours", TOO_LARGE, _from(PLAIN, SourceKind.CAUGHT),
     MoveNatively("406 message size 20 is larger than 10"), NOTHING),
    ("larger than the broker takes, and rejecting might drop it", TOO_LARGE, _from(PLAIN, SourceKind.UNCAUGHT),
     StayStuck("406 message size 20 is larger than 10", 45.0), NOTHING),
    ("unpublishable, from a queue without a dead-letter exchange", WRONG, _from(RAW, SourceKind.RETIRED),
     StayStuck("406 user_id wrong", 45.0), NOTHING),
    ("its header does not fit, from a queue without a dead-letter exchange", HeaderTooLarge("big"),
     _from(RAW, SourceKind.RETIRED), AskAlone(bare=True), NOTHING),
    ("its header does not fit without what the broker wrote either", HeaderTooLarge("big", bare=True),
     _from(RAW, SourceKind.RETIRED), StayStuck("big", 45.0), NOTHING),
    ("quarantine is gone", GONE, RAW, KeepForOwnQueue("404 no exchange"), Learned(why="404 no exchange", refused=True)),
    # in doubt
    ("in doubt", InDoubt(), PLAIN, AskAlone(), NOTHING),
    ("in doubt, and its target refused others", InDoubt(was_silent=True), PLAIN._replace(rests=True),
     HoldOnLadder(Cause.TARGET_REFUSED, 0), NOTHING),
    ("in doubt, in a relay, and its target was silent just now", InDoubt(), ALIVE._replace(rests=True), BackInLine(),
     NOTHING),
    ("in doubt, and ours refused others", InDoubt(refused="full"), OWN, KeepForOwnQueue("full"),
     Learned(why="full", refused=True)),
    ("in doubt, and its target was silent for long", InDoubt(was_silent=True), PLAIN, AskAlone(beside=True), NOTHING),
    ("in doubt, behind one that nobody answered", InDoubt(in_time=False), PLAIN, HoldOnLadder(Cause.TARGET_REFUSED, 0),
     NOTHING),
    ("in doubt too often", InDoubt(), SEVERAL._replace(refusals=5), ParkNow(Cause.TARGET_REFUSED), NOTHING),
    ("in doubt, behind one that nobody answered, but to ours", InDoubt(in_time=False), OWN, AskAlone(), NOTHING),
]
# fmt: on


@pytest.mark.parametrize(
    ("answer", "facts", "step", "learned"), [row[1:] for row in ASKED], ids=[row[0] for row in ASKED]
)
def test_each_case_has_its_next_step(
    answer: BrokerAnswer, facts: RefusalFacts, step: NextStep, learned: Learned
) -> None:
    assert after(answer, facts) == (step, learned)


# Laws

texts = st.sampled_from(["", "no", "message size 20 is larger than 10"])
broker_answers = st.one_of(
    st.sampled_from(NotTaken),
    st.builds(PublishClosedChannel, st.sampled_from([0, 311, 312, 320, 403, 404, 405, 406, 501, 504, 541]), texts),
    st.builds(HeaderTooLarge, texts, st.booleans(), st.booleans()),
    st.builds(CopyUnwritable, texts),
    st.builds(ResourceRefused, st.sampled_from(Cause), texts, st.booleans()),
    st.builds(InDoubt, texts, st.booleans(), st.booleans()),
)
spans = st.sampled_from([0, 1, 29_999, 30_000, 30_001, 45_000, 45_001, 1e9])
facts_of = st.builds(
    RefusalFacts,
    st.sampled_from(SourceKind),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.none() | st.builds(RelayLine, st.booleans(), st.booleans(), st.booleans()),
    st.integers(0, 101),
    st.sampled_from([1, SEVERAL_MOST, SINGLE_MOST, IN_ORDER_MOST]),
    st.booleans(),
    spans,
    spans,
    spans,
)


@hard_law
@given(broker_answers, facts_of)
def test_there_is_a_step_for_every_answer_about_every_letter(answer: BrokerAnswer, facts: RefusalFacts) -> None:
    step, learned = after(answer, facts)
    assert isinstance(step, NextStep)
    assert isinstance(learned, Learned)


@hard_law
@given(broker_answers, facts_of)
def test_no_refusal_drops_a_letter(answer: BrokerAnswer, facts: RefusalFacts) -> None:
    """Rejected only where that is sure to be caught; returned only to where each return is free; else it is kept."""
    match after(answer, facts).step:
        case MoveNatively():
            assert facts.source is SourceKind.CAUGHT
        case GiveBack():
            assert facts.source.is_ours
            assert facts.unacked_ms > 45_000
        case StayStuck(back_after_s=back_s):
            assert facts.source in {SourceKind.UNCAUGHT, SourceKind.RETIRED}
            assert back_s > 0
        case LeaveSourceAlone():
            assert facts.source is SourceKind.ATTACHED


@hard_law
@given(broker_answers, facts_of)
def test_a_letter_to_a_queue_of_ours_is_neither_held_nor_parked_nor_returned_to_others(
    answer: BrokerAnswer, facts: RefusalFacts
) -> None:
    facts = facts._replace(to_own=True)
    step, learned = after(answer, facts)
    assert not isinstance(step, HoldOnLadder | ParkNow | BackInLine)
    assert not isinstance(step, GiveBack) or facts.source.is_ours
    assert not learned.full
    assert not learned.silent


@hard_law
@given(broker_answers, facts_of)
def test_what_is_in_order_is_never_overtaken(answer: BrokerAnswer, facts: RefusalFacts) -> None:
    step = after(answer, facts._replace(in_order=True)).step
    assert not isinstance(step, HoldOnLadder)


@hard_law
@given(st.sampled_from(NotTaken), facts_of)
def test_a_full_or_silent_target_is_never_overtaken_in_a_strict_relay(answer: NotTaken, facts: RefusalFacts) -> None:
    facts = facts._replace(line=RelayLine(strict=True), to_own=False, raw=False, refusals=0, most=IN_ORDER_MOST)
    step = after(answer, facts).step
    assert isinstance(step, BackInLine) or answer in {NotTaken.RETURNED, NotTaken.KEPT}


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (NotTaken.RETURNED, Cause.UNROUTABLE),
        (PublishClosedChannel(404, "no exchange"), Cause.MISSING_EXCHANGE),
        (PublishClosedChannel(403, "no right"), Cause.FORBIDDEN),
        (ResourceRefused(Cause.MISSING_EXCHANGE, "no exchange"), Cause.MISSING_EXCHANGE),
    ],
)
def test_what_has_no_place_to_go_leaves_the_line_of_a_strict_relay_too(answer: BrokerAnswer, cause: Cause) -> None:
    """As docs/modes.md says: it is held and loses its place, or it would block all others for ever."""
    strict = RefusalFacts(SourceKind.ATTACHED, line=RelayLine(strict=True))
    assert after(answer, strict).step == HoldOnLadder(cause)
    assert after(NotTaken.NACKED, strict).step == BackInLine()


@hard_law
@given(broker_answers, facts_of)
def test_parked_is_only_what_is_final_or_graced_out(answer: BrokerAnswer, facts: RefusalFacts) -> None:
    step = after(answer, facts).step
    if isinstance(step, ParkNow) and step.cause is Cause.TARGET_REFUSED:
        assert facts.refusals + 1 >= facts.most or isinstance(answer, ResourceRefused)
    elif isinstance(step, ParkNow) and not (isinstance(answer, ResourceRefused) and answer.final):
        assert step.cause in GRACED
        assert facts.in_order
        assert facts.missing_ms >= facts.grace_ms


@law
@given(broker_answers, facts_of, st.integers(0, 12), st.sampled_from([0, 5_000, 30_000, 600_000]))
def test_the_ladder_parks_by_the_same_causes(
    answer: BrokerAnswer, facts: RefusalFacts, tries: int, grace_ms: int
) -> None:
    step = after(answer, facts).step
    if isinstance(step, HoldOnLadder):
        held = letter(state=State.HELD, cause=step.cause, tries=tries, fresh=())
        ends = hold(held, step.cause, 1, 0, grace_ms=grace_ms, target="t")
        assert isinstance(ends, Park) == (step.cause in GRACED and ladder_elapsed_ms(tries) >= grace_ms)


@hard_law
@given(broker_answers, facts_of)
def test_what_is_raw_is_not_sent_to_quarantine_a_second_time(answer: BrokerAnswer, facts: RefusalFacts) -> None:
    assert not isinstance(after(answer, facts._replace(raw=True)).step, QuarantineRaw)


@law
@given(texts, facts_of)
def test_what_does_not_fit_comes_to_an_end(text: str, facts: RefusalFacts) -> None:
    """Each try is barer than the one before: never more than three."""
    answer = HeaderTooLarge(text, alone=False)
    for _ in range(3):
        match after(answer, facts).step:
            case QuarantineRaw():
                facts, answer = facts._replace(raw=True, to_own=True), HeaderTooLarge(text)
            case AskAlone(bare=True):
                answer = HeaderTooLarge(text, bare=True)
            case step:
                assert isinstance(step, MoveNatively | StayStuck | LeaveSourceAlone)
                return
    raise AssertionError(answer)


@law
@given(facts_of, broker_answers)
def test_nobody_waits_unacked_for_an_answer_that_is_not_to_be_had(facts: RefusalFacts, answer: BrokerAnswer) -> None:
    """In order too: after 45 s it is parked, given back or kept, but not tried again by itself."""
    facts = facts._replace(unacked_ms=45_001, in_order=True, source=SourceKind.CAUGHT, refusals=1)
    assert not isinstance(after(answer, facts).step, TryAgain)


# Copies: how many publishes of one letter there are to a target that never confirms one

TARGETS: Final = {
    "one queue": (PLAIN, SINGLE_MOST),
    "an exchange, of whose queues one is full": (SEVERAL, SEVERAL_MOST),
    "a queue known to dead-letter what it refuses": (PLAIN._replace(most=1), 1),
    "one queue, in order": (FIFO._replace(most=IN_ORDER_MOST), IN_ORDER_MOST),
    "an exchange, in order": (FIFO._replace(most=SEVERAL_MOST), SEVERAL_MOST),
    "one queue, by a relay": (ALIVE, SINGLE_MOST),
    "one queue, by a strict relay": (ALIVE._replace(line=RelayLine(strict=True), most=IN_ORDER_MOST), IN_ORDER_MOST),
    "an exchange, by a strict relay": (ALIVE._replace(line=RelayLine(strict=True), most=SEVERAL_MOST), SEVERAL_MOST),
}
REFUSALS: Final[dict[str, list[BrokerAnswer]]] = {
    "nacked": [N.NACKED],
    "silent": [N.TIMEOUT],
    "its channel closes": [InDoubt()],
    "nacked, then not sent": [N.NACKED, N.RESTS],
    "silent, and its channel closes": [InDoubt(), N.TIMEOUT],
}


def _publishes(facts: RefusalFacts, answers: list[BrokerAnswer]) -> int | None:
    """How many publishes there were when it was parked; None if it was not."""
    sent = waits = 0
    held = letter(state=State.HELD, cause=Cause.TARGET_REFUSED, fresh=())
    for answer in answers:
        now = answer not in {N.RESTS, N.KEPT}
        sent += now
        waits += isinstance(answer, InDoubt)  # as a worker counts it when the channel is closed
        step, learned = after(answer, facts._replace(refusals=held.refusals + waits))
        waits += learned.refused
        if isinstance(step, ParkNow):
            return sent
        if isinstance(step, HoldOnLadder):
            refusals = held.refusals + waits
            done = hold(held, step.cause, 1, 0, grace_ms=10**9, target="t", steps=step.steps, refusals=refusals)
            assert isinstance(done, Hold)
            held, waits = replace(held, tries=done.tries, refusals=done.refusals, cause=done.cause), 0
    return None


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_letter_that_a_target_never_confirms_is_parked_after_so_many_publishes(refusal: str, target: str) -> None:
    facts, most = TARGETS[target]
    assert _publishes(facts, REFUSALS[refusal] * 300) == most


@law
@given(
    st.sampled_from([*TARGETS.values()]),
    st.lists(st.sampled_from([N.NACKED, N.TIMEOUT, N.RESTS, InDoubt()]), min_size=1),
)
def test_copies_never_exceed_the_bound_that_the_limits_state(
    target: tuple[RefusalFacts, int], answers: list[BrokerAnswer]
) -> None:
    facts, most = target
    assert _publishes(facts, answers * 100) == (None if {*answers} == {N.RESTS} else most)
