"""The law of standing orders: the short way writes what the long way would have written, byte for byte."""

import struct
import time
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlx_router.broker.consumer import Consumer
from dlx_router.core.letter import Arrival
from dlx_router.core.names import Names
from dlx_router.core.policy import Policy, Selector, SelectorKind, Setting, Source, ordered
from dlx_router.core.words import Cause
from dlx_router.journal.mode import Mode
from dlx_router.journal.writer import Journal
from dlx_router.service.dispatch.decider import Decider
from dlx_router.service.inflight import clock, compiled
from dlx_router.service.inflight.decoder import Place
from dlx_router.service.inflight.encoder import Encoder
from dlx_router.service.inflight.in_force import InForce, Rules
from dlx_router.service.inflight.job import Job
from dlx_router.service.inflight.routes import Resource
from dlx_router.service.inflight.runs import Run
from dlx_router.telemetry.metrics import Metrics
from dlx_router.telemetry.readiness import Readiness
from dlx_router.wire import frames, properties, table
from tests.support.worker import OUTLETS

KEY: Final = b"k" * 32
SOURCE: Final = Source("orders", "orders.yaml", 1)
NAMES: Final = Names("dlx-router")
PLACE: Final = Place("/", NAMES.inbox, Arrival.INBOX, NAMES, KEY)
JOURNAL: Final = Journal(mode=Mode.OFF, name="j", vhost="/", router_id="r", readiness=Readiness())
NOBODY: Final = cast("Consumer", None)
STAMP: Final = table.PUB_PREFIX + struct.pack(">q", 7)
DEFINITIONS: Final[tuple[dict[str, Any], ...]] = (
    {"dead-letter-exchange": "dlx", "max-delivery-attempts": 1},
    {"max-delivery-attempts": 1},
    {"max-delivery-attempts": 5, "redelivery-delay": 5000},
    {"max-delivery-attempts": 5, "redelivery-delay": 5000, "redelivery-collision-avoidance-factor": 0.5},
    {"dead-letter-exchange": "dlx", "max-delivery-attempts": 1, "dead-letter-headers": ("emq",)},
)
COUNTS: Final = (  # as 4.x has them of a letter that a quorum queue or its consumer refused
    (),
    ((b"x-delivery-count", 1),),
    ((b"x-acquired-count", 1), (b"x-delivery-count", 3)),
    ((b"x-delivery-count", 2), (b"x-acquired-count", 7)),
)


@pytest.fixture(autouse=True)
def _a_clock_that_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1_795_240_000.5)
    monkeypatch.setattr(clock.Clock, "now_ms", lambda _self: 1_795_240_000_500)  # one of a process knows other times


def _rules(definition: dict[str, Any], revision: str = "abcdef012345") -> Rules:
    settings_ = {key: Setting(value, SOURCE) for key, value in definition.items()}
    policy = Policy("orders", Selector(SelectorKind.MATCH, "#"), SOURCE, definition=settings_)
    return Rules(ordered([policy], revision), NAMES, 30_000)


def decider_of(definition: dict[str, Any]) -> Decider:
    return Decider(InForce.of(_rules(definition), "/"), Metrics(), JOURNAL)


class _LongWay:
    """A decider that has learnt nothing, each time."""

    def __init__(self, definition: dict[str, Any]) -> None:
        self._definition = definition

    def judge(self, *given: Any) -> Job:
        job = decider_of(self._definition).judge(*given)
        assert job.route is None
        return job


def _delivery(tag: int, reason: str, extra: bytes, body: bytes, **given_properties: Any) -> frames.Delivery:
    death = table.long_(b"count", 1) + table.longstr(b"reason", reason) + table.longstr(b"queue", "orders")
    death += table.timestamp(b"time", 1_795_239_999) + table.longstr(b"exchange", "")
    death += table.array_of_longstr(b"routing-keys", ["orders"])
    headers = table.field_array(b"x-death", [death]) + extra
    for name, value in (("queue", "orders"), ("reason", reason), ("exchange", "")):
        headers += table.longstr(f"x-first-death-{name}".encode(), value)
    section = properties.build(headers=headers, **given_properties)
    redelivered = tag % 2 == 0
    header = struct.pack(">HHQ", 60, 0, len(body)) + section
    return frames.Delivery(1, b"c", tag, redelivered, b"dlx-router.inbox", b"orders", header, body)


def _written(job: Job, encoder: Encoder) -> tuple[bytes, bytes, bytes]:
    if job.route is None:
        return encoder.write(job, STAMP)
    return job.route.exchange, job.route.routing_key, compiled.section(job, job.route, STAMP, b"guest")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=150)
@given(
    definition=st.sampled_from(DEFINITIONS[:3]),
    reason=st.sampled_from(["rejected", "delivery_limit"]),
    body=st.binary(max_size=200),
    extra=st.lists(
        st.tuples(st.text("abc", min_size=1, max_size=3), st.text(max_size=5)), max_size=3, unique_by=lambda e: e[0]
    ),
    said=st.fixed_dictionaries(
        {},
        optional={
            "message_id": st.binary(max_size=9),
            "priority": st.integers(0, 255),
            "delivery_mode": st.sampled_from([1, 2]),
            "user_id": st.sampled_from([b"guest", b"shop"]),
            "expiration": st.just(b"1000"),
            "content_type": st.just(b"application/json"),
            "app_id": st.just(b"shop"),
        },
    ),
    counts=st.sampled_from(COUNTS),
    at=st.integers(0, 3),
)
def test_the_short_way_writes_what_the_long_way_writes(  # noqa: PLR0917 - what a letter may be like
    definition: dict[str, Any],
    reason: str,
    body: bytes,
    extra: list[tuple[str, str]],
    said: dict[str, Any],
    counts: tuple[tuple[bytes, int], ...],
    at: int,
) -> None:
    encoder = Encoder(user="guest", last_deaths=True, key=KEY, quarantine=NAMES.quarantine)

    def listed(entries: Sequence[tuple[str, str]], times: int) -> bytes:
        own = [table.longstr(name.encode(), value) for name, value in entries]
        return b"".join([*own[:at], *(table.long_(name, count * times) for name, count in counts), *own[at:]])

    entries = listed(extra, 1)
    decider, other = decider_of(definition), _LongWay(definition)
    decider.judge(_delivery(1, reason, b"", b"the first teaches"), NOBODY, PLACE, 0.0)
    delivery = _delivery(2, reason, entries, body, **said)
    short = decider.judge(delivery, NOBODY, PLACE, 0.0)
    long = other.judge(delivery, NOBODY, PLACE, 0.0)
    assert short.route is not None
    assert _written(short, encoder) == _written(long, encoder)
    assert (short.action, short.resource) == (long.action, long.resource)
    twin = tuple((name, value[::-1]) for name, value in extra)  # the same shape, other values: found without a walk
    delivery = _delivery(3, reason, listed(twin, 5), body, **said)
    short, long = decider.judge(delivery, NOBODY, PLACE, 0.0), other.judge(delivery, NOBODY, PLACE, 0.0)
    assert short.route is not None
    assert short.key is None
    assert _written(short, encoder) == _written(long, encoder)


def test_a_letter_of_the_same_shape_with_another_death_is_not_taken_for_its_like() -> None:
    decider = decider_of(DEFINITIONS[0])
    for tag in (1, 2, 3):
        decider.judge(_delivery(tag, "rejected", b"", b"x"), NOBODY, PLACE, 0.0)
    job = decider.judge(_delivery(4, "rejecteD", b"", b"x"), NOBODY, PLACE, 0.0)
    assert job.route is None
    assert job.letter is not None
    assert job.letter.reason != "rejected"


def test_where_its_queue_limits_returns_their_count_is_looked_at() -> None:
    """A limit that becomes known later, too. One by one, `Worker.take` looks before anything is decided."""
    decider, limited = decider_of(DEFINITIONS[0]), replace(PLACE, limit=20)

    def returned(times: int) -> frames.Delivery:
        return _delivery(times, "rejected", table.long_(b"x-delivery-count", times), b"x")

    def learns(place: Place, times: int) -> None:
        for _ in range(32):
            decider.judge(returned(times), NOBODY, place, 0.0)
            decider.run([returned(times)], 0, place, OUTLETS)

    def in_a_run(at: int, place: Place) -> int:
        written = decider.run(letters, at, place, OUTLETS)
        return 0 if written is None else len(written.tables)

    learns(PLACE, 1)
    letters = [returned(times) for times in (1, 1, 17, 16, 1)]
    assert in_a_run(0, PLACE) == 5
    for times in (16, 17, 1):
        learns(limited, times)
    assert decider.judge(letters[0], NOBODY, limited, 0.0).route is not None
    assert in_a_run(0, limited) == 2
    assert in_a_run(2, limited) == 0


@pytest.mark.parametrize("definition", DEFINITIONS[3:])
def test_chance_and_aliases_go_the_long_way(definition: dict[str, Any]) -> None:
    decider = decider_of(definition)
    for tag in (1, 2):
        assert decider.judge(_delivery(tag, "rejected", b"", b"x"), NOBODY, PLACE, 0.0).route is None


def test_an_order_holds_only_where_there_is_what_its_event_names() -> None:
    decider, known = decider_of(DEFINITIONS[1]), dict[Resource, str]()

    def judged(tag: int) -> Job:
        return decider.judge(_delivery(tag, "rejected", b"", b"x"), NOBODY, PLACE, 0.0, known)

    resource = judged(1).resource
    assert resource is not None
    assert judged(2).route is None, "nobody has asked the broker yet"
    known[resource] = "DLQ.transient"
    assert judged(3).route is None, "it is another queue"
    known[resource] = resource[1]
    assert judged(4).route is not None


def test_a_letter_in_flight_is_finished_by_the_policies_that_it_came_to() -> None:
    decider = decider_of(DEFINITIONS[0])
    jobs = [decider.judge(_delivery(tag, "rejected", b"", b"x"), NOBODY, PLACE, 0.0) for tag in (1, 2)]
    assert jobs[1].route is not None, "the short way too"
    decider.in_force = InForce.of(_rules(DEFINITIONS[1], "fedcba543210"), "/")
    next_job = decider.judge(_delivery(3, "rejected", b"", b"x"), NOBODY, PLACE, 0.0)
    assert next_job.route is None, "nothing that was worked out by the old rules is used"
    assert next_job.copy is not None
    assert (next_job.copy.exchange, next_job.copy.record.revision) == ("", "fedcba543210")
    for job in jobs:
        decider.in_full(job, PLACE)
        assert job.copy is not None
        assert (job.copy.exchange, job.copy.record.revision) == ("dlx", "abcdef012345")
        decider.refused(job, Cause.TARGET_REFUSED)
        assert job.copy.record.revision == "abcdef012345"


def test_a_letter_whose_order_did_not_hold_is_counted_once() -> None:
    metrics = Metrics()
    decider = Decider(InForce.of(_rules(DEFINITIONS[1]), "/"), metrics, JOURNAL)
    jobs = [decider.judge(_delivery(tag, "rejected", b"", b"x"), NOBODY, PLACE, 0.0) for tag in (1, 2)]
    assert [job.route is None for job in jobs] == [True, False]
    decider.in_full(jobs[1], PLACE)
    assert [job.route is None for job in jobs] == [True, True]
    assert sum(metrics.decisions.values()) == 2


KIB: Final = 1024


def _run(count: int) -> Run:
    """So many letters of 64 KiB each beside what they share, of which nobody else knows."""
    decider = decider_of(DEFINITIONS[0])
    extra = table.longstr(b"x", "y" * 16 * KIB)

    def letters(first: int, count: int) -> list[frames.Delivery]:
        return [_delivery(tag, "rejected", extra, b"b" * 32 * KIB) for tag in range(first, first + count)]

    for delivery in letters(1, 12):  # until they have a mould
        if decider.run([delivery], 0, PLACE, OUTLETS) is None:
            decider.judge(delivery, NOBODY, PLACE, 0.0)
    written = decider.run(letters(101, count), 0, PLACE, OUTLETS)
    assert written is not None
    (run,) = written.runs(NOBODY, decider.in_force, 0.0)
    assert len(run) == count
    return run


def test_a_run_keeps_nothing_of_its_letters_that_became_jobs() -> None:
    """What is left of it may wait for the journal for long, and those bytes are no longer counted as in flight."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        run = _run(16)
        full = tracemalloc.get_traced_memory()[0] - before
        for start, stop, left in ((0, 4, 12), (14, 16, 10), (4, 5, 9)):
            jobs = run.jobs(start, stop)
            assert [job.delivery.tag for job in jobs] == [*range(101 + start, 101 + stop)]
            assert {len(job.delivery.body) for job in jobs} == {32 * KIB}
            del jobs
            assert tracemalloc.get_traced_memory()[0] - before < full - (16 - left) * 60 * KIB
        (last,) = run.jobs(13, 14)
        assert run.forget(5, 13) == 8 * (len(last.delivery.header) + len(last.delivery.body)), (
            "the others are all there"
        )
    finally:
        tracemalloc.stop()
