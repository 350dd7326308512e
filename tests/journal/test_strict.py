"""What a journal holds may have been written by anybody: numbers that JSON lacks stop no reader."""

import json
from math import isfinite
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.admin.api.answers import Answer
from dlx_router.journal.strict_json import decoded
from dlx_router.redrive.canary import Flock
from dlx_router.redrive.task_events import letters

DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=5), children, max_size=3),
)


def _is_finite(document: Any) -> bool:
    if isinstance(document, dict):
        return all(map(_is_finite, document.values()))
    if isinstance(document, list):
        return all(map(_is_finite, document))
    return not isinstance(document, float) or isfinite(document)


@given(DOCUMENTS)
def test_what_is_read_can_be_told_again(document: Any) -> None:
    text = json.dumps(document)
    if _is_finite(document):
        assert decoded(text) == document
    else:
        with pytest.raises(ValueError, match="is no number"):
            decoded(text)


@given(DOCUMENTS)
def test_every_answer_is_json(document: Any) -> None:
    """Also of what an older version had stored."""

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    answer = json.loads(bytes(Answer({"found": document}).body), parse_constant=refuse)
    assert _is_finite(answer)
    if _is_finite(document):
        assert answer == {"found": document}


@pytest.mark.parametrize("name", ["id", "failed_queue", "kind", "redrive_id"])
@pytest.mark.parametrize("odd", [["a"], {"a": 1}, 7, True])
def test_an_event_whose_keys_are_no_text_stops_nobody_who_counts_letters(name: str, odd: Any) -> None:
    good = {"id": "b", "failed_queue": "q", "kind": "parked"}
    batch = json.dumps(good | {name: odd}).encode() + b"\n" + json.dumps(good).encode()
    flock = Flock("task")
    for event in letters(batch):
        flock.hear(event)
    assert [*letters(batch)] == [good]
