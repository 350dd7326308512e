"""What others nested is shown: in lines where it is shallow, in one where it is deep, and never an error."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.core.nested_json import MAX_DEPTH, TOO_DEEP, in_a_line, in_lines, is_deep

BODY_BYTES = 65_536
DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def nested(depth: int, innermost: Any = ()) -> Any:
    """Lists in each other."""
    document: Any = [*innermost]
    for _ in range(depth - 1):
        document = [document]
    return document


@given(DOCUMENTS)
def test_what_is_shown_is_the_document(document: Any) -> None:
    for text in (in_lines(document), in_a_line(document), in_lines(document, ensure_ascii=True)):
        assert json.loads(text) == document
    assert "\n" not in in_a_line(document)


@pytest.mark.parametrize(("depth", "deep"), [(1, False), (MAX_DEPTH, False), (MAX_DEPTH + 1, True), (100_000, True)])
def test_levels_are_counted_and_no_stack_ends(depth: int, *, deep: bool) -> None:
    assert (is_deep(nested(depth)), is_deep(nested(depth, [1, "a"]))) == (deep, deep)
    assert not is_deep("[" * depth)


def test_objects_and_lists_in_each_other_are_levels_alike() -> None:
    document: Any = 1
    for _ in range(MAX_DEPTH // 2):
        document = {"a": [document], "b": []}
    assert (is_deep(document), is_deep([document])) == (False, True)


@pytest.mark.parametrize("depth", [1, MAX_DEPTH, MAX_DEPTH + 1, 200, 900])
def test_what_is_shown_takes_little_memory_however_it_is_nested(depth: int) -> None:
    """64 KiB were 55 MB."""
    numbers = [1] * ((BODY_BYTES - 2 * depth) // 2)
    assert len(in_lines(nested(depth, numbers))) < 8_000_000


def test_what_json_cannot_write_for_its_depth_is_said() -> None:
    assert in_lines(nested(100_000)) == in_a_line(nested(100_000)) == TOO_DEEP
    assert json.loads(TOO_DEEP)
