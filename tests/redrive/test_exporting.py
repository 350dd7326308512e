"""What a line of an export says: all of a letter, and nothing that its policy redacts."""

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.core.letter import Props
from dlx_router.journal.privacy import PLAIN, Rule
from dlx_router.redrive.export_format import line
from dlx_router.wire import table
from tests.core.core_samples import NOW, law, letter
from tests.journal.journal_samples import props

SECRET = "hunter2"
HEADERS = b"".join(
    (
        table.longstr(b"X-Token", SECRET),
        table.long_(b"shard", 7),
        table.boolean(b"vip", True),  # noqa: FBT003 - a field's value
        table.longstr(b"raw", b"\xff"),
        table.array_of_longstr(b"path", ["a", "b"]),
        table.field_table(b"nested", table.long_(b"inside", 1)),
        table.longstr(b"dlx-router", '{"mac":"secret of ours"}'),
        table.longstr(b"dlx-router-id", "1"),
    )
)
BODY = json.dumps({"card": {"number": SECRET}, "order": 7}).encode()


def exported(rule: Rule = PLAIN, body: bytes = BODY, headers: bytes = HEADERS, **fields: Any) -> dict[str, Any]:
    """The line, read again."""
    first = Props(message_id="m-1", expiration="60000", priority=5, delivery_mode=1)
    now = props(message_id=b"m-1", content_type=b"application/json", delivery_mode=2, headers=headers, timestamp=12)
    written = line(letter(**fields), now, first, body, group="g1-x", rule=rule)
    assert b"\n" not in written
    document = json.loads(written)
    assert isinstance(document, dict)
    return document


def test_a_line_tells_the_whole_letter() -> None:
    row = exported(redrives=1, state="dead", cause="attempts_spent", error={"type": "Broke"})
    assert base64.b64decode(row["body"]) == BODY
    assert row["headers"] == {
        "X-Token": SECRET, "shard": 7, "vip": True, "raw": "\udcff", "path": ["a", "b"], "nested": {"inside": 1},
    }  # fmt: skip
    assert row["properties"] == {
        "message_id": "m-1", "content_type": "application/json", "expiration": "60000", "priority": 5,
        "delivery_mode": 1, "timestamp": 12,
    }  # fmt: skip
    (death,) = row["deaths"]
    assert (death["queue"], death["exchange"], death["time_ms"]) == ("work", "shop", NOW)
    assert (row["redrives"], row["state"], row["cause"], row["error"], row["redacted"]) == (
        1, "dead", "attempts_spent", {"type": "Broke"}, [],
    )  # fmt: skip


@pytest.mark.parametrize("name", ["X-Token", "x-token", "X-TOKEN"])
def test_a_redacted_header_is_in_no_line(name: str) -> None:
    row = exported(Rule(redact=(name,)), body=b"plain", shadowed={"x-token": SECRET, "other": "kept"})
    assert SECRET not in json.dumps(row)
    assert (row["redacted"], row["shadowed"], row["headers"]["shard"]) == (["X-Token"], {"other": "kept"}, 7)


def test_a_redacted_place_is_hidden_and_a_body_that_nobody_can_read_is_left_out() -> None:
    rule = Rule(redact=("/card/number", "/absent"))
    row = exported(rule)
    assert json.loads(base64.b64decode(row["body"])) == {"card": {"number": "***"}, "order": 7}
    assert row["redacted"] == ["/card/number"]
    for body in (SECRET.encode(), b'{"card":{"number":"hunter2"},"card":{}}'):
        row = exported(rule, body=body)
        assert ("body" in row, row["redacted"], row["size"]) == (False, ["/absent", "/card/number"], len(body))


def test_a_header_that_nests_too_deep_is_told_in_base64() -> None:
    deep = table.field_table(b"deep", b"")
    for _ in range(200):
        deep = table.field_table(b"deep", deep)
    row = exported(headers=deep + table.long_(b"shard", 7))
    assert base64.b64decode(row["headers"]["deep"]["base64"])[:1] == b"F"
    assert row["headers"]["shard"] == 7


@law
@given(
    st.dictionaries(st.text("abXY", min_size=1, max_size=4), st.integers(0, 9), max_size=5),
    st.lists(st.text("abXY", min_size=1, max_size=4), max_size=3),
)
def test_every_header_is_told_or_said_to_be_hidden(headers: dict[str, int], hidden: list[str]) -> None:
    data = b"".join(table.long_(name.encode(), number) for name, number in headers.items())
    row = exported(Rule(redact=tuple(hidden)), headers=data)
    folded = {name.casefold() for name in hidden}
    assert {*row["headers"], *row["redacted"]} == {*headers}
    assert {name for name in row["headers"] if name.casefold() in folded} == set()


@pytest.mark.parametrize("name", ["x-error-message", "X-Exception-Message", "dlx-death"])
def test_what_was_derived_from_a_redacted_header_is_in_no_line(name: str) -> None:
    row = exported(Rule(redact=(name, "x-token", "/card")), error={"message": f"card {SECRET}", "type": "T"})
    assert SECRET not in json.dumps(row)
    assert name.lower() in row["redacted"]
    assert ("message" in row.get("error", {})) is False
