"""Recovered: what counts as helped, and how long a letter has to be silent after it was given back."""

import sqlite3
from contextlib import closing
from typing import Final

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from dlx_router.core.backoff import wait_ms
from dlx_router.core.recovered import (
    AT_LEAST_MS,
    fate,
    fate_sql,
    given_back_ms,
    given_back_sql,
    longest_wait_ms,
    tried,
    try_sql,
    window_ms,
)
from dlx_router.journal.fields import KINDS
from tests.core.core_samples import NOW, effective, hard_law, law

HOUR: Final = 3_600_000


@pytest.mark.parametrize(
    ("longest", "window"), [(0, HOUR), (HOUR // 2, HOUR), (HOUR // 2 + 1, HOUR + 2), (5 * HOUR, 10 * HOUR)]
)
def test_the_window_is_an_hour_or_twice_the_longest_wait(longest: int, window: int) -> None:
    assert window_ms(longest) == window
    assert window >= AT_LEAST_MS


@pytest.mark.parametrize(
    ("kind", "due", "silent", "longest", "answer"),
    [
        ("retried", None, HOUR, 0, "recovered"),
        ("retried", None, HOUR - 1, 0, "open"),
        ("retried", NOW + 5, HOUR, 0, "open"),  # it waits until then
        ("retried", NOW + 5, HOUR + 5, 0, "recovered"),
        ("retried", NOW + 2 * HOUR, HOUR, 0, "open"),
        ("retried", None, 6 * HOUR, 3 * HOUR, "recovered"),
        ("retried", None, 6 * HOUR - 1, 3 * HOUR, "open"),
        ("retried", None, -HOUR, 0, "open"),
        ("retried", 2**63 - 1, HOUR, 0, "recovered"),  # of no time: at once
        ("retried", -(2**63), HOUR - 1, 0, "open"),
        ("retried", 253_402_300_800_000, HOUR, 0, "recovered"),  # the year 10000, which no date has
        ("retried", 253_402_300_799_999, HOUR, 0, "open"),
        ("redriven", NOW + 5 * HOUR, HOUR, 0, "recovered"),  # at once, whatever it waited for before
        ("redriven", None, HOUR - 1, 0, "open"),
        ("held", NOW, 99 * HOUR, 0, "held"),
        ("dead_lettered", None, 99 * HOUR, 0, "dead_lettered"),
        ("retired", None, 99 * HOUR, 0, "retired"),
    ],
)
def test_a_letter_has_recovered_when_nothing_was_heard_for_its_window(
    kind: str, due: int | None, silent: int, longest: int, answer: str
) -> None:
    assert fate(kind, NOW, due, as_of_ms=NOW + silent, window_ms=window_ms(longest)) == answer


@pytest.mark.parametrize(
    ("next_kind", "answer"),
    [
        (None, "recovered"),
        ("held", "refused"),
        ("retried", "failed"),
        ("dead_lettered", "failed"),
        ("discarded", "failed"),
        ("redriven", "open"),
        ("retired", "open"),
    ],
)
def test_a_time_that_a_letter_was_given_back_ends_with_the_next_event(next_kind: str | None, answer: str) -> None:
    assert tried("retried", NOW, None, next_kind=next_kind, as_of_ms=NOW + HOUR, window_ms=HOUR) == answer


KINDS_OF_A_LETTER: Final = sorted({*KINDS} - {"audit", "gap"})
GIVEN_BACK: Final = ("retried", "redriven")
moments: Final = st.integers(NOW - 3 * HOUR, NOW + 3 * HOUR) | st.sampled_from(
    [NOW, NOW - HOUR - 1, NOW - HOUR, NOW - HOUR + 1, NOW - 2 * HOUR, NOW - 3 * HOUR]
)


# A stream may say anything of a time that SQLite and Spark have a number for.
due: Final = (
    st.none()
    | moments
    | st.sampled_from([-(2**63), -1, 0, 253_402_300_799_999, 253_402_300_800_000, 253_402_300_800_001, 2**63 - 1])
)


@settings(hard_law, phases=[Phase.explicit, Phase.generate])  # a row is small; its neighbours do no harm
@given(
    st.lists(
        st.tuples(
            st.sampled_from(GIVEN_BACK) | st.sampled_from(KINDS_OF_A_LETTER),
            moments,
            due,
            st.none() | st.sampled_from(KINDS_OF_A_LETTER),
        ),
        min_size=20,
        max_size=40,
    ),
    st.sampled_from([0, HOUR]) | st.integers(0, HOUR),
)
def test_the_expression_for_columns_is_the_rule(
    rows: list[tuple[str, int, int | None, str | None]], longest: int
) -> None:
    window = window_ms(longest)
    with closing(sqlite3.connect(":memory:")) as file:
        file.execute("CREATE TABLE e (kind, ts_ms, due_ms, next_kind)")
        file.executemany("INSERT INTO e VALUES (?, ?, ?, ?)", rows)
        asked = (f(as_of_ms=NOW, window=str(window)) for f in (fate_sql, try_sql))
        answers = file.execute(f"SELECT {', '.join(asked)}, {given_back_sql()} FROM e ORDER BY rowid").fetchall()
    assert answers == [
        (
            fate(kind, ts_ms, due_ms, as_of_ms=NOW, window_ms=window),
            tried(kind, ts_ms, due_ms, next_kind=following, as_of_ms=NOW, window_ms=window),
            given_back_ms(kind, ts_ms, due_ms),
        )
        for kind, ts_ms, due_ms, following in rows
    ]


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
