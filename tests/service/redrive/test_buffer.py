"""What tasks hold of letters has a bound in bytes, and one letter that is larger passes all the same."""

from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.service.redrive.sender import AHEAD_BYTES, ReadAhead

MIB = 1 << 20


def ahead(*weights: int) -> ReadAhead:
    """These letters wait."""
    todo = ReadAhead(0)
    for weight in weights:
        job: Any = SimpleNamespace(weight=weight)
        todo.put(job)
    return todo


@pytest.mark.parametrize(("weights", "most", "room_bytes", "fit"), [
    ([1, 1, 1], 3, 3, 3),
    ([1, 1, 1], 2, 100, 2),
    ([5, 5, 5], 3, 6, 2),  # the last is larger than what is left
    ([5, 5, 5], 3, 5, 1),
    ([5, 5, 5], 3, 0, 0),
    ([5, 5, 5], 3, -1, 0),
    ([100], 1, 1, 1),
])  # fmt: skip
def test_as_many_go_as_fit_and_the_last_may_be_larger(weights: list[int], most: int, room_bytes: int, fit: int) -> None:
    assert ahead(*weights).fitting(most, room_bytes) == fit


@given(st.lists(st.integers(1, 50), min_size=1, max_size=60), st.integers(1, 40))
def test_what_is_on_its_way_never_passes_its_bound_by_more_than_a_letter_and_all_go(
    weights: list[int], bound: int
) -> None:
    todo, flying = ahead(*weights), deque[int]()
    while todo:
        for _ in range(todo.fitting(len(todo), bound - sum(flying))):
            flying.append(todo.next().weight)
        assert flying, "nothing is on its way, and something waits: that is for ever"
        assert sum(flying) - flying[-1] < bound
        flying.popleft()


def test_what_waits_has_room_again_once_a_letter_larger_than_all_room_has_gone() -> None:
    todo = ahead(AHEAD_BYTES + 1)
    assert todo.is_full
    assert not todo.has_room
    todo.next()
    assert todo.has_room
