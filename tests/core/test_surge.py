"""Surges: told once where a group dies far more often than it usually does, never while nobody knows what is usual."""

from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from dlx_router.core.surge import FACTOR, KNOWN_MS, MIN_DEATHS, MINUTE_MS, RECENT, Surge, Surges


class Watched:
    """A group whose deaths are given minute by minute."""

    def __init__(self) -> None:
        self.surges, self.total, self.now = Surges(), 0, 0
        self.surges.seen("g", 0, 0)

    def minute(self, deaths: int) -> Surge | None:
        """One minute with so many deaths."""
        self.now += MINUTE_MS
        self.total += deaths
        return self.surges.seen("g", self.total, self.now)


def test_what_is_usual_is_no_surge_and_far_more_is_one_told_once() -> None:
    watched = Watched()
    assert [watched.minute(10) for _ in range(120)] == [None] * 120
    surges = [watched.minute(100) for _ in range(10)]
    assert [surge is not None for surge in surges].count(True) == 1
    (surge,) = (surge for surge in surges if surge is not None)
    assert surge.deaths >= FACTOR * surge.usual
    assert 45 <= surge.usual <= 55


def test_a_quiet_group_needs_some_deaths_to_surge() -> None:
    watched = Watched()
    for _ in range(60):
        watched.minute(0)
    assert watched.minute(MIN_DEATHS - 1) is None
    assert watched.minute(1) == Surge(MIN_DEATHS, 0.0)


def test_nothing_is_told_before_anybody_knows_what_is_usual() -> None:
    watched = Watched()
    surges = [watched.minute(1000) for _ in range(KNOWN_MS // MINUTE_MS + 60)]
    assert surges == [None] * len(surges), "what it always did is usual"


def test_a_second_surge_is_told_after_the_first_is_over() -> None:
    watched = Watched()
    for _ in range(120):
        watched.minute(1)
    assert sum(watched.minute(50) is not None for _ in range(5)) == 1
    for _ in range(30):
        watched.minute(1)
    assert sum(watched.minute(60) is not None for _ in range(5)) == 1


def test_a_group_that_was_silent_for_long_may_surge_again_though_nobody_looked_meanwhile() -> None:
    watched = Watched()
    for _ in range(60):
        watched.minute(0)
    assert watched.minute(100) is not None
    watched.now += 10 * 60 * MINUTE_MS
    assert watched.minute(100) is not None


def test_an_index_or_a_clock_that_begins_anew_is_no_surge() -> None:
    watched = Watched()
    for _ in range(60):
        watched.minute(5)
    assert watched.surges.seen("g", 3, watched.now) is None
    assert watched.surges.seen("g", 5_000, watched.now - 10 * MINUTE_MS) is None
    assert watched.surges.seen("g", 10_000, watched.now) is None


RATES: Final = st.lists(st.integers(0, 400), min_size=1, max_size=200)


@given(RATES)
def test_a_surge_has_its_reasons_and_no_minute_goes_on_for_ever(rates: list[int]) -> None:
    watched = Watched()
    for number, deaths in enumerate(rates):
        surge = watched.minute(deaths)
        if surge is None:
            continue
        assert watched.now >= KNOWN_MS
        assert surge.deaths == sum(rates[max(0, number + 1 - RECENT) : number + 1]) >= MIN_DEATHS
        past = rates[: max(0, number + 1 - RECENT)]
        assert min([0, *past]) <= surge.usual / RECENT <= max([0, *past])
