"""A node whose replica lags behind its leader, for hours it may be: nothing is lost, and nothing is known until now."""

import time
from typing import Any, Final

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from dlx_router.spark.amqp import Message, Probe
from dlx_router.spark.offsets import DataLoss, Position
from dlx_router.spark.source import StreamReader
from dlx_router.spark.stream_end import times
from dlx_router.wire import properties
from tests.core.core_samples import NOW, letter
from tests.journal.journal_samples import line, told
from tests.journal.rows_of import rows_of
from tests.spark.test_loss import Growing, near

HEADER: Final = bytes(12) + properties.build(content_type=b"application/x-ndjson")


def message(offset: int, *at_ms: int, body: bytes = b"") -> Message:
    """With events of these moments."""
    lines = [line(letter(id=f"{offset:032x}"), now_ms=each) for each in at_ms]
    return Message(offset, HEADER, b"".join(lines) + body)


class Copying(Growing):
    """A replica that shows `lag` messages fewer, one of them more each time that it is asked for its newest one."""

    lag = 0

    def look_again(self) -> list[Message]:
        shown = self.messages[: len(self.messages) - self.lag]
        self.lag = max(self.lag - 1, 0)
        return shown

    def probe(self, _stream: str) -> Probe:
        shown = self.look_again()
        return Probe(shown[0], shown[-1]) if shown else Probe(None, None)

    def peek(self, _stream: str, spec: int | str, credit: int) -> list[Message]:
        shown = self.look_again() if spec == "last" else self.messages[: len(self.messages) - self.lag]
        return shown[-1:] if spec == "last" else [each for each in shown if each.offset >= spec][:credit]  # type: ignore[operator]  # an offset then

    look = peek


def read_to_its_end(held: Growing, start: Any = None, **options: Any) -> Position:
    reader = StreamReader(near(held, **options))
    reader.prepareForTriggerAvailableNow()
    return reader.latestOffset(start or {}, ReadMaxRows(100))["s"]


def test_a_node_that_lags_behind_has_lost_nothing() -> None:
    """The stream counted as made anew, and whoever followed the advice to allow that read all of it again."""
    held = Copying(*range(20))
    at = read_to_its_end(held)
    held.lag = 5
    assert read_to_its_end(held, {"s": at}, fail_on_data_loss=True, retry_for_s=60) == at
    held.lag = 5
    assert read_to_its_end(held, {"s": at}, retry_for_s=60) == at


def test_a_stream_that_stays_shorter_was_made_anew_or_its_node_lags_far_behind() -> None:
    held = Copying(*range(20))
    at = read_to_its_end(held)
    held.messages = held.messages[:3]
    with pytest.raises(DataLoss, match=r"made anew, .*; or the node that was asked lags behind.*failOnDataLoss"):
        read_to_its_end(held, {"s": at}, fail_on_data_loss=True)
    moved = read_to_its_end(held, {"s": at})
    assert (moved["next"], moved["lost"], moved["from"]) == (3, 1, 0)


@pytest.mark.parametrize("lag", [0, 4])
def test_a_stream_that_still_grows_tells_as_much_as_its_newest_event_and_not_until_now(lag: int) -> None:
    """It was read to its end, by the answer of a node that had yet to copy hours: letters of them had recovered."""
    held = Copying()
    held.messages = [message(offset, NOW + offset, NOW + 1000 + offset) for offset in range(10)]
    held.lag, began_ms = lag, time.time_ns() // 1_000_000
    at = read_to_its_end(held)
    assert at["next"] == 10 - lag
    if lag:
        assert at["complete_ms"] == NOW + 9 - lag
    else:
        assert began_ms <= at["complete_ms"] <= time.time_ns() // 1_000_000


def test_of_a_stream_that_still_grows_and_says_no_time_nothing_is_known() -> None:
    held = Copying()
    held.messages = [message(offset, NOW, body=b"no event\n") for offset in range(10)]
    held.lag = 4
    assert "complete_ms" not in read_to_its_end(held)
    held.lag = 4
    before = {"next": 0, "seen": -1, "mark": "", "lost": 0, "complete_ms": 7}
    assert read_to_its_end(held, {"s": before})["complete_ms"] == 7


@pytest.mark.parametrize(
    ("body", "known"),
    [
        (told(1) + told(2, at=5), [NOW, NOW + 5]),
        (rows_of([told(1), told(2, at=5)]), [NOW, NOW + 5]),
        (b"", []),
        (b"{}\n", []),
        (b"[]\n", []),
        (b'{"ts_ms": "soon"}\n', []),
        (b"\xff\xfe\n", []),
        (told(1) + b"no event\n", []),
    ],
)
def test_when_the_events_of_a_message_were_decided(body: bytes, known: list[int]) -> None:
    assert times(Message(0, HEADER, body)) == known
