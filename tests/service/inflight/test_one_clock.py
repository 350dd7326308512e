"""Both ways of a letter ask one clock: a jump of the wall clock counts once it has lasted, on the short way too.

And what a route says of times is true of every letter that takes it.
"""

import re
import time
from collections.abc import Sequence
from typing import Any, Final, cast

import pytest

from dlx_router.broker.consumer import Consumer
from dlx_router.core.letter import Arrival
from dlx_router.core.policy import Policy, Selector, SelectorKind, Setting, ordered
from dlx_router.core.words import Cause
from dlx_router.journal.batch import Batch
from dlx_router.journal.entry import Entry
from dlx_router.journal.mode import Mode
from dlx_router.journal.writer import Journal
from dlx_router.service.dispatch.decider import Decider
from dlx_router.service.inflight import clock, compiled
from dlx_router.service.inflight.decoder import Place
from dlx_router.service.inflight.encoder import Encoder
from dlx_router.service.inflight.in_force import InForce, Rules
from dlx_router.service.inflight.job import Job
from dlx_router.telemetry.metrics import Metrics
from dlx_router.telemetry.readiness import Readiness
from dlx_router.wire import frames, table
from tests.service.test_clock import Clocks
from tests.support.worker import KEY, NAMES, OUTLETS, SOURCE, Session, Taken, dead, message, place

RETRIED: Final = {"max-delivery-attempts": 5, "redelivery-delay": 5000}
BEGAN_S: Final = 1_795_240_000
CONSUMER: Final = cast("Consumer", Taken(NAMES.inbox))
HERE: Final = place(NAMES.inbox)
ENCODER: Final = Encoder(user="guest", last_deaths=True, key=KEY, quarantine=NAMES.quarantine)


@pytest.fixture(autouse=True)
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    """Of a process that has just begun; who asks the raw wall clock is told the same."""
    fakes = Clocks([float(BEGAN_S)], [5.0])
    monkeypatch.setattr(clock, "time", fakes)
    monkeypatch.setattr(clock, "CLOCK", clock.Clock())
    monkeypatch.setattr(time, "time", fakes.time)
    return fakes


def _told(job: Job) -> tuple[int, ...]:
    """When the wait is due and when the newest death came, as the copy's record has it."""
    section = ENCODER.write(job, b"")[2] if job.route is None else compiled.section(job, job.route, b"", b"guest")
    due, last = re.findall(rb'"(?:due|last_death)_ms":(\d+)', section)
    return int(due), int(last)


def _taught(decider: Decider) -> Decider:
    """It has a route and a mould."""
    for tag in range(1, 13):
        if decider.run([dead(tag)], 0, HERE, OUTLETS) is None:
            decider.judge(dead(tag), CONSUMER, HERE, 0.0)
    return decider


def _in_a_run(decider: Decider, tags: Sequence[int]) -> list[Job]:
    written = decider.run([dead(tag) for tag in tags], 0, HERE, OUTLETS)
    assert written is not None
    (run,) = written.runs(CONSUMER, decider.in_force, 0.0)
    return run.jobs(0, len(tags))


def test_twins_tell_the_same_times_by_the_short_way_and_the_long_one_while_the_clock_is_wrong(clocks: Clocks) -> None:
    """Letters of the short way were ahead of their own next deaths by as much as the clock had jumped."""
    decider = _taught(Session(RETRIED).decider)
    clocks.go_on(1.0, jump=3600.0)
    short = decider.judge(dead(20), CONSUMER, HERE, 0.0)
    long = Session(RETRIED).decider.judge(dead(20), CONSUMER, HERE, 0.0)
    assert (short.route is None, long.route is None) == (False, True)
    true_ms = (BEGAN_S + 1) * 1000
    assert _told(long) == (true_ms + 5000, true_ms)
    assert [_told(job) for job in (short, *_in_a_run(decider, (21, 22)))] == [_told(long)] * 3


class _Heard(Journal):
    """Keeps the rows of the events that it is told."""

    def __init__(self) -> None:
        super().__init__(mode=Mode.BEST_EFFORT, name="j", vhost="/", router_id="r", readiness=Readiness())
        self.rows: list[str] = []

    def record(self, event: bytes | Entry, *, of_task: bool = False) -> Batch:
        assert isinstance(event, tuple)
        self.rows.append(event[1])
        return super().record(event, of_task=of_task)

    def record_run(self, entries: Sequence[Entry]) -> list[tuple[Batch, int]]:
        self.rows += [row for _, row in entries]
        return super().record_run(entries)


async def test_what_is_told_of_a_letter_once_its_run_is_over_comes_later(clocks: Clocks) -> None:
    """It was nacked twice: a reader of the journal takes the newest event of a letter for what holds."""
    journal = _Heard()
    decider = _taught(Decider(Session(RETRIED).decider.in_force, Metrics(), journal))
    clocks.go_on(1.0, jump=3600.0)
    journal.rows.clear()
    (job,) = _in_a_run(decider, (20,))
    clocks.go_on(1.0)
    decider.in_full(job, HERE)
    decider.refused(job, Cause.TARGET_REFUSED)
    times = [int(re.findall(r"[^,]+", row)[2]) for row in journal.rows]
    assert len(times) == 3
    assert times == sorted({*times})
    assert times[-1] - times[0] < 1010


def _named(queue: str, definition: dict[str, Any]) -> Decider:
    given = {key: Setting(value, SOURCE) for key, value in definition.items()}
    policy = Policy("p", Selector(SelectorKind.QUEUE, queue), SOURCE, definition=given)
    journal = Journal(mode=Mode.OFF, name="j", vhost="/", router_id="r", readiness=Readiness())
    return Decider(InForce.of(Rules(ordered([policy], "abcdef012345"), NAMES, 30_000), "/"), Metrics(), journal)


def test_a_letter_without_deaths_has_its_own_time(clocks: Clocks) -> None:
    """Anybody may write an empty x-death: it died when it came, and all later ones were told the time of the first."""
    decider = _named("staging", {"dead-letter-exchange": "dlx", "max-delivery-attempts": 1})
    here = Place("/", "staging", Arrival.INBOX, NAMES, KEY, dead_letter_exchanges=frozenset({b"dead"}))
    headers = table.field_array(b"x-death", [])
    for name, value in (("queue", "staging"), ("reason", "rejected"), ("exchange", "")):
        headers += table.longstr(f"x-first-death-{name}".encode(), value)

    def letter(tag: int) -> frames.Delivery:
        return message(tag, headers=headers)._replace(exchange=b"dead")

    for tag in range(1, 4):
        job = decider.judge(letter(tag), CONSUMER, here, 0.0)
        assert job.copy is not None, "by the long way"
        assert job.copy.exchange == "dlx"
        assert job.copy.record.first_death_ms == clock.now_ms()
        clocks.go_on(60.0)
