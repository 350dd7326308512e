"""What is news: each thing once, nothing that was there before, nothing that somebody wants not to see."""

from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st

from dlx_router.core.notices import Notice
from dlx_router.index.reader import GroupLook
from dlx_router.redrive.task import Counts, Spec, State, Task
from dlx_router.service.upkeep.webhook_events import OVERLAP_MS, VhostEvents

BEGAN: Final = 1_700_000_000_000
DAY: Final = 86_400_000


def group(name: str = "g1", first_ms: int = BEGAN + 5, **more: Any) -> GroupLook:
    base = GroupLook(
        name, "orders", "rejected", "KeyError", "shop.py:7", "no <id>", first_ms, first_ms, 1, 0, ignored=False
    )
    return base._replace(**more)


def kinds(notices: list[Notice]) -> list[str]:
    return [notice.kind for notice in notices]


def look(events: VhostEvents, *groups: GroupLook, now: int = BEGAN + 1000) -> list[Notice]:
    return [*events.groups(sorted(groups, key=lambda item: item.last_ms), now)]


def test_a_group_that_opens_is_told_once_with_its_error() -> None:
    events = VhostEvents("/", BEGAN)
    (notice,) = look(events, group())
    assert (notice.kind, notice.queues) == ("group.opened", ("orders",))
    assert {"group": "g1", "failed_queue": "orders", "error_type": "KeyError"}.items() <= notice.item.items()
    assert look(events, group(deaths=9, last_ms=BEGAN + 900)) == []


def test_groups_of_before_are_no_news_and_neither_are_ignored_ones() -> None:
    events = VhostEvents("/", BEGAN)
    assert look(events, group(first_ms=BEGAN - 1), group("g2", ignored=True)) == []


def test_a_resolved_group_that_dies_again_is_told_each_time_it_was_resolved() -> None:
    events, old = VhostEvents("/", BEGAN), group(first_ms=BEGAN - DAY)
    assert look(events, old._replace(resolved_ms=BEGAN + 10, last_ms=BEGAN + 9)) == []
    for resolved in (BEGAN + 10, BEGAN + 20):
        again = old._replace(resolved_ms=resolved, last_ms=resolved + 1)
        assert [kinds(look(events, again)), kinds(look(events, again))] == [["group.returned"], []]


def test_what_an_earlier_leader_had_no_time_for_is_told_for_a_day() -> None:
    events = VhostEvents("/", 0)
    young, old = group("young", BEGAN - DAY + 1), group("old", BEGAN - DAY - 1)
    assert [notice.key for notice in look(events, young, old, now=BEGAN)] == ["young"]


def test_an_event_from_the_future_keeps_no_group_from_being_told() -> None:
    """A host's clock was ahead, or somebody wrote so: from then on the index was asked for what came after that."""
    for ahead in (DAY, 2**52):
        events, now = VhostEvents("/", BEGAN), BEGAN + 1000
        assert kinds(look(events, group("ahead", BEGAN + ahead), now=now)) == ["group.opened"]
        assert events.since_ms == now - OVERLAP_MS
        for later in (BEGAN + 2000, BEGAN + 90_000):
            late = group(f"at {later}", later)
            assert late.last_ms >= events.since_ms, "it is in the next answer"
            (notice,) = look(events, group("ahead", BEGAN + ahead), late, now=later + 1000)
            assert notice.key == late.id


def test_the_next_look_asks_for_groups_that_are_new_to_the_index_too() -> None:
    events = VhostEvents("/", BEGAN)
    look(events, group("a", number=7), group("b", BEGAN + 300, number=5))
    assert events.newest == 7
    look(events, group("c", BEGAN - DAY, number=3))
    assert events.newest == 7
    events.forget_counts()
    assert events.newest == 0, "another file has other numbers"


def test_letters_in_parking_are_told_where_there_are_more_and_not_the_first_look() -> None:
    events = VhostEvents("/", BEGAN)
    counts: list[dict[tuple[str, str], int]] = [
        {("orders", "g1"): 5},
        {("orders", "g1"): 7, ("mail", "g2"): 1},
        {("orders", "g1"): 2, ("mail", "g2"): 1},
        {("orders", "g1"): 3, ("mail", "g2"): 1},
    ]
    counted = [[(notice.queues[0], notice.item["letters"]) for notice in events.parked(look)] for look in counts]
    assert counted == [[], [("orders", 2), ("mail", 1)], [], [("orders", 1)]]
    events.forget_counts()
    assert [*events.parked({("orders", "g1"): 900})] == []


def test_a_breaker_is_told_when_it_opens_and_when_it_is_closed() -> None:
    events = VhostEvents("/", BEGAN)
    states = [
        {"q": "closed"},
        {"q": "open"},
        {"q": "half_open"},
        {"q": "open"},
        {"q": "half_open"},
        {"q": "closed"},
        {},
    ]
    rounds = [kinds([*events.breakers(state, at)]) for at, state in enumerate(states)]
    assert rounds == [[], ["breaker.opened"], [], [], [], ["breaker.closed"], []]


def task(state: State, change: int = 3, **spec: Any) -> Task:
    groups = ({"group": "g1", "failed_queue": "orders", "reason": "rejected", "letters": 1},)
    given = Spec("/", "orders.dlq", **spec)
    return Task(
        "t1", given, state, "why", changed_ms=BEGAN + 1, counts=Counts(sent=4), total=9, change=change, groups=groups
    )


def test_a_task_is_told_when_it_ends_by_itself_and_again_after_it_was_resumed() -> None:
    events = VhostEvents("/", BEGAN)
    rounds = [kinds([*events.tasks([entry], BEGAN + 9)]) for entry in (
        task(State.RUNNING), task(State.STOPPED, 4), task(State.STOPPED, 4), task(State.RUNNING, 5),
        task(State.STOPPED, 6), task(State.DONE, 8),
    )]  # fmt: skip
    assert rounds == [[], ["redrive.halted"], [], [], ["redrive.halted"], ["redrive.finished"]]
    (notice,) = VhostEvents("/", BEGAN).tasks([task(State.STOPPED)], BEGAN + 9)
    assert notice.queues == ("orders.dlq", "orders")
    assert {"task": "t1", "sent": 4, "meant": 9, "why": "why"}.items() <= notice.item.items()


LOOKS: Final = st.lists(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 9), st.booleans()), max_size=4), max_size=12
)


@given(LOOKS)
def test_however_often_it_is_looked_each_opening_is_told_once(looks: list[list[tuple[str, int, bool]]]) -> None:
    events, first = VhostEvents("/", BEGAN), {"a": BEGAN - 5, "b": BEGAN, "c": BEGAN + 7}
    notices: list[Notice] = []
    seen: set[str] = set()
    for at, several in enumerate(looks):
        given = [group(name, first[name], deaths=deaths, ignored=ignored) for name, deaths, ignored in several]
        seen |= {entry.id for entry in given if not entry.ignored}
        notices += look(events, *given, now=BEGAN + 1000 + at)
    opened = [notice.key for notice in notices if notice.kind == "group.opened"]
    assert sorted(opened) == sorted(seen - {"a"})
