"""Which brokers a test runs on: every seed leaves each test one, and all seeds together leave none out."""

from collections import Counter
from typing import Final

import pytest

from tests.support.version_draw import versions

NAMED: Final = ["3.10", "4.0", "4.3"]
TEST: Final = "tests/redrive/test_edit.py::test_x[-late]"


@pytest.mark.parametrize("slow", [True, False])
def test_of_many_seeds_each_version_has_its_share(slow: bool) -> None:  # noqa: FBT001 - a parameter of the test
    drawn = Counter(version for seed in range(3000) for version in versions(TEST, NAMED, slow=slow, seed=seed))
    assert set(drawn) == {*NAMED}
    assert min(drawn.values()) >= 900, drawn


@pytest.mark.parametrize("seed", range(20))
def test_a_test_runs_on_one(seed: int) -> None:
    assert [len(versions(TEST, NAMED, slow=slow, seed=seed)) for slow in (False, True)] == [1, 1]
    assert versions(TEST, ["4.0"], slow=True, seed=seed) == ["4.0"]
