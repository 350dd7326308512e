"""Outage, alert and retention as values: what is set, and how each is told."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.core.limits import KEEP, Alert, Retention
from tests.core.core_samples import law


@pytest.mark.parametrize(
    ("alert", "said"),
    [
        (Alert(), {}),
        (Alert(depth=0), {"depth": 0.0}),
        (Alert(oldest_ms=90_500), {"oldest": 90.5}),
        (Alert(rate=0.25), {"rate": 0.25}),
        (Alert(depth=100, oldest_ms=3_600_000, rate=5), {"depth": 100.0, "oldest": 3600.0, "rate": 5.0}),
    ],
)
def test_an_alert_tells_the_thresholds_that_are_set_and_the_age_in_seconds(
    alert: Alert, said: dict[str, float]
) -> None:
    assert alert.thresholds() == said
    assert all(isinstance(value, float) for value in alert.thresholds().values())


counts = st.none() | st.integers(0, 9)


@law
@given(counts, counts, counts)
def test_a_retention_is_set_where_any_limit_is_zero_included(
    ttl: int | None, length: int | None, size: int | None
) -> None:
    assert Retention(ttl, length, size).is_set is not ((ttl, length, size) == (None, None, None))


def test_to_keep_everything_is_no_retention() -> None:
    assert not KEEP.is_set
