"""Gathering: a storm is a handful of messages, and nothing that happened is left out of them."""

import itertools
from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from dlx_router.core.gathering import INTERVAL_MS, Gathered, Gatherer
from dlx_router.core.notices import MAX_ITEMS, MOST_KEYS, Notice

KINDS: Final = ("group.opened", "letter.parked", "breaker.opened")


def notice(key: str = "g", kind: str = "group.opened", vhost: str = "/", letters: int | None = None) -> Notice:
    item = {"failed_queue": "q", **({} if letters is None else {"letters": letters})}
    return Notice(kind, vhost, key, ("q",), item)


def told(gatherer: Gatherer, until_ms: int, every_ms: int = 500, since_ms: int = 0) -> list[tuple[int, Gathered]]:
    return [(now, gathered) for now in range(since_ms, until_ms, every_ms) for gathered in gatherer.due(now)]


def test_what_comes_within_the_interval_is_one_message() -> None:
    gatherer = Gatherer()
    for now in range(0, 4 * INTERVAL_MS, 10):
        gatherer.add(notice(f"g{now}"), now)
        assert len(gatherer.due(now)) == (1 if now and now % (INTERVAL_MS + 10) == INTERVAL_MS else 0)
    assert gatherer.due(3 * INTERVAL_MS) == []
    (last,) = gatherer.due(5 * INTERVAL_MS)
    assert (len(last.items), len(last.keys) <= MOST_KEYS, gatherer.due(10**9)) == (MAX_ITEMS, True, [])


def test_letters_of_one_group_are_summed_and_kinds_and_vhosts_are_told_apart() -> None:
    gatherer = Gatherer()
    for letters in (3, 4):
        gatherer.add(notice(kind="letter.parked", letters=letters), 0)
    gatherer.add(notice(kind="letter.parked", vhost="shop", letters=1), 0)
    gatherer.add(notice(), 0)
    messages = {(gathered.kind, gathered.vhost): gathered for gathered in gatherer.due(INTERVAL_MS)}
    assert messages["letter.parked", "/"].items == ({"failed_queue": "q", "letters": 7},)
    assert {key: gathered.total for key, gathered in messages.items()} == {
        ("letter.parked", "/"): 7, ("letter.parked", "shop"): 1, ("group.opened", "/"): 1,
    }  # fmt: skip


def test_what_a_router_leads_no_more_is_not_told_by_it() -> None:
    gatherer = Gatherer()
    gatherer.add(notice(), 0)
    gatherer.add(notice(vhost="shop"), 0)
    gatherer.drop("/")
    assert [gathered.vhost for gathered in gatherer.due(INTERVAL_MS)] == ["shop"]


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
    late = now + INTERVAL_MS + 2_000
    messages += told(gatherer, late, 1_000, since_ms=now)
    sums: dict[tuple[str, str], int] = {}
    times: dict[tuple[str, str], list[int]] = {}
    for at, gathered in messages:
        sums[gathered.kind, gathered.vhost] = sums.get((gathered.kind, gathered.vhost), 0) + gathered.total
        times.setdefault((gathered.kind, gathered.vhost), []).append(at)
    assert sums == added
    assert all(
        after - before >= INTERVAL_MS for several in times.values() for before, after in itertools.pairwise(several)
    )
