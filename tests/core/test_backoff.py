"""Waits: Artemis' own numbers, and laws that hold for any policy and any count."""

import math
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.core.backoff import base_delay_ms, ladder_ms, wait_ms
from tests.core.core_samples import effective, law


class Keys(NamedTuple):
    delay_ms: int
    multiplier: float
    cap_ms: int
    jitter: float = 0.0


DOUBLING = Keys(5000, 2.0, 15_000)
CROWD = Keys(1000, 1.0, 15_000, 0.5)
EXAMPLE_QUEUE = Keys(5000, 1.5, 50_000, 0.15)


@pytest.mark.parametrize(("attempts", "wait"), [(1, 5000), (2, 10_000), (3, 15_000), (4, 15_000), (10**9, 15_000)])
def test_artemis_doubles_five_seconds_up_to_fifteen(attempts: int, wait: int) -> None:
    assert wait_ms(DOUBLING, attempts, 0.0) == wait


@pytest.mark.parametrize(("draw", "wait"), [(-0.25, 875), (0.75, 1375), (-0.05, 975), (0.0, 1000)])
def test_artemis_avoids_collisions(draw: float, wait: int) -> None:
    assert wait_ms(CROWD, 1, draw) == wait


@pytest.mark.parametrize(
    ("attempts", "base"), [(1, 5000), (2, 7500), (3, 11_250), (4, 16_875), (6, 37_968), (7, 50_000)]
)
def test_the_example_queue_of_artemis(attempts: int, base: int) -> None:
    assert base_delay_ms(EXAMPLE_QUEUE, attempts) == base


@pytest.mark.parametrize(
    ("draw", "wait"), [(-0.999999, 7500), (-0.5, 9375), (0.0, 11_250), (0.5, 13_125), (0.999999, 15_000)]
)
def test_at_the_cap_the_crowd_spreads_below_it(draw: float, wait: int) -> None:
    assert wait_ms(Keys(15_000, 1.0, 15_000, 0.5), 1, draw) == wait


@pytest.mark.parametrize(
    ("keys", "attempts", "base"),
    [
        pytest.param(Keys(0, 2.0, 0), 5, 0, id="no delay"),
        pytest.param(Keys(-1, 2.0, 10), 5, 0, id="a negative delay is none"),
        pytest.param(Keys(10, 2.0, 0), 5, 0, id="no cap left"),
        pytest.param(Keys(10, 2.0, 5), 1, 5, id="a cap below the delay"),
        pytest.param(Keys(10, 1.0, 5), 1, 5, id="a cap below the delay, constant"),
        pytest.param(Keys(1000, 1.0, 9000), 10**9, 1000, id="constant for ever"),
        pytest.param(Keys(1000, 2.0, 9000), 0, 1000, id="no attempt yet counts as one"),
        pytest.param(Keys(1000, 2.0, 9000), -7, 1000, id="a negative count counts as one"),
        pytest.param(Keys(1000, 0.5, 9000), 3, 250, id="shrinking"),
        pytest.param(Keys(1000, 0.5, 9000), 10**9, 0, id="shrunk to nothing"),
        pytest.param(Keys(1000, 0.0, 9000), 1, 1000, id="multiplier 0, first"),
        pytest.param(Keys(1000, 0.0, 9000), 2, 0, id="multiplier 0, later"),
        pytest.param(Keys(1000, -2.0, 9000), 2, 0, id="a negative multiplier"),
        pytest.param(Keys(1000, 1e308, 9000), 10**9, 9000, id="a huge multiplier"),
        pytest.param(Keys(1, math.nextafter(1, 2), 9000), 10**9, 1, id="a multiplier hardly over 1"),
    ],
)
def test_odd_keys_have_a_wait_too(keys: Keys, attempts: int, base: int) -> None:
    assert base_delay_ms(keys, attempts) == base
    assert wait_ms(keys, attempts, 0.5) == base


def test_the_cap_is_ten_delays_unless_it_is_said() -> None:
    assert effective(redelivery_delay=500).cap_ms == 5000
    assert effective(redelivery_delay=500, max_redelivery_delay=700).cap_ms == 700
    assert effective(redelivery_delay=500, max_redelivery_delay=0).cap_ms == 0
    assert effective().delay_ms == effective().cap_ms == 0


keys = st.builds(
    Keys,
    st.integers(0, 10**12),
    st.floats(0, 1e6) | st.floats(0.5, 3),
    st.integers(0, 10**13),
    st.floats(0, 1),
)
counts = st.integers(-5, 40) | st.integers(0, 10**9)
draws = st.floats(-1, 1)


@law
@given(keys, counts, draws)
def test_a_wait_is_never_negative_and_never_over_the_cap(policy: Keys, attempts: int, draw: float) -> None:
    assert 0 <= wait_ms(policy, attempts, draw) <= policy.cap_ms


@law
@given(keys.filter(lambda policy: policy.multiplier >= 1), counts)
def test_the_base_never_shrinks_with_another_failure(policy: Keys, attempts: int) -> None:
    assert base_delay_ms(policy, attempts) <= base_delay_ms(policy, attempts + 1)


@law
@given(keys, counts, draws, draws)
def test_a_higher_draw_never_waits_less(policy: Keys, attempts: int, draw: float, other: float) -> None:
    low, high = sorted((draw, other))
    assert wait_ms(policy, attempts, low) <= wait_ms(policy, attempts, high)


@law
@given(st.integers(1, 10**9), st.floats(0, 1), st.integers(1, 20), draws)
def test_far_below_the_cap_it_is_artemis_formula(delay: int, jitter: float, attempts: int, draw: float) -> None:
    policy = Keys(delay, 1.0, 2 * delay, jitter)
    assert wait_ms(policy, attempts, draw) == pytest.approx(delay * (1 + jitter * draw), abs=1)


# The ladder of held letters


def test_the_ladder_doubles_from_a_second_to_five_minutes() -> None:
    assert [ladder_ms(tries) // 1000 for tries in range(1, 12)] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]
    assert ladder_ms(0) == ladder_ms(-3) == 1000
    assert ladder_ms(10**9) == 300_000
