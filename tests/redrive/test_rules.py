"""The pure parts of a redrive: tables first, laws second."""

import json
import tracemalloc
from dataclasses import asdict, replace
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from dlx_router.redrive import task_events
from dlx_router.redrive.canary import Flock, Sent, is_objected, objection
from dlx_router.redrive.rate_limit import BURST_S, Pace
from dlx_router.redrive.selection import Chooser, Verdict
from dlx_router.redrive.task import (
    VERSION,
    Canary,
    Counts,
    Destination,
    Edited,
    Kind,
    Spec,
    State,
    Task,
    TaskError,
    changed,
    check,
    newest,
    of_document,
)
from dlx_router.service.redrive.bindings import counts_returns
from dlx_router.service.redrive.task_log import MAX_KEPT, TaskLog
from tests.core.core_samples import death, letter

SPEC: Final = Spec("/", "DLQ.a", cutoff_ms=2_000_000)
TASK: Final = Task("t1", SPEC, created_ms=1, changed_ms=1)
HOMELESS: Final = letter(state="parked", last_death_ms=1, history=(), reason="unknown")


@pytest.mark.parametrize(
    ("kind", "version", "argument", "policy", "expected"),
    [
        ("classic", (3, 10), None, None, False),
        ("classic", (4, 0), 20, None, False),
        ("quorum", (3, 10), None, None, False),
        ("quorum", (3, 10), 5, None, True),
        ("quorum", (3, 10), -1, None, True),
        ("quorum", (3, 10), 2_147_483_647, None, False),
        ("quorum", (4, 0), None, None, True),
        ("quorum", (4, 0), -1, None, False),
        ("quorum", (4, 0), 5, -1, True),
        ("quorum", (4, 0), -1, 5, True),
        ("quorum", (4, 0), None, -1, False),
        ("quorum", (4, 0), 2_147_483_647, -1, False),
        ("quorum", (4, 3), 1, None, False),
        (None, (4, 0), None, None, True),
        (None, (4, 3), None, None, False),
    ],
)
def test_a_look_never_counts_where_it_could_end_a_letter(
    kind: str | None, version: tuple[int, int], argument: int | None, policy: int | None, expected: object
) -> None:
    """With a policy of -1 and an argument of 5 the broker ends what was returned five times: so a look counted."""
    facts = {
        "type": kind,
        "arguments": {} if argument is None else {"x-delivery-limit": argument},
        "effective_policy_definition": {} if policy is None else {"delivery-limit": policy},
    }
    assert counts_returns(facts, version) is expected
    if kind is None:
        assert counts_returns({}, version) is expected


@given(st.floats(0.5, 5000), st.lists(st.floats(0, 2), min_size=1, max_size=60))
def test_never_more_than_the_rate_and_a_burst(rate: float, gaps: list[float]) -> None:
    pace, now, sent = Pace(rate), 0.0, 0
    sent += pace.take(now, 10_000)
    for gap in gaps:
        now += gap
        sent += pace.take(now, 10_000)
        assert sent <= rate * now + max(1.0, rate * BURST_S) + 1


@settings(deadline=None, max_examples=30)
@given(st.sampled_from([10.0, 200.0, 2000.0]), st.floats(0.005, 0.02))
def test_the_rate_is_kept_within_one_percent_where_somebody_asks_often(rate: float, tick: float) -> None:
    pace, sent, ticks = Pace(rate), 0, int(60 / tick)
    for at in range(ticks):
        sent += pace.take(at * tick, 10_000)
    assert sent == pytest.approx(rate * ticks * tick, rel=0.01, abs=2)


@pytest.mark.parametrize(
    ("spec", "one", "expected"),
    [
        (SPEC, letter(state="dead", last_death_ms=1_999_999), Verdict.TAKE),
        (SPEC, letter(state="dead", last_death_ms=2_000_000), Verdict.LATER),
        (SPEC, letter(history=(death(time_s=1999),)), Verdict.TAKE),
        (SPEC, letter(history=(death(time_s=2000),)), Verdict.LATER),
        (SPEC, HOMELESS, Verdict.HOMELESS),
        (
            replace(SPEC, to=Destination("", "b")),
            HOMELESS,
            Verdict.TAKE,
        ),
        (
            replace(SPEC, kind=Kind.DISCARD),
            HOMELESS,
            Verdict.TAKE,
        ),
        (replace(SPEC, ids=("x",)), letter(id="y", state="dead", last_death_ms=1), Verdict.LEAVE),
        (replace(SPEC, group="other"), letter(state="dead", last_death_ms=1), Verdict.LEAVE),
        (replace(SPEC, filter="no"), letter(state="dead", last_death_ms=1), Verdict.LEAVE),
        (SPEC, letter(history=(), reason="unknown"), Verdict.NO_LETTER),
        (replace(SPEC, kind=Kind.DISCARD), letter(history=()), Verdict.NO_LETTER),
        (replace(SPEC, ids=("x",)), letter(id="x", history=()), Verdict.NO_LETTER),
    ],
)
def test_which_letters_are_meant(spec: Spec, one: Any, expected: Verdict) -> None:
    assert Chooser("t1", spec, lambda _letter: False, lambda _letter: "mine").verdict(one) is expected


@pytest.mark.parametrize(
    ("one", "redrive_id", "expected"),
    [
        (letter(state="retrying", last_death_ms=1), "t1", Verdict.LATER),
        (letter(state="retrying", last_death_ms=1), "t0", Verdict.TAKE),  # by the redrive before
        (letter(state="dead", last_death_ms=1), None, Verdict.TAKE),
        (letter(history=(death(time_s=1),)), "t1", Verdict.TAKE),  # a consumer copied the record of another message
        (letter(history=()), "t1", Verdict.NO_LETTER),
    ],
)
def test_no_task_means_a_letter_twice(one: Any, redrive_id: str | None, expected: Verdict) -> None:
    chooser = Chooser("t1", SPEC, lambda _letter: True, lambda _letter: "mine")
    assert chooser.verdict(one, redrive_id) is expected


def test_a_canary_objects_above_its_share_only() -> None:
    canary = Canary(10, max_dead_percent=20)
    assert [bool(objection(canary, 10, dead)) for dead in (0, 2, 3)] == [False, False, True]
    assert not objection(canary, 0, 0)


def test_a_flock_counts_letters_once_and_only_deaths_after_they_were_sent() -> None:
    flock = Flock("t1")
    sent = {"kind": "redriven", "redrive_id": "t1", "id": "a", "failed_queue": "q"}
    dead = {"kind": "dead_lettered", "id": "a", "failed_queue": "q"}
    for event in (dead, sent, sent, {**sent, "redrive_id": "t2", "id": "b"}, {**dead, "failed_queue": "other"}):
        flock.hear(event)
    assert (flock.sent, flock.dead) == (1, 0)
    for event in (dead, dead):
        flock.hear(event)
    assert (flock.sent, flock.dead) == (1, 1)


@pytest.mark.parametrize("redrives", [{}, {"redrives": 1}])
def test_a_death_that_is_told_before_its_letter_is_told_as_sent_is_one(redrives: dict[str, int]) -> None:
    """Another replica tells it at once, who sent it once it is confirmed: a canary of dead letters only passed."""
    flock = Flock("t1")
    sent = {"kind": "redriven", "redrive_id": "t1", "failed_queue": "q", **redrives}
    dead = {"kind": "dead_lettered", "failed_queue": "q", **redrives}
    for name, died_ms in (("again", 1005), ("before", 900)):
        own = {"id": name} if redrives == {} or name == "again" else {"id": name, "redrives": 0}
        flock.hear({**dead, **own, "ts_ms": died_ms})
        flock.hear({**sent, "id": name, "ts_ms": 1000})
    assert (flock.sent, flock.dead) == (2, 1)


def test_clocks_that_differ_hide_no_death_and_invent_none() -> None:
    flock = Flock("t1")
    for name, redrives, died_ms in (("behind", 1, 800), ("late", 0, 1200)):
        own = {"id": name, "failed_queue": "q"}
        flock.hear({"kind": "redriven", "redrive_id": "t1", **own, "redrives": 1, "ts_ms": 1000})
        flock.hear({"kind": "dead_lettered", **own, "redrives": redrives, "ts_ms": died_ms})
    assert (flock.sent, flock.dead) == (2, 1)


def test_numbers_that_are_none_stop_nobody_who_counts_letters() -> None:
    flock = Flock("t1")
    for odd in ("x", None, [1], {"a": 1}, 1.5):
        own = {"id": "a", "failed_queue": "q", "redrives": odd, "ts_ms": odd}
        flock.hear({"kind": "dead_lettered", **own})
        flock.hear({"kind": "redriven", "redrive_id": "t1", **own})
        flock.hear({"kind": "dead_lettered", **own})
    assert (flock.sent, flock.dead) == (1, 1)


EVENTS: Final = st.fixed_dictionaries({
    "kind": st.sampled_from(["redriven", "parked", "dead_lettered"]),
    "id": st.sampled_from("abcdef"),
    "failed_queue": st.sampled_from(["q", "r"]),
    "redrive_id": st.sampled_from(["", "t1", "t2"]),
})  # fmt: skip


@given(st.lists(EVENTS, max_size=40))
def test_what_was_sent_is_counted_as_by_a_flock(events: list[dict[str, Any]]) -> None:
    sent, flock = Sent("t1", Kind.REDRIVE), Flock("t1")
    for event in events:
        sent.hear(event)
        flock.hear(event)
    assert sent.count == flock.sent


def test_what_was_sent_takes_little_memory_a_letter() -> None:
    """A take-over of a task that had sent two million letters took more than a gigabyte."""
    sent, many = Sent("t1", Kind.REDRIVE), 20_000
    tracemalloc.start()
    try:
        for number in range(many):
            sent.hear({"kind": "redriven", "redrive_id": "t1", "id": f"{number:032}", "failed_queue": "q"})
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (sent.count, used / many < 200) == (many, True), used / many


@pytest.mark.parametrize(("kind", "sent"), [("redriven", 100), ("discarded", 0), ("parked", 0)])
def test_whatever_a_task_does_to_letters_is_no_death(kind: str, sent: int) -> None:
    flock = Flock("t1")
    for number in range(100):
        flock.hear({"kind": kind, "redrive_id": "t1", "id": f"{number}", "failed_queue": "q"})
        flock.hear({"kind": "edited", "redrive_id": "t1", "id": f"not {number}", "failed_queue": "q"})
        flock.hear({"kind": "parked", "redrive_id": "t2", "id": f"{number}", "failed_queue": "q"})
    assert (flock.sent, flock.dead) == (sent, 0)


def test_letters_that_went_elsewhere_die_wherever_that_leads_to() -> None:
    flock = Flock("t1", elsewhere=True)
    for number in range(10):
        flock.hear({"kind": "redriven", "redrive_id": "t1", "id": f"{number}", "failed_queue": "q"})
    for number in range(5, 15):
        flock.hear({"kind": "dead_lettered", "id": f"{number}", "failed_queue": "elsewhere"})
    assert (flock.sent, flock.dead) == (10, 5)


@pytest.mark.parametrize(
    ("why", "objected"),
    [
        (objection(Canary(10), 10, 1), True),
        ("queue 'canary.orders' holds 900 messages, its bound is 900; resume when it has room", False),
        ("", False),
    ],
)
def test_only_what_the_canary_stopped_goes_on_with_another_one(why: str, objected: bool) -> None:  # noqa: FBT001 - a column
    assert is_objected(replace(TASK, state=State.STOPPED, why=why)) is objected
    assert not is_objected(replace(TASK, state=State.PAUSED, why=why))


def test_what_the_journal_said_before_does_not_open_again_what_is_over() -> None:
    task_log, over = TaskLog("/"), replace(TASK, state=State.DONE, counts=Counts(sent=100), term=9, change=7)
    task_log.learn({"t1": over})
    for term, change in ((8, 9), (9, 6), (9, 7)):
        task_log.learn({"t1": replace(over, state=State.RUNNING, counts=Counts(), term=term, change=change)})
    assert (task_log.tasks["t1"], task_log.term) == (over, 10)
    later = replace(over, state=State.CANCELLED, term=10, change=1)
    task_log.learn({"t1": later})
    assert (task_log.tasks["t1"], task_log.term) == (later, 11)


def test_of_many_tasks_that_the_journal_tells_the_newest_and_the_active_are_kept() -> None:
    task_log, count = TaskLog("/"), MAX_KEPT + 200
    over = {f"{at}": replace(TASK, id=f"{at}", state=State.DONE, created_ms=at) for at in range(count)}
    paused = replace(TASK, id="paused", state=State.PAUSED, created_ms=0)
    task_log.learn({"1199": over["1199"]})  # of the last minute, read first
    task_log.learn({**over, "paused": paused})
    assert len(task_log.tasks) == MAX_KEPT
    assert {*task_log.tasks} == {"paused", *(f"{at}" for at in range(count - MAX_KEPT + 1, count))}


@pytest.mark.parametrize("state", [*State])
@pytest.mark.parametrize("to", [*State])
def test_what_is_over_stays_over(state: State, to: State) -> None:
    task = replace(TASK, state=state)
    if state in {State.DONE, State.CANCELLED} or state is to:
        with pytest.raises(TaskError):
            changed(task, to, 2)
    elif to is State.CANCELLED:
        assert changed(task, to, 2).change == task.change + 1


_tasks = st.builds(
    Task,
    id=st.sampled_from(["a", "b"]),
    spec=st.builds(
        Spec,
        vhost=st.just("/"),
        queue=st.text(min_size=1, max_size=20),
        kind=st.sampled_from(Kind),
        ids=st.lists(st.text(min_size=1, max_size=5), max_size=3).map(tuple),
        to=st.none() | st.builds(Destination, st.text(max_size=5), st.text(max_size=5)),
        canary=st.none() | st.builds(Canary, st.integers(1, 9)),
        edit=st.none() | st.builds(Edited, st.just(("h",)), st.none() | st.integers(0, 9)),
    ),
    state=st.sampled_from(State),
    why=st.text(max_size=20),
    counts=st.builds(Counts, sent=st.integers(0, 9)),
    groups=st.just(()) | st.just(({"group": "g", "letters": 3},)),
    term=st.integers(0, 3),
    change=st.integers(0, 3),
)


@settings(deadline=None)
@given(_tasks)
def test_a_task_comes_back_from_the_journal_as_it_was(task: Task) -> None:
    line = task_events.line(task, "router", b"key")
    assert [*task_events.tasks(b'{"kind":"parked"}\nno json\n' + line, b"key")] == [task]
    assert not [*task_events.tasks(line, b"another key")]
    assert of_document(task.to_document()) == task


@settings(deadline=None, max_examples=50)
@given(st.lists(_tasks, max_size=8), st.randoms())
def test_replay_does_not_depend_on_the_order_of_terms(tasks: list[Task], chance: Any) -> None:
    mixed = [*tasks]
    chance.shuffle(mixed)
    latest, again = newest(tasks), newest(mixed)
    assert {name: (task.term, task.change) for name, task in latest.items()} == {
        name: (task.term, task.change) for name, task in again.items()
    }
    assert all((task.term, task.change) <= (latest[task.id].term, latest[task.id].change) for task in tasks)


def test_a_task_does_not_send_to_the_queue_that_it_takes_from() -> None:
    with pytest.raises(TaskError, match="it is taken from"):
        check(Spec("/", "DLQ.work", to=Destination("", "DLQ.work")))


def test_every_fault_is_told_at_once() -> None:
    with pytest.raises(TaskError, match=r"queue.*canary"):
        check(Spec("/", "", Kind.DISCARD, canary=Canary(1)))


REQUEST: Final = TypeAdapter(Spec)


@pytest.mark.parametrize("member", [
    {"queue": ""}, {"limit": -1}, {"rate": -1}, {"rate": 100_001}, {"ramp": [1]}, {"ids": []},
    {"ids": ["a"] * 1001}, {"group": ""}, {"filter": ""}, {"canary": {"first": 0}},
    {"canary": {"first": 1, "watch_s": 0}}, {"canary": {"first": 1, "max_dead_percent": 100}}, {"nonsense": 1},
    {"to": {"queue": "q"}}, {"kind": "nonsense"},
])  # fmt: skip
def test_a_request_with_a_member_that_cannot_be_is_refused(member: dict[str, Any]) -> None:
    whole = {"vhost": "/", "queue": "DLQ", "ids": ["a"], "to": {"routing_key": "q"}, "canary": {"first": 1}}
    assert REQUEST.validate_python(whole) == Spec("/", "DLQ", ids=("a",), to=Destination("", "q"), canary=Canary(1))
    with pytest.raises(ValidationError):
        REQUEST.validate_python(whole | member)
    with pytest.raises(ValidationError):
        REQUEST.validate_python({"vhost": "/"})


@given(_tasks)
def test_a_task_as_json_is_what_dataclasses_make_of_it(task: Task) -> None:
    """What is signed in the journal may not depend on how the document is made."""
    expected = {"v": VERSION, **asdict(task)}
    assert [*task.to_document()] == [*expected]
    assert json.dumps(task.to_document()) == json.dumps(expected)
