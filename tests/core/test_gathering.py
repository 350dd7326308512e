"""Gathering: a storm is a handful of messages, and nothing that happened is left out of them."""

import itertools
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from dlx_router.core.gathering import FIRST_GAP_MS, LONGEST_GAP_MS, MOMENT_MS, Gathered, Gatherer
from dlx_router.core.notices import MAX_ITEMS, MOST_KEYS, Notice

KINDS: Final = ("group.opened", "letter.parked", "breaker.opened")


def notice(key: str = "g", kind: str = "group.opened", vhost: str = "/", letters: int | None = None) -> Notice:
    item = {"failed_queue": "q", **({} if letters is None else {"letters": letters})}
    return Notice(kind, vhost, key, ("q",), item)


def told(gatherer: Gatherer, until_ms: int, every_ms: int = 500, since_ms: int = 0) -> list[tuple[int, Gathered]]:
    return [(now, gathered) for now in range(since_ms, until_ms, every_ms) for gathered in gatherer.due(now)]


def test_the_first_of_a_kind_waits_for_a_moment_and_no_longer() -> None:
    gatherer = Gatherer()
    gatherer.add(notice(), 1000)
    assert gatherer.due(1000 + MOMENT_MS - 1) == []
    assert gatherer.due(1000 + MOMENT_MS) == [Gathered("group.opened", "/", 1, ({"failed_queue": "q"},), ("g",))]
    assert gatherer.due(10**9) == []


def test_ten_thousand_of_a_kind_in_an_hour_are_a_handful_of_messages() -> None:
    gatherer, messages = Gatherer(), []
    for number in range(10_000):
        now = number * 360
        gatherer.add(notice(f"g{number}"), now)
        messages += gatherer.due(now)
    messages += [gathered for _, gathered in told(gatherer, 3_600_000 + 2 * LONGEST_GAP_MS, since_ms=3_600_000)]
    assert len(messages) <= 10
    assert sum(gathered.total for gathered in messages) == 10_000
    assert all(len(gathered.items) <= MAX_ITEMS and len(gathered.keys) <= MOST_KEYS for gathered in messages)


def test_after_quiet_it_is_told_at_once_again() -> None:
    gatherer = Gatherer()
    gatherer.add(notice(), 0)
    assert len(told(gatherer, 10_000)) == 1
    gatherer.add(notice(), 5_000)  # in the gap
    ((second, _),) = told(gatherer, 600_000, since_ms=5_000)
    assert second >= MOMENT_MS + FIRST_GAP_MS
    gatherer.add(notice(), 2_000_000)
    ((third, _),) = told(gatherer, 2_100_000, since_ms=2_000_000)
    assert third == 2_000_000 + MOMENT_MS


def test_letters_of_one_group_are_summed_and_kinds_and_vhosts_are_told_apart() -> None:
    gatherer = Gatherer()
    for letters in (3, 4):
        gatherer.add(notice(kind="letter.parked", letters=letters), 0)
    gatherer.add(notice(kind="letter.parked", vhost="shop", letters=1), 0)
    gatherer.add(notice(), 0)
    messages = {(gathered.kind, gathered.vhost): gathered for gathered in gatherer.due(MOMENT_MS)}
    assert messages["letter.parked", "/"].items == ({"failed_queue": "q", "letters": 7},)
    assert {key: gathered.total for key, gathered in messages.items()} == {
        ("letter.parked", "/"): 7, ("letter.parked", "shop"): 1, ("group.opened", "/"): 1,
    }  # fmt: skip


def test_what_a_router_leads_no_more_is_not_told_by_it() -> None:
    gatherer = Gatherer()
    gatherer.add(notice(), 0)
    gatherer.add(notice(vhost="shop"), 0)
    gatherer.drop("/")
    assert [gathered.vhost for gathered in gatherer.due(MOMENT_MS)] == ["shop"]


STEPS: Final = st.lists(
    st.tuples(
        st.integers(0, 400_000),
        st.sampled_from(KINDS),
        st.sampled_from(["/", "shop"]),
        st.integers(0, 30),
        st.integers(1, 99),
    ),
    max_size=80,
)


@given(STEPS)
def test_each_notice_is_in_one_message_in_time_and_messages_keep_their_distance(
    steps: list[tuple[int, str, str, int, int]],
) -> None:
    gatherer, now = Gatherer(), 0
    messages: list[tuple[int, Gathered]] = []
    added: dict[tuple[str, str], int] = {}
    for pause, kind, vhost, key, letters in steps:
        messages += told(gatherer, now + pause, 1_000, since_ms=now)
        now += pause
        gatherer.add(notice(str(key), kind, vhost, letters if kind == "letter.parked" else None), now)
        added[kind, vhost] = added.get((kind, vhost), 0) + (letters if kind == "letter.parked" else 1)
    late = now + LONGEST_GAP_MS + MOMENT_MS + 2_000
    messages += told(gatherer, late, 1_000, since_ms=now)
    sums: dict[tuple[str, str], int] = {}
    times: dict[tuple[str, str], list[int]] = {}
    for at, gathered in messages:
        sums[gathered.kind, gathered.vhost] = sums.get((gathered.kind, gathered.vhost), 0) + gathered.total
        times.setdefault((gathered.kind, gathered.vhost), []).append(at)
    assert sums == added
    assert all(
        after - before >= FIRST_GAP_MS for several in times.values() for before, after in itertools.pairwise(several)
    )
