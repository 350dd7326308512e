"""The whole way through a router that fails in every way: decisions, publications, confirms and acks, against a model.

Conservation: at each moment every letter lies in a queue, unacknowledged with the router, or was consumed. And a source
is acked only after the broker has taken a copy. Duplicates are allowed; they are told from one another by nothing.
"""
# ruff: noqa: FBT001 - machines pass flags

from dataclasses import dataclass, replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from dlx_router.core.arrival import read
from dlx_router.core.decision import Release, decide, hold, release
from dlx_router.core.letter import Arrival, Letter
from dlx_router.core.outcome import Decision, Discard, Hold, Park, Retry
from dlx_router.core.publication import record_of, to_return
from dlx_router.core.record import AT_REST_BYTES, Record, encode
from dlx_router.core.remembered import decode
from dlx_router.core.settlement import Acks, Confirms
from dlx_router.core.words import Cause
from tests.core.core_brokers import INBOX, RELEASE, RETURN, RUNG, Message, Version
from tests.core.core_samples import CONTENT, KEY, effective, facts, hard_law, is_own
from tests.support.thoroughness import THOROUGH

WORK, TARGET, PARKING = "work", "target", "parking"
QUEUES = (WORK, INBOX, RUNG, RELEASE, TARGET, PARKING)
SOURCES = (INBOX, RELEASE)
ATTEMPTS = 2
POLICY = effective(max_delivery_attempts=ATTEMPTS, redelivery_delay=1000, dead_letter_exchange=TARGET)


@dataclass(frozen=True)
class Copy:
    """One copy of letter `number` in some queue."""

    number: int
    message: Message
    record: Record | None = None

    def dies(self, version: Version, queue: str, reason: str, time_s: int, dlx: str) -> "Copy":
        message = replace(self.message)
        message.dies(version, queue, reason, time_s, dlx)
        return replace(self, message=message)


@dataclass
class Job:
    """A delivery that is being settled: its tag at its source, and the copy that goes to `target`."""

    source: str
    tag: int
    letter: Letter
    copy: Copy
    target: str


class Routing(RuleBasedStateMachine):
    """A broker's queues, a consumer of `work`, and a router made of the core; faults may happen between any two."""

    def __init__(self) -> None:
        super().__init__()
        self.queues: dict[str, list[Copy]] = {queue: [] for queue in QUEUES}
        self.made = 0
        self.consumed: set[int] = set()
        self.clock_s = 1_700_000_000
        self.tag = 0
        self._session()

    def _session(self) -> None:
        self.unacked: dict[tuple[str, int], Copy] = {}
        self.acks = {source: Acks() for source in SOURCES}
        self.confirms: Confirms[Job] = Confirms()
        self.wire: dict[int, Job] = {}  # published, not yet seen by the broker
        self.handled: dict[int, bool] = {}  # seen: number → acked or nacked, not yet told
        self.taken: set[tuple[str, int]] = set()  # of these deliveries the broker has a copy elsewhere

    # -- producers, consumers, time --------------------------------------------------------------------------------

    @rule(count=st.integers(1, 3))
    def produce(self, count: int) -> None:
        for _ in range(count):
            self.made += 1
            self.queues[WORK].append(Copy(self.made, Message("shop", ("order.created",))))

    @initialize(version=st.sampled_from(["3.10", "4"]))
    def a_backlog(self, version: Version) -> None:
        self.produce(4)
        self.fail(version, "rejected", 4)

    @precondition(lambda self: self.queues[WORK])
    @rule(
        version=st.sampled_from(["3.10", "4"]),
        reason=st.sampled_from(["rejected", "rejected", "expired"]),
        count=st.integers(1, 3),
    )
    def fail(self, version: Version, reason: str, count: int) -> None:
        for copy in self.queues[WORK][:count]:
            self.queues[INBOX].append(copy.dies(version, WORK, reason, self.clock_s, INBOX))
        del self.queues[WORK][:count]

    @precondition(lambda self: self.queues[WORK])
    @rule()
    def succeed(self) -> None:
        self.consumed.add(self.queues[WORK].pop(0).number)

    @precondition(lambda self: self.queues[RUNG])
    @rule(version=st.sampled_from(["3.10", "4"]), passed_s=st.sampled_from([0, 1, 400]))
    def expire(self, version: Version, passed_s: int) -> None:
        self.clock_s += passed_s
        copy = self.queues[RUNG].pop(0)
        self.queues[RELEASE].append(copy.dies(version, RUNG, "expired", self.clock_s, RELEASE))

    # -- the router ------------------------------------------------------------------------------------------------

    @precondition(lambda self: any(self.queues[source] for source in SOURCES))
    @rule(count=st.integers(1, 4))
    def deliver(self, count: int) -> None:
        for source in SOURCES:
            copies = self.queues[source][:count]
            del self.queues[source][:count]
            for copy in copies:
                self._deliver(source, copy)

    def _deliver(self, source: str, copy: Copy) -> None:
        self.tag += 1
        self.unacked[source, self.tag] = copy
        self.acks[source].delivered(self.tag)
        self._judge(source, self.tag, copy)

    def _judge(self, source: str, tag: int, copy: Copy) -> None:
        letter = self._read(source, copy)
        assert letter.id == f"id-{copy.number}", "one id over all tries"
        if source == RELEASE and copy.record is not None:
            step = release(letter, letter.due_ms - self.clock_s * 1000)
            if step is not Release.JUDGE:
                record = to_return(copy.record, RETURN, f"to:{WORK}").record
                self._publish(Job(source, tag, letter, self._sent(copy, letter, record, RETURN),
                                  WORK if step is Release.RETURN else RUNG))  # fmt: skip
                return
        self._decided(source, tag, copy, letter, decide(letter, POLICY, self.clock_s * 1000, 0.0))

    def _read(self, source: str, copy: Copy) -> Letter:
        shown = copy.message.x_death
        retried = any(is_own(death.exchange) and not is_own(death.queue) for death in shown)
        arrival = Arrival.RELEASE if source == RELEASE else Arrival.INBOX
        delivery = facts(
            shown,
            copy.record,
            arrival=arrival,
            exchange=copy.message.exchange,
            routing_key=copy.message.keys[0],
            native=copy.message.exchange == INBOX or retried,
            now_ms=self.clock_s * 1000,
        )
        return read(delivery, is_own, lambda _queue: f"id-{copy.number}")

    def _decided(self, source: str, tag: int, copy: Copy, letter: Letter, decision: Decision) -> None:
        assert not isinstance(decision, Discard), "only a policy that says so drops"
        record = record_of(letter, decision, CONTENT, policy="all", revision="0" * 12)
        target = {Retry: RUNG, Hold: RUNG, Park: PARKING}.get(type(decision), TARGET)
        self._publish(Job(source, tag, letter, self._sent(copy, letter, record, target), target))

    @staticmethod
    def _sent(copy: Copy, letter: Letter, record: Record, exchange: str) -> Copy:
        """What the broker had recorded is forgotten at a republish; the record goes over the wire."""
        message = Message(exchange, copy.message.keys, sent=letter.history)
        return Copy(copy.number, message, decode(encode(record, KEY, AT_REST_BYTES), KEY))

    def _publish(self, job: Job) -> None:
        self.wire[self.confirms.publish(job)] = job

    # -- the broker answers ----------------------------------------------------------------------------------------

    @precondition(lambda self: self.wire)
    @rule(how=st.lists(st.sampled_from(["take", "take", "take", "return", "nack"]), min_size=1, max_size=4))
    def broker_reads(self, how: list[str]) -> None:
        for number, fate in zip(sorted(self.wire), how, strict=False):
            job = self.wire.pop(number)
            if fate == "take":
                self._take(job)
            elif fate == "return":
                assert self.confirms.returned(number, "no route")
            self.handled[number] = fate != "nack"

    def _take(self, job: Job) -> None:
        self.queues[job.target].append(job.copy)
        self.taken.add((job.source, job.tag))

    @precondition(lambda self: self.handled)
    @rule(data=st.data(), multiple=st.booleans())
    def broker_answers(self, data: Any, multiple: bool) -> None:
        number = data.draw(st.sampled_from(sorted(self.handled)))
        ok = self.handled[number]
        alike = [candidate for candidate, verdict in self.handled.items() if candidate <= number and verdict is ok]
        covered = [candidate for candidate in [*self.wire, *self.handled] if candidate <= number]
        multiple = multiple and sorted(alike) == sorted(covered)
        for answered in alike if multiple else [number]:
            del self.handled[answered]
        for job, returned in self.confirms.answered(number, multiple=multiple):
            self._answered(job, returned or ("" if ok else "nacked"))

    def _answered(self, job: Job, why: str) -> None:
        if not why:
            self.acks[job.source].settle(job.tag)
            return
        copy = self.unacked[job.source, job.tag]
        if job.target in {RUNG, PARKING}:  # our own queues refuse only in trouble: the letter is given back
            self.acks[job.source].gone(job.tag)
            self.queues[job.source].insert(0, self.unacked.pop((job.source, job.tag)))
            return
        cause = Cause.UNROUTABLE if why == "no route" else Cause.TARGET_REFUSED
        now = self.clock_s * 1000
        decision = hold(job.letter, cause, job.letter.base_attempts, now, grace_ms=3000, target=job.target)
        self._decided(job.source, job.tag, copy, job.letter, decision)

    @rule()
    def flush(self) -> None:
        for source, acks in self.acks.items():
            for tag, multiple in acks.flush():
                mine = [key for key in self.unacked if key[0] == source]
                covered = [key for key in mine if key[1] == tag or (multiple and key[1] < tag)]
                assert covered, "an ack of nothing closes the channel"
                assert self.taken.issuperset(covered), "acked before the broker had a copy"
                for key in covered:
                    del self.unacked[key]

    # -- faults ----------------------------------------------------------------------------------------------------

    @rule(data=st.data())
    def publish_channel_closes(self, data: Any) -> None:
        """Some of what was on the wire was taken, nobody knows what; all in doubt is sent again."""
        self._wire_breaks(data)
        doubtful = self.confirms.in_doubt()
        self.handled.clear()
        for job in doubtful:
            self._publish(job)

    @rule(data=st.data())
    def connection_lost(self, data: Any) -> None:
        """Or the router killed: what was not acked is delivered again, in its place."""
        self._wire_breaks(data)
        for (source, _), copy in reversed(self.unacked.items()):
            self.queues[source].insert(0, copy)
        self._session()

    def _wire_breaks(self, data: Any) -> None:
        for job in list(self.wire.values()):
            if data.draw(st.booleans()):
                self._take(job)
        self.wire.clear()

    # -- what holds ------------------------------------------------------------------------------------------------

    @invariant()
    def nothing_is_lost(self) -> None:
        somewhere = {copy.number for held in self.queues.values() for copy in held}
        somewhere |= {copy.number for copy in self.unacked.values()} | self.consumed
        assert somewhere == set(range(1, self.made + 1))

    @invariant()
    def every_dead_letter_says_why(self) -> None:
        for copy in self.queues[TARGET] + self.queues[PARKING]:
            assert copy.record is not None
            assert copy.record.cause
            assert copy.record.reason in {"rejected", "expired"}
            if copy.record.cause == Cause.ATTEMPTS_SPENT:
                assert copy.record.attempts == ATTEMPTS

    @invariant()
    def what_is_settled_was_taken(self) -> None:
        for source, acks in self.acks.items():
            settled = {(source, tag) for tag in acks._done}
            assert settled <= self.taken, "settled before the broker had a copy"

    def teardown(self) -> None:
        """Once nothing fails any more, every letter comes to rest."""
        for _ in range(200):
            if not self._step():
                break
        assert not any(self.queues[queue] for queue in (INBOX, RUNG, RELEASE)), "a letter goes round for ever"
        assert not self.unacked
        self.nothing_is_lost()

    def _step(self) -> bool:
        for number, job in sorted(self.wire.items()):
            self._take(job)
            self.handled[number] = True
        self.wire.clear()
        for number, ok in sorted(self.handled.items()):
            del self.handled[number]
            for job, returned in self.confirms.answered(number, multiple=False):
                self._answered(job, returned or ("" if ok else "nacked"))
        self.flush()
        self.clock_s += 400
        waiting = [copy.dies("4", RUNG, "expired", self.clock_s, RELEASE) for copy in self.queues[RUNG]]
        self.queues[RELEASE] += waiting
        self.queues[RUNG].clear()
        for source in SOURCES:
            copies = self.queues[source][:]
            self.queues[source].clear()
            for copy in copies:
                self._deliver(source, copy)
        return bool(self.wire or self.handled or self.unacked)


TestRouting = Routing.TestCase
TestRouting.settings = settings(hard_law, max_examples=20 * THOROUGH, stateful_step_count=25)
