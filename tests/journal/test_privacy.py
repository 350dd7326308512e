"""What of a message the journal may show: nothing unasked, nothing redacted, and never a broken line."""

import base64
import json
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.journal.events import NO_BODY
from dlx_router.journal.fields import FIELDS, KINDS
from dlx_router.journal.privacy import HEAD_BYTES, INLINE_BYTES, PLAIN, Rule, disclosed
from dlx_router.journal.replay import letter_of
from dlx_router.wire import table
from tests.core.core_samples import law
from tests.journal.journal_samples import event

SECRET = "hunter2"
CARD = {"card": {"number": SECRET, "brand": "visa"}, "lines": [{"sku": 1}, {"sku": 2}], "a/b": 3, "m~n": 4}
BODY = json.dumps(CARD).encode()
HEADERS = b"".join(
    (
        table.longstr(b"X-Token", SECRET),
        table.longstr(b"tenant", "blue"),
        table.long_(b"shard", 7),
        table.boolean(b"vip", True),  # noqa: FBT003 - a field's value
        table.array_of_longstr(b"path", ["a", "b"]),
    )
)


def shown(rule: Rule, kind: str = "dead_lettered", headers: bytes = HEADERS, body: bytes = BODY) -> dict[str, Any]:
    """The event's own members of that letter."""
    document = event(extra=disclosed(rule, kind, headers=headers, body=body))
    return {name: document[name] for name in MEMBERS if name in document}


MEMBERS = ("headers", "body_values", "redacted", "error", "body_mode", "body_sha256", "body")
DIGEST = sha256(BODY).hexdigest()


def body_of(members: dict[str, Any]) -> bytes:
    return base64.b64decode(members["body"])


def test_without_a_policy_no_part_of_a_message_is_shown() -> None:
    assert disclosed(PLAIN, "dead_lettered", headers=HEADERS, body=BODY) == NO_BODY
    assert PLAIN.is_plain
    assert all(PLAIN.wants(kind) for kind in KINDS)


BODIES = [
    ("none", "dead_lettered", {"body_mode": "none"}),
    ("none", "retired", {"body_mode": "none"}),
    ("retired", "dead_lettered", {"body_mode": "none"}),
    ("retired", "retired", {"body_mode": "inline", "body_sha256": DIGEST, "body": base64.b64encode(BODY).decode()}),
    ("hash", "dead_lettered", {"body_mode": "hash", "body_sha256": DIGEST}),
    ("final", "retried", {"body_mode": "hash", "body_sha256": DIGEST}),
    ("final", "parked", {"body_mode": "inline", "body_sha256": DIGEST, "body": base64.b64encode(BODY).decode()}),
    ("all", "retried", {"body_mode": "inline", "body_sha256": DIGEST, "body": base64.b64encode(BODY).decode()}),
    ("head", "retried", {"body_mode": "inline", "body_sha256": DIGEST, "body": base64.b64encode(BODY).decode()}),
]


@pytest.mark.parametrize(("body", "kind", "expected"), BODIES)
def test_a_policy_says_how_much_of_a_body_is_shown(body: Any, kind: str, expected: dict[str, str]) -> None:
    assert shown(Rule(body=body), kind) == expected


@pytest.mark.parametrize(("body", "length"), [("head", HEAD_BYTES), ("all", INLINE_BYTES), ("final", INLINE_BYTES)])
def test_of_a_long_body_the_first_part_is_shown(body: Any, length: int) -> None:
    long = bytes(range(256)) * 1024
    members = shown(Rule(body=body), body=long)
    assert (members["body_mode"], members["body_sha256"]) == ("head", sha256(long).hexdigest())
    assert body_of(members) == long[:length]


# What a policy reads


def test_headers_that_the_policy_reads_are_shown_with_their_types() -> None:
    members = shown(Rule(headers=("tenant", "shard", "vip", "path", "absent")))
    assert {name: json.loads(value) for name, value in members["headers"].items()} == {
        "tenant": "blue",
        "shard": 7,
        "vip": True,
        "path": ["a", "b"],
    }


@pytest.mark.parametrize(
    ("name", "expected"), [("tenant", "blue"), ("shard", "7"), ("vip", "true"), ("path", None), ("absent", None)]
)
def test_a_backtest_sees_headers_as_a_template_does(name: str, expected: str | None) -> None:
    document = event(extra=disclosed(Rule(headers=(name,)), "parked", headers=HEADERS, body=b""))
    assert letter_of(document).header(name) == expected


def test_places_of_the_body_that_the_policy_reads_are_shown_and_nothing_else() -> None:
    places = ("/card/brand", "/lines/1/sku", "/a~1b", "/m~0n", "/absent", "/lines/9", "/lines/x")
    members = shown(Rule(pointers=places))
    assert members == {
        "body_values": {"/card/brand": '"visa"', "/lines/1/sku": "2", "/a~1b": "3", "/m~0n": "4"},
        "body_mode": "none",
    }


# What is redacted


RULES = [
    Rule(body="all", redact=("/card/number",)),
    Rule(body="all", redact=("/card",)),
    Rule(body="head", redact=("/card/number",)),
    Rule(body="final", redact=("/card/number",)),
    Rule(pointers=("/card/number",), redact=("/card/number",)),
    Rule(pointers=("/card",), redact=("/card/number",)),
    Rule(pointers=("/card/number",), redact=("/card",)),
    Rule(headers=("X-Token",), redact=("x-token",)),
    Rule(headers=("X-Token", "tenant"), redact=("X-Token",), body="hash"),
]


@pytest.mark.parametrize("rule", RULES, ids=str)
def test_what_is_redacted_is_nowhere_in_a_line_and_the_line_says_so(rule: Rule) -> None:
    members = shown(rule)
    assert members["redacted"]
    assert SECRET not in json.dumps(members)
    assert SECRET.encode() not in body_of(members) if "body" in members else True


UNREADABLE = [
    b"hunter2",
    b"",
    b"\xff\xfe",
    b'{"card": {"number": "hunter2"}, "card": 5}',
    b'{"card": NaN, "x": "hunter2"}',
    b'{"card": 1e999, "x": "hunter2"}',
    b"[" * 100_000 + b"]" * 100_000,
    b'{"x": ' + b"9" * 5000 + b"}",
    b'{"x": "' + b"y" * (2 << 20) + b'"}',
]


@pytest.mark.parametrize("body", UNREADABLE, ids=range(len(UNREADABLE)))
def test_a_body_that_should_be_redacted_and_cannot_be_is_left_out(body: bytes) -> None:
    members = shown(Rule(body="all", pointers=("/card",), redact=("/card/number",)), body=body)
    assert members["body_mode"] == "none"
    assert "body" not in members
    assert SECRET not in json.dumps(members)


ODD = [
    ("d", float("nan")),
    ("d", float("inf")),
    ("x", b"\x00\xff"),
    ("S", b'\xff"\n'),
    ("T", 2**63),
    ("V", None),
    ("F", [("S", "S", b"inner")]),
]


@pytest.mark.parametrize(("tag", "value"), ODD)
def test_a_header_of_any_type_breaks_no_line(tag: str, value: Any) -> None:
    members = shown(Rule(headers=("odd",)), headers=table.encode([("odd", tag, value)]))
    assert "odd" in members["headers"]


@law
@given(
    st.binary(max_size=200),
    st.binary(max_size=200),
    st.sampled_from(["none", "hash", "head", "retired", "final", "all"]),
)
def test_no_bytes_break_a_line(headers: bytes, body: bytes, mode: Any) -> None:
    rule = Rule(body=mode, headers=("a",), pointers=("/a",), redact=("/a/b",))
    assert set(event(extra=disclosed(rule, "parked", headers=headers, body=body))) <= {field.name for field in FIELDS}


# -- what an error says was in a header ------------------------------------------------------------------------------

ERROR = {"type": f"Broke {SECRET}", "message": f"card {SECRET}", "frame": f"pay {SECRET}"}
MADE_OF = [
    ("X-Error-Message", {"message"}),
    ("x-exception-message", {"message"}),
    ("x-error-type", {"type"}),
    ("x-error-frame", {"frame"}),
    ("x-exception-stacktrace", {"type", "message", "frame"}),
    ("NServiceBus.ExceptionInfo.ExceptionType", {"type"}),
    ("NServiceBus.ExceptionInfo.Message", {"message"}),
    ("nservicebus.exceptioninfo.stacktrace", {"frame"}),
    ("MT-Fault-ExceptionType", {"type"}),
    ("mt-fault-message", {"message"}),
    ("MT-Fault-StackTrace", {"frame"}),
    ("dlx-death", {"type", "message", "frame"}),
    ("x-other", set[str]()),
]


@pytest.mark.parametrize(("name", "hidden"), MADE_OF)
def test_what_an_error_was_made_of_is_redacted_in_the_error_too(name: str, hidden: set[str]) -> None:
    document = event(extra=disclosed(Rule(redact=(name,)), "parked", headers=b"", body=b"", error=ERROR))
    left = {member: text for member, text in ERROR.items() if member not in hidden}
    assert document.get("error", {}) == left
    assert [path.lower() for path in document.get("redacted", [])] == ([name.lower()] if hidden else [])


def test_an_error_that_says_nothing_of_a_redacted_header_is_told_without_a_word_of_it() -> None:
    document = event(
        extra=disclosed(Rule(redact=("x-error-frame",)), "parked", headers=b"", body=b"", error={"type": "T"})
    )
    assert ("redacted" in document, document["error"]) == (False, {"type": "T"})
