"""Logs: one line each, in the form asked for, without credentials, and each thing once."""

import io
import json
import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from dlx_router.core.printable import redacted
from dlx_router.telemetry.logs import Once, configure, log
from dlx_router.telemetry.readiness import Readiness


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    root = logging.getLogger()
    before = (list(root.handlers), root.level)
    yield
    root.handlers[:], level = before
    root.setLevel(level)
    structlog.reset_defaults()


def lines(out: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


@pytest.fixture
def out() -> io.StringIO:
    stream = io.StringIO()
    configure("json", "info", stream)
    return stream


def test_a_line_is_one_json_object_with_time_level_event_and_fate(out: io.StringIO) -> None:
    log.warning("session.ended", vhost="/", fate="unsettled letters are still in their queues")
    (line,) = lines(out)
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "session.ended",
        "level": "warning",
        "vhost": "/",
        "fate": "unsettled letters are still in their queues",
    }


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("amqp://u:p@host/v", "amqp://***@host/v"),
        ("amqps://user:p/w@x@host:5671 refused", "amqps://***@host:5671 refused"),
        (
            "url='http://u:p@h' and 'amqp://h2/a' to me@example.com",
            "url='http://***@h' and 'amqp://h2/a' to me@example.com",
        ),
        ("nothing to hide @ all", "nothing to hide @ all"),
    ],
)
def test_credentials_are_taken_out_of_urls(text: str, expected: str) -> None:
    assert redacted(text) == expected


def test_no_credential_leaves_by_any_way(out: io.StringIO) -> None:
    url = "amqp://user:hunter2@host/v"
    log.info(url, at=url, deep={"a": [url, (url,)]}, other=ValueError(url), password="hunter2", api_token="hunter2")
    logging.getLogger("another.package").warning("cannot reach %s", url)
    log.error("failed", exc_info=OSError(url))
    assert len(lines(out)) == 3
    assert "hunter2" not in out.getvalue()
    assert "OSError" in lines(out)[2]["error"]


def test_a_routing_key_is_no_secret_and_bytes_that_are_no_text_break_nothing(out: io.StringIO) -> None:
    log.info("routed", routing_key="a.b", queue="q\udcff", count=3, none=None)
    line = lines(out)[0]
    assert (line["routing_key"], line["queue"], line["count"], line["none"]) == ("a.b", "q\\udcff", 3, None)


def test_a_thing_is_said_when_it_changes_and_when_it_is_over(out: io.StringIO) -> None:
    once = Once()
    for _ in range(3):
        once.warn("queue q", "target.refused", cause="nacked", fate="held")
    once.warn("queue q", "target.refused", cause="returned", fate="held")
    once.warn("queue r", "target.refused", cause="nacked", fate="held")
    once.healed("queue q", "target.healed")
    once.healed("queue q", "target.healed")
    once.warn("queue q", "target.refused", cause="returned", fate="held")
    assert [line["event"].removeprefix("target.") for line in lines(out)] == [
        "refused",
        "refused",
        "refused",
        "healed",
        "refused",
    ]


HOSTILE = "q\x1b[2J\x9b31m\r\nforged=line\u2028\u202egnp\u2066\x00\x7f\u200b"


@pytest.mark.parametrize("form", ["json", "text"])
def test_no_line_holds_what_commands_a_terminal_or_looks_like_a_line(form: str) -> None:
    """Names, keys of headers, the broker's words and exceptions are written by others."""
    stream = io.StringIO()
    configure(form, "info", stream)
    log.warning("letter.park", queue=HOSTILE, error=HOSTILE, found={HOSTILE: [HOSTILE]}, cause="größe 订单")
    logging.getLogger("library").warning("said %s", HOSTILE)
    output = stream.getvalue()
    assert all(char == "\n" or char.isprintable() for char in output), repr(output)
    assert output.count("\n") == 2
    assert "größe 订单" in output
    try:
        raise ValueError(HOSTILE)  # noqa: TRY301 - its text is what is logged
    except ValueError:
        log.exception("ended")
    output = stream.getvalue()
    assert all(char == "\n" or char.isprintable() for char in output), repr(output)
    assert not any(line.startswith("forged") for line in output.splitlines())


def test_what_was_said_once_is_remembered_in_few_bytes() -> None:
    once = Once()
    configure("json", "error", io.StringIO())
    for n in range(3000):
        once.warn(f"{n} {'k' * 10_000}", "letter.park", error=f"{n} {'e' * 10_000}")
    assert sum(map(sys.getsizeof, (once._said, *once._said, *once._said.values()))) < 200_000


def test_the_text_of_readiness_commands_no_terminal() -> None:
    readiness = Readiness()
    readiness.set("a", f"queue {HOSTILE}")
    readiness.note("b", f"queue {HOSTILE}\n  and more")
    text = "".join(readiness.reasons() + readiness.notes())
    assert all(char == "\n" or char.isprintable() for char in text), repr(text)
