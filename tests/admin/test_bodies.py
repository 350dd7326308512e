"""Why a letter is shown without a body, or without all of it: each cause has its sentence, and says what now."""

import json
from typing import Any, Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dlx_router.admin.api.bodies import body_of
from dlx_router.core.nested_json import MAX_DEPTH, in_lines
from dlx_router.journal.privacy import INLINE_BYTES

DLQ: Final = {"exchange": "", "routing_key": "DLQ.orders"}
HASH: Final = ("hash", "ab12", None, None)


def letter_with(
    *, stored: Any = None, kind: str = "dead_lettered", state: str = "dead", **given: Any
) -> dict[str, Any]:
    """A letter that is as given, as the index knows it."""
    event = {"kind": kind, "body_mode": "none" if stored is None else stored[0]}
    letter = {"id": "7f", "vhost": "/", "failed_queue": "orders", "state": state, "policy": "orders", "size": 90_000,
              "target": DLQ, "sent_to": None, "journey": [{"kind": "dead_lettered"}], "event": event,
              "stored": stored} | given  # fmt: skip
    if given.get("event"):
        letter["event"] = event | given["event"]
    return letter


def explained(**given: Any) -> dict[str, Any]:
    """What is said of the body of a letter that is as given."""
    return body_of(letter_with(**given), as_hex=False)


READS: Final = "`dlx-router letters export --from DLQ.orders --id 7f` reads it there"
ABSENT: Final = [
    ({}, "no body of it, as `journal` of policy orders said when it was decided", READS),
    ({"policy": None, "state": "parked", "kind": "parked"}, "no policy decided about it", READS),
    ({"event": None}, "imported, which reads no bodies", READS),
    ({"event": {"redacted": ["x-token", "/card"]}}, "redacted as a whole: policy orders redacts /card, and", READS),
    ({"event": {"redacted": ["/card"], "body_values": {}}}, "or it shows no body at all", READS),
    ({"stored": HASH}, "SHA-256 only, as `journal` of policy orders said", READS),
    (
        {"stored": HASH, "kind": "retried", "state": "retrying", "target": None},
        "SHA-256 only",
        "it waits, and comes back to orders with its body",
    ),
    (
        {"state": "redriven", "target": None, "sent_to": {"exchange": "", "routing_key": "orders.again"}},
        "no body",
        "it has left the router, and who consumes orders.again has the body",
    ),
    ({"state": "gone", "target": None}, "no body", "somebody else took it from its queue"),
    ({"state": "retired", "target": None}, "no body", "it is in no queue any more"),
    ({"target": {"exchange": "dlx", "routing_key": "k"}}, "no body", "it went to exchange dlx with key k: `"),
    ({"vhost": "a b"}, "no body", "--from DLQ.orders --vhost 'a b' --id 7f"),
]  # fmt: skip


@pytest.mark.parametrize(("given", "why", "now"), ABSENT)
def test_a_body_that_is_absent_has_its_cause_and_what_to_do_now(given: dict[str, Any], why: str, now: str) -> None:
    body = explained(**given)
    assert (body["form"], body["content"]) == ("none", None)
    assert why in body["why"]
    assert now in body["why"]


PARTLY: Final = [
    (("inline", "ab", "text/plain", b"whole"), {}, None),
    (("head", "ab", "text/plain", b"x" * 65_536), {}, "first 65536 of 90000 bytes: an event holds no more; `"),
    (("head", "ab", "text/plain", b"x" * 1024), {}, "first 1024 of 90000 bytes: `journal` of policy orders said {"),
    (("inline", "ab", "application/json", b"{}"), {"redacted": ["/card"]}, "orders redacts /card: *** stands there"),
]  # fmt: skip


@pytest.mark.parametrize(("stored", "event", "why"), PARTLY)
def test_a_body_that_is_not_whole_says_what_is_missing(stored: Any, event: dict[str, Any], why: str | None) -> None:
    reason = explained(stored=stored, event=event)["why"]
    assert reason is None if why is None else why in reason


def of_depth(depth: int) -> bytes:
    """A body of at most 64 KiB: brackets in each other, and numbers in the innermost."""
    numbers = b"1," * ((INLINE_BYTES - 2 * depth - 1) // 2) + b"1"
    return b"[" * depth + numbers + b"]" * depth


@pytest.mark.parametrize("kind", ["application/json", "application/vnd.orders+json", None])
@pytest.mark.parametrize("depth", [64, 65, 900, 955, 1400, 1495])
def test_json_that_is_nested_deeply_is_text_and_costs_nobody_a_page(depth: int, kind: str | None) -> None:
    """In lines 64 KiB of it were 55 MB, and a little deeper a RecursionError."""
    content = of_depth(depth)
    body = explained(stored=("inline", "ab", kind, content))
    assert body["form"] == ("json" if depth <= MAX_DEPTH else "text")
    assert len(in_lines(body["content"])) < 8_000_000
    assert body["content"] == (json.loads(content) if depth <= MAX_DEPTH else content.decode())


AS_IT_STANDS: Final = [
    (b'{"id": 1, "id": 2}', "text"),
    (b'{"a": {"id": 1}, "b": [{"id": 1, "id": 1}]}', "text"),
    (b'{"id": 12345678901234567890.123}', "text"),
    (b'{"id": 0.1000000000000000055511151231257827}', "text"),
    (b'{"price": 19.90}', "text"),
    (b'{"rate": 1e400}', "text"),
    (b'{"rate": 1E5}', "text"),
    (b'{"debt": -0}', "text"),
    (b'{"id": %s}' % (b"7" * 5000), "text"),
    (b"\xef\xbb\xbf{}", "text"),
    ('{"to": "Zürich"}'.encode("utf-16"), "hex"),
    ('{"to": "Zürich"}'.encode("latin-1"), "hex"),
    (b'{"price": 19.5, "id": 12345678901234567890, "none": null, "to": "Z\\u00fcrich"}', "json"),
]


@pytest.mark.parametrize(("content", "form"), AS_IT_STANDS)
def test_json_is_a_document_only_where_that_holds_all_of_it(content: bytes, form: str) -> None:
    """Of `{"id": 1, "id": 2}` it was said that it is whole, and `{"id": 2}` was shown."""
    body = explained(stored=("inline", "ab", "application/json", content))
    assert (body["form"], body["is_whole"]) == (form, True)
    if form == "text":
        assert body["content"].encode() == content
    if form == "hex":
        assert bytes.fromhex(body["content"]) == content


def lexical(text: str) -> Any:
    """The JSON with each number as it is written, and each member in its place."""
    return json.loads(text, object_pairs_hook=lambda pairs: ("members", *pairs), parse_int=str, parse_float=str)


NUMBERS: Final = st.from_regex(r"-?(0|[1-9][0-9]{0,20})(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)
SCALARS: Final = NUMBERS | st.text(max_size=5).map(json.dumps) | st.sampled_from(["null", "true", "NaN"])
WRITTEN: Final = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4).map(lambda members: f"[{', '.join(members)}]")
        | st.lists(st.tuples(st.sampled_from(["a", "b", "ü"]), inner), max_size=3).map(
            lambda members: "{" + ",".join(f"{json.dumps(name)}:{value}" for name, value in members) + "}"
        )
    ),
    max_leaves=8,
)


@given(WRITTEN)
@example('{"a":1,"a":1}')
@example("1.0")
def test_a_document_is_written_as_the_body_is(text: str) -> None:
    body = explained(stored=("inline", "ab", "application/json", text.encode()))
    if body["form"] == "json":
        assert lexical(json.dumps(body["content"])) == lexical(text)
    else:
        assert body["content"] == text
