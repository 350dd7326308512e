"""Recovered: how long a letter has to be silent after it was given back."""

from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.core.backoff import wait_ms
from dlx_router.core.recovered import AT_LEAST_MS, is_recovered, longest_wait_ms, window_ms
from tests.core.core_samples import NOW, effective, law

HOUR: Final = 3_600_000


@pytest.mark.parametrize(
    ("longest", "window"), [(0, HOUR), (HOUR // 2, HOUR), (HOUR // 2 + 1, HOUR + 2), (5 * HOUR, 10 * HOUR)]
)
def test_the_window_is_an_hour_or_twice_the_longest_wait(longest: int, window: int) -> None:
    assert window_ms(longest) == window
    assert window >= AT_LEAST_MS


@pytest.mark.parametrize(
    ("last_event", "silent", "longest", "recovered"),
    [
        (NOW, HOUR, 0, True),
        (NOW, HOUR - 1, 0, False),
        (NOW, 0, 0, False),
        (NOW, -HOUR, 0, False),
        (NOW + 1, 10 * HOUR, 0, False),
        (NOW - 1, HOUR, 0, True),
        (NOW, 6 * HOUR, 3 * HOUR, True),
        (NOW, 6 * HOUR - 1, 3 * HOUR, False),
    ],
)
def test_a_letter_has_recovered_when_nothing_was_heard_for_its_window(
    last_event: int,
    silent: int,
    longest: int,
    recovered: bool,  # noqa: FBT001 - a column of the table
) -> None:
    answer = is_recovered(given_back_ms=NOW, last_event_ms=last_event, now_ms=NOW + silent, longest_wait_ms=longest)
    assert answer is recovered


@pytest.mark.parametrize(
    ("definition", "longest"),
    [
        ({}, 0),
        ({"max_delivery_attempts": 1, "redelivery_delay": 1000}, 0),
        ({"max_delivery_attempts": 0, "redelivery_delay": 1000}, 0),
        ({"max_delivery_attempts": 2, "redelivery_delay": 1000}, 1000),
        ({"max_delivery_attempts": 4, "redelivery_delay": 1000, "redelivery_delay_multiplier": 2.0}, 4000),
        ({"max_delivery_attempts": -1, "redelivery_delay": 1000}, 1000),
        ({"max_delivery_attempts": -1, "redelivery_delay": 1000, "redelivery_delay_multiplier": 2.0}, 10_000),
        ({"redelivery_delay": 1000, "redelivery_collision_avoidance_factor": 0.15}, 1150),
        ({"redelivery_delay": 1001, "redelivery_collision_avoidance_factor": 0.15}, 1152),
        (
            {"redelivery_delay": 1000, "redelivery_collision_avoidance_factor": 0.5, "max_redelivery_delay": 1200},
            1200,
        ),
    ],
)
def test_the_longest_wait_of_a_policy(definition: dict[str, Any], longest: int) -> None:
    assert longest_wait_ms(effective(**definition)) == longest


def test_without_a_policy_nothing_waits() -> None:
    assert longest_wait_ms(None) == 0


@law
@given(
    st.sampled_from([-1, 2, 3, 10]),
    st.integers(0, 10_000),
    st.floats(0.01, 4),
    st.floats(0, 1),
    st.integers(0, 100_000),
    st.floats(-0.999, 0.999),
)
def test_no_wait_between_two_attempts_is_longer(
    most: int, delay: int, multiplier: float, jitter: float, cap: int, draw: float
) -> None:
    policy = effective(
        max_delivery_attempts=most,
        redelivery_delay=delay,
        redelivery_delay_multiplier=multiplier,
        redelivery_collision_avoidance_factor=jitter,
        max_redelivery_delay=cap,
    )
    longest = longest_wait_ms(policy)
    assert all(wait_ms(policy, attempt, draw) <= longest for attempt in range(1, 50 if most < 0 else most))
