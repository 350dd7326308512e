"""The header that the client writes is the one that the router reads, whatever is said; and mistakes are refused."""

import json
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.client.declaration import (
    Delivered,
    FromDeadLetterQueue,
    InvalidDeclaration,
    Words,
    header,
    kept,
)
from dlx_router.core import declaration

names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=60)


def delivered(**own: Any) -> Delivered:
    plain: dict[str, Any] = {
        "queue": "work",
        "exchange": "shop",
        "routing_key": "k",
        "headers": {},
        "expiration": None,
        "has_id": True,
    }
    return Delivered(**(plain | own))


@given(
    reason=st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\Z"),
    queue=names.filter(lambda name: not name.startswith("dlx-router.")),
    exchange=names,
    copies=st.lists(names, max_size=3),
    description=st.none() | st.text(max_size=2000),
    message=st.none() | st.text(st.characters(), max_size=2000),
    after=st.none() | st.floats(0, 86_400 * 300),
    tag=st.none() | st.text(max_size=400),
)
def test_the_router_reads_what_the_client_writes(
    *,
    reason: str,
    queue: str,
    exchange: str,
    copies: list[str],
    description: str | None,
    message: str | None,
    after: float | None,
    tag: str | None,
) -> None:
    error = None if message is None else ValueError(message)
    words = Words(reason=reason, description=description, error=error, retry_after=after, tag=tag)
    text = header(words, delivered(queue=queue, exchange=exchange, headers={"CC": copies}), "dlx-router")
    parsed = declaration.read(text.encode())
    assert (parsed.queue, parsed.exchange, parsed.routing_keys) == (queue, exchange, ("k", *copies))
    assert parsed.reason in {f"application:{reason}", "application"}
    assert parsed.declared.retry_after_ms == (None if after is None else round(after * 1000))
    assert not parsed.declared.never
    assert len(text) < 40_000, "the header has to fit one frame"


def test_an_error_tells_its_type_its_message_and_where_it_was_raised() -> None:
    with pytest.raises(ValueError, match="Expecting") as caught:
        json.loads("{")
    error = json.loads(header(Words(reason="r", error=caught.value), delivered(), "dlx-router"))["error"]
    assert error["type"] == "json.decoder.JSONDecodeError"
    assert error["message"].startswith("Expecting property name")
    assert " in " in error["frame"]


@pytest.mark.parametrize(
    "words",
    [
        {"reason": ""},
        {"reason": "no spaces"},
        {"reason": "x" * 65},
        {"reason": None},
        {"reason": "r", "retry": "later"},
        {"reason": "r", "retry": "never", "retry_after": 5},
        {"reason": "r", "retry_after": -1},
        {"reason": "r", "retry_after": "5s"},
        {"reason": "r", "retry_after": timedelta(days=400)},
        {"reason": "r", "retry_after": float("nan")},
    ],
)
def test_mistakes_are_refused(words: dict[str, Any]) -> None:
    with pytest.raises(InvalidDeclaration) as refused:
        Words(**words)
    assert any(name in str(refused.value) for name in words)


@pytest.mark.parametrize(
    ("given_", "queue"),
    [
        ({"queue": None, "exchange": "", "routing_key": "work.a"}, "work.a"),
        ({"queue": None, "exchange": "dlx-router.return", "headers": {"dlx-router": '{"failed_queue":"w"}'}}, "w"),
        ({"queue": "said", "exchange": ""}, "said"),
    ],
)
def test_the_queue_is_known_where_the_delivery_tells_it(given_: dict[str, Any], queue: str) -> None:
    assert json.loads(header(Words(reason="r"), delivered(**given_), "dlx-router"))["queue"] == queue


@pytest.mark.parametrize("copies", [["work.b"], [b"\xff"]], ids=["text", "no text"])
def test_of_a_message_with_copies_the_default_exchange_does_not_tell_the_queue(copies: list[Any]) -> None:
    """It may have been taken from the queue of a copy: the routing key is that of the first one."""
    came = delivered(queue=None, exchange="", routing_key="work.a", headers={"CC": copies})
    with pytest.raises(InvalidDeclaration, match="which CC leads to more queues, so say which queue"):
        header(Words(reason="r"), came, "dlx-router")
    record = {"dlx-router": '{"failed_queue":"work.a"}', "CC": copies}
    again = delivered(queue=None, exchange="", routing_key="work.a", headers=record)
    assert json.loads(header(Words(reason="r"), again, "dlx-router"))["queue"] == "work.a", "it failed there before"
    said = delivered(queue="work.b", exchange="", routing_key="work.a", headers={"CC": copies})
    assert json.loads(header(Words(reason="r"), said, "dlx-router"))["queue"] == "work.b"


def test_another_exchange_does_not_tell_the_queue() -> None:
    record = {"dlx-router": '{"failed_queue":"w"}'}  # may be copied from another message
    with pytest.raises(InvalidDeclaration, match="say which queue"):
        header(Words(reason="r"), delivered(queue=None, headers=record), "dlx-router")


@pytest.mark.parametrize("state", ["dead", "parked"])
def test_a_letter_in_a_dead_letter_queue_is_refused(state: str) -> None:
    record = {"dlx-router": json.dumps({"state": state, "failed_queue": "work"})}
    with pytest.raises(FromDeadLetterQueue):
        header(Words(reason="r"), delivered(queue="DLQ.work", headers=record), "dlx-router")
    assert header(Words(reason="r"), delivered(queue="work", headers=record), "dlx-router"), "somebody sent it back"
    with pytest.raises(FromDeadLetterQueue):
        header(Words(reason="r"), delivered(queue="dlx-router.parking"), "dlx-router")


def test_what_only_holds_for_the_delivery_is_not_copied() -> None:
    stale = ("x-death", "x-first-death-queue", "x-last-death-reason", "x-delivery-count", "dlx-death", "dlx-router-pub")
    headers = dict.fromkeys(stale, "old") | {"x-mine": 1, "dlx-router": "{}", "traceparent": "t"}
    assert kept(headers, "new") == {"x-mine": 1, "dlx-router": "{}", "traceparent": "t", "dlx-death": "new"}
