"""The header of a declared death: which members it has, what each may hold, and what is said of one that is wrong."""

import json
from typing import Any, Final

import pytest

from dlx_router.core.declaration import (
    MAX_FRAME,
    MAX_KEYS,
    MAX_MESSAGE,
    MAX_NAME_BYTES,
    MAX_RETRY_AFTER_MS,
    MAX_TAG,
    MAX_TYPE,
    Declaration,
    DeclarationError,
    read,
)
from dlx_router.core.letter import Declared

PLAIN: Final[dict[str, Any]] = {"queue": "work", "exchange": "shop", "routing_keys": ["k"]}


def declared(**members: Any) -> Declaration:
    return read(json.dumps(PLAIN | members).encode())


def test_everything_that_can_be_said() -> None:
    assert declared(
        reason="card.declined",
        retry="never",
        retry_after_ms=50,
        tag="t",
        error={"type": "E", "message": "m", "frame": "f"},
        description="of an error that has a message",
        original_expiration="60000",
        message_id=None,
    ) == Declaration(
        "work",
        "shop",
        ("k",),
        "application:card.declined",
        Declared(never=True, retry_after_ms=50, tag="t"),
        {"type": "E", "message": "m", "frame": "f"},
        original_expiration="60000",
        invented_id=True,
    )


@pytest.mark.parametrize("text", [b"", b"{", b"\xff", b'{"queue":}', pytest.param(b"[" * 100_000, id="deep")])
def test_what_is_not_json_is_said_to_be_none(text: bytes) -> None:
    with pytest.raises(DeclarationError, match=r"^not JSON$"):
        read(text)


@pytest.mark.parametrize("text", [b"null", b"[]", b'"work"', b"7"])
def test_json_that_is_no_object_is_none_either(text: bytes) -> None:
    with pytest.raises(DeclarationError, match=r"^not a JSON object$"):
        read(text)


@pytest.mark.parametrize(
    ("member", "value"),
    [
        ("queue", None),
        ("queue", ""),
        ("queue", 7),
        ("queue", "q" * (MAX_NAME_BYTES + 1)),
        ("queue", "é" * 128),
        ("exchange", None),
        ("exchange", ["shop"]),
        ("exchange", "x" * (MAX_NAME_BYTES + 1)),
        ("routing_keys", None),
        ("routing_keys", "k"),
        ("routing_keys", []),
        ("routing_keys", ["k"] * (MAX_KEYS + 1)),
        ("routing_keys", ["k", 7]),
        ("routing_keys", ["k" * (MAX_NAME_BYTES + 1), "k"]),
        ("reason", None),
        ("reason", 7),
        ("reason", ""),
        ("reason", "application:"),
        ("reason", "-begins"),
        ("reason", "two words"),
        ("reason", "réason"),
        ("reason", "ends\n"),
        ("reason", "r" * 65),
        ("retry", "later"),
        ("retry", False),
        ("retry", ["never"]),
        ("retry_after_ms", -1),
        ("retry_after_ms", 1.0),
        ("retry_after_ms", True),
        ("retry_after_ms", "50"),
        ("retry_after_ms", MAX_RETRY_AFTER_MS + 1),
    ],
)
def test_a_member_that_is_wrong_is_refused_by_its_name(member: str, value: Any) -> None:
    with pytest.raises(DeclarationError, match=f"^'{member}' (has to|can only)"):
        declared(**{member: value})


@pytest.mark.parametrize("member", ["queue", "routing_keys"])
def test_queue_and_keys_have_to_be_there(member: str) -> None:
    with pytest.raises(DeclarationError, match=f"^'{member}'"):
        read(json.dumps({name: value for name, value in PLAIN.items() if name != member}).encode())


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("application", "application"),
        ("application:application", "application"),
        ("boom", "application:boom"),
        ("application:boom", "application:boom"),
        ("rejected", "application:rejected"),
        ("9-a_B.c", "application:9-a_B.c"),
    ],
)
def test_a_reason_always_begins_with_application(said: str, reason: str) -> None:
    assert declared(reason=said).reason == reason


@pytest.mark.parametrize(
    ("members", "error"),
    [
        ({}, None),
        ({"error": "text"}, None),
        ({"error": {}}, None),
        ({"error": {"type": 7, "message": [], "frame": ""}}, None),
        ({"error": {"type": "E"}}, {"type": "E"}),
        ({"error": {"type": "E"}, "description": "d"}, {"type": "E", "message": "d"}),
        ({"error": {"message": ""}, "description": "d"}, {"message": "d"}),
        ({"error": {"message": "m"}, "description": "d"}, {"message": "m"}),
        ({"error": ["E"], "description": "d"}, {"message": "d"}),
        ({"error": {"other": "o", "frame": "f"}}, {"frame": "f"}),
    ],
)
def test_a_description_stands_for_the_message_of_an_error_that_has_none(
    members: dict[str, Any], error: dict[str, str] | None
) -> None:
    assert declared(**members).error == error


def test_long_texts_are_cut_to_their_length() -> None:
    declaration = declared(
        error={"type": "t" * 2000, "message": "m" * 2000, "frame": "f" * 2000}, tag="t" * 2000, description="d"
    )
    assert declaration.error is not None
    assert declaration.declared.tag is not None
    assert {name: len(text) for name, text in declaration.error.items()} == {
        "type": MAX_TYPE,
        "message": MAX_MESSAGE,
        "frame": MAX_FRAME,
    }
    assert {text[-2:] for text in declaration.error.values()} == {"t…", "m…", "f…"}
    assert len(declaration.declared.tag) == MAX_TAG


@pytest.mark.parametrize(
    ("members", "invented"), [({}, False), ({"message_id": "m-1"}, False), ({"message_id": None}, True)]
)
def test_only_an_id_that_is_said_to_be_none_was_invented(
    members: dict[str, Any],
    invented: bool,  # noqa: FBT001 - a column of the table
) -> None:
    assert declared(**members).invented_id is invented
