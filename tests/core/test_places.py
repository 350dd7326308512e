"""Places in a JSON body: what can be read, and where a pointer leads."""

import json
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.core.places import PARSED_BYTES, UNREADABLE, looked_up, parsed, place, steps
from tests.core.core_samples import law

# The document of RFC 6901, section 5, and what its pointers lead to.
RFC: Final[dict[str, Any]] = {
    "foo": ["bar", "baz"], "": 0, "a/b": 1, "c%d": 2, "e^f": 3, "g|h": 4, "i\\j": 5, 'k"l': 6, " ": 7, "m~n": 8,
}  # fmt: skip


@pytest.mark.parametrize(
    ("pointer", "found"),
    [
        ("", RFC),
        ("/foo", ["bar", "baz"]),
        ("/foo/0", "bar"),
        ("/", 0),
        ("/a~1b", 1),
        ("/c%d", 2),
        ("/e^f", 3),
        ("/g|h", 4),
        ("/i\\j", 5),
        ('/k"l', 6),
        ("/ ", 7),
        ("/m~0n", 8),
    ],
)
def test_pointers_lead_where_the_rfc_says(pointer: str, found: Any) -> None:
    assert place(RFC, pointer) == found
    assert looked_up(json.dumps(RFC).encode())(pointer) == found


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"{} {}",
        b"\xff\xfe\xfd",
        b"NaN",
        b"[Infinity]",
        b'{"a": -Infinity}',
        b'{"a": NaN, "a": 1}',
        b"1e999",
        pytest.param(b"9" * 5000, id="long"),
        pytest.param(b"[" * 100_000, id="deep"),
    ],
)
@pytest.mark.parametrize("unique", [False, True])
def test_what_is_no_json_is_unreadable_and_no_error(body: bytes, unique: bool) -> None:  # noqa: FBT001 - a table's cell
    assert parsed(body, unique=unique) is UNREADABLE


def test_a_body_is_read_up_to_its_limit_and_not_beyond() -> None:
    text = b'"' + b"x" * (PARSED_BYTES - 2) + b'"'
    assert parsed(text) == "x" * (PARSED_BYTES - 2)
    assert parsed(text + b" ") is UNREADABLE


@pytest.mark.parametrize("body", [b'{"a": 1, "a": 2}', b'[{"b": {"a": 1, "\\u0061": 2}}]'])
def test_a_member_that_comes_twice_is_refused_only_where_that_is_asked_for(body: bytes) -> None:
    assert parsed(body, unique=True) is UNREADABLE
    assert parsed(body) is not UNREADABLE
    assert parsed(b'{"a": {"a": 1}, "b": [{"a": 1}]}', unique=True) == {"a": {"a": 1}, "b": [{"a": 1}]}


def test_looking_up_answers_none_for_what_is_not_there() -> None:
    look = looked_up(b'{"a": [false, null]}')
    assert [look(pointer) for pointer in ("/a/0", "/a/1", "/a/2", "/b", "")] == [
        False, None, None, None, {"a": [False, None]},
    ]  # fmt: skip
    broken = looked_up(b"{")
    assert [broken(pointer) for pointer in ("", "/a", "/a/0")] == [None, None, None]


names = st.text(max_size=4) | st.sampled_from(["~", "/", "~1", "~0", "0"])


@law
@given(st.lists(names | st.integers(0, 2), max_size=4), st.integers() | st.text(max_size=4))
def test_every_place_of_a_document_has_a_pointer_that_leads_there(way: list[str | int], value: Any) -> None:
    document = value
    for step in reversed(way):
        document = {step: document} if isinstance(step, str) else [*[None] * step, document]
    pointer = "".join("/" + str(step).replace("~", "~0").replace("/", "~1") for step in way)
    assert steps(pointer) == [str(step) for step in way]
    assert place(document, pointer) == value
    assert looked_up(json.dumps(document).encode())(pointer) == value
