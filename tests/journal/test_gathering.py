"""How long a batch waits for more events: by their rate, and never so long that too few letters are on their way."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.journal.gathering import LEAST_S, MOST_S, Gathering
from tests.core.core_samples import law

pytestmark = pytest.mark.pure


def waits(gathering: Gathering, rate: float, lump: int = 25, for_s: float = 0.5, start_s: float = 100.0) -> list[float]:
    """What each batch waits, where events come in lumps, and a batch leaves when its wait is over."""
    now, until, pauses, held, leaves = start_s, start_s + for_s, [], 0, 0.0
    while now < until:
        if not held:
            pauses.append(gathering.wait_s(now))
            leaves = now + max(pauses[-1], 0.0)
        held += lump
        now += lump / rate
        if now >= leaves:
            gathering.gone(held, now)
            held = 0
    return pauses


def test_a_small_prefetch_is_never_held_up() -> None:
    """With ten letters unsettled at most, twenty milliseconds for each ten would be 500 letters a second."""
    assert max(waits(Gathering(10), 10_000, 10)) <= LEAST_S
    assert max(waits(Gathering(200), 10_000, 25)) <= 0.006


@law
@given(
    st.integers(1, 65_535),
    st.lists(st.tuples(st.integers(0, 500), st.floats(0, 10, allow_nan=False)), max_size=30),
)
def test_it_waits_between_nothing_and_its_most(prefetch: int, gone: list[tuple[int, float]]) -> None:
    gathering, now = Gathering(prefetch), 50.0
    for events, after_s in gone:
        now += after_s
        gathering.gone(events, now)
        assert LEAST_S * 0.99 <= gathering.wait_s(now) <= MOST_S * 1.01
