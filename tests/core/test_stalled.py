"""Whether a consumer stands still: by counts alone, and never for a moment that only looks like it."""

from hypothesis import given
from hypothesis import strategies as st

from dlx_router.core.stalled import MOST_S, Look, Stand, judged

STANDS = Look(at_s=0.0, ready=40, consumers=1, last_tag=7, owed=True)


def last(*looks: Look) -> Stand:
    stand = None
    for look in looks:
        stand = judged(stand, look)
    assert stand is not None
    return stand


def every_two_seconds(*looks: Look) -> list[Look]:
    return [look._replace(at_s=2.0 * at) for at, look in enumerate(looks)]


def test_an_empty_queue_does_not_stand_unless_nobody_consumes_it() -> None:
    empty = STANDS._replace(ready=0)
    assert last(*every_two_seconds(empty, empty, empty)).for_s == 0
    lost = empty._replace(consumers=0)
    assert last(*every_two_seconds(lost, lost, lost)).for_s == 4.0


def test_time_in_which_nobody_looked_counts_little() -> None:
    assert last(STANDS, STANDS._replace(at_s=600.0)).for_s == MOST_S


looks = st.lists(
    st.builds(
        Look,
        at_s=st.floats(0, 1e6),
        ready=st.integers(0, 5),
        consumers=st.integers(0, 3),
        last_tag=st.integers(0, 3),
        owed=st.booleans(),
    ),
    min_size=2,
    max_size=12,
)


@given(looks)
def test_it_stands_only_while_every_look_says_so_and_no_longer_than_that(seen: list[Look]) -> None:
    seen.sort(key=lambda look: look.at_s)
    stand = last(*seen)
    if stand.for_s:
        assert seen[-1].lacks
        assert seen[-2].lacks
        assert seen[-1].last_tag == seen[-2].last_tag
        assert stand.for_s <= seen[-1].at_s - seen[0].at_s


@given(looks)
def test_a_consumer_that_moves_between_any_two_looks_never_stands(seen: list[Look]) -> None:
    seen.sort(key=lambda look: look.at_s)
    stand = None
    for tag, look in enumerate(seen):
        stand = judged(stand, look._replace(last_tag=tag))
        assert stand.for_s == 0
