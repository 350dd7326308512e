"""Lines of the journal become rows that tell all that the line told, and what is no event is kept with the reason."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dlx_router.core.fingerprint import of_event
from dlx_router.journal.events import gap
from dlx_router.journal.packing import MAGIC
from dlx_router.journal.replay import letter_of
from dlx_router.spark import schemas
from dlx_router.spark.archive import lines
from tests.core.core_samples import NOW, law, letter
from tests.journal.journal_samples import RULING, line, props, some_props
from tests.journal.journal_samples import letters as any_letter
from tests.journal.journal_samples import rulings as any_ruling
from tests.journal.rows_of import rows_of
from tests.spark.rows import listed, made, message, rows

Row = dict[str, Any]


def bad(row: Row) -> str | None:
    """Why it is no event."""
    return None if "event_id" in row else row["reason"]


def event(row: Row) -> dict[str, Any]:
    """The row as an event, without what is null."""
    return {name: row[name] for name in schemas.EVENT.names if row[name] is not None or name == "first"}


def test_what_is_read_again_says_when_it_was_read_first() -> None:
    """A time of now would say that the journal is known until now: fast rows, slow ones and lines that are none."""
    bodies = [line(), rows_of([line(), line()]), b"x\n"]
    parsed = rows(*bodies, read_ms=NOW)
    assert len(parsed) == 4
    assert {row["ingest_ts"] for row in parsed} == {datetime.fromtimestamp(NOW / 1000, UTC)}


@law
@given(st.lists(st.tuples(any_letter, any_ruling, some_props, st.floats(-1, 1)), min_size=1, max_size=20))
@example([(letter(), RULING, {"priority": 5}, 0.0)])  # a column has all properties, and null where none was set
def test_a_row_gives_back_the_letter_that_was_decided(cases: list[Any]) -> None:
    written = [
        line(dead, ruling, props=props(**some), draw=draw, due_ms=5, extra='"body_mode":"none"')
        for dead, ruling, some, draw in cases
    ]
    parsed = rows(b"".join(written))
    assert [row["idx"] for row in parsed] == list(range(len(written)))
    for raw, row in zip(written, parsed, strict=True):
        whole = json.loads(raw)
        assert row["event_id"] == whole["event_id"]
        if b"\\ud" in raw.lower():
            assert json.loads(row["line"]) == whole  # no column can hold half of a pair
            continue
        then, again = letter_of(whole), letter_of(event(row))
        assert replace(again, header=then.header, body=then.body) == then
        assert (row["fingerprint"], row["error_template"]) == (of_event(whole).id, of_event(whole).message)
        assert (row["line"], row["draw"], row["kind"]) == (None, whole["draw"], whole["kind"])


@pytest.mark.parametrize(
    ("body", "reasons"),
    [
        (b"", []),
        (b"\n\n", []),
        (b"rubbish", ["not a JSON object with an event"]),
        (b"[1]", ["not a JSON object with an event"]),
        (b'{"v":1}', ["lacks event_id, kind, router_id, vhost, ts_ms"]),
        (line().replace(b'"v":1', b'"v":3'), ["version 3; 0 to 2 are known"]),
        (line().replace(b'"ts_ms":', b'"ts_ms":-'), ["ts_ms is no time"]),
        (line().replace(b'"ts_ms":', b'"ts_ms":9999'), ["ts_ms is no time"]),
        (line() + b"x\n" + line(), [None, "not a JSON object with an event", None]),
    ],
)  # fmt: skip
def test_what_is_no_event_is_a_row_with_the_reason(body: bytes, reasons: list[str | None]) -> None:
    parsed = rows(body)
    assert [bad(row) for row in parsed] == reasons
    assert all(row["line"] == body.splitlines()[row["idx"]] for row in parsed if bad(row))


_EARLY, _AHEAD = "ts_ms lies before 2020", "ts_ms lies more than a year ahead of when it was read"


@pytest.mark.parametrize(
    ("ts_ms", "why"),
    [
        (-62_135_596_800_000, "ts_ms is no time"), (-1, "ts_ms is no time"), (0, _EARLY), (1_577_836_799_999, _EARLY),
        (1_577_836_800_000, ""), (253_402_300_799_999, _AHEAD), (253_402_300_800_000, "ts_ms is no time"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("is_fast", [True, False])
def test_an_event_of_a_time_that_cannot_be_is_kept_with_the_reason_and_makes_no_day(
    ts_ms: int, why: str, *, is_fast: bool
) -> None:
    raw = line(now_ms=NOW).replace(b'"ts_ms":%d' % NOW, b'"ts_ms":%d' % ts_ms)
    (row,) = rows(rows_of([raw]) if is_fast else raw)
    assert ("event_id" in row) is (not why)
    assert (bad(row) or "").startswith(why)
    assert not why or row["line"]


@pytest.mark.parametrize(("year", "judges"), [(1970, False), (2020, False), (2025, False), (2026, True), (2031, True)])
def test_a_clock_of_before_this_program_was_written_judges_no_event(year: int, *, judges: bool) -> None:
    """That of a board without a battery tells the year of its firmware."""
    read_ms = int(datetime(year, 6, 1, tzinfo=UTC).timestamp() * 1000)
    assert lines.latest_ms(read_ms * 1000) == (read_ms + lines.AHEAD_MS if judges else lines.END_MS)


def test_what_the_columns_cannot_hold_is_kept_as_the_line() -> None:
    newer = line().replace(b'"v":1', b'"v":2,"new":[1]')
    odd = line().replace(b'"attempts":1', b'"attempts":"many"')
    surrogate = line().replace(b'"policy":"all"', b'"policy":"\\udc80"')
    parsed = rows(newer + odd + surrogate + line())
    assert [bad(row) for row in parsed] == [None] * 4
    assert [row["line"] for row in parsed] == [newer[:-1].decode(), odd[:-1].decode(), surrogate[:-1].decode(), None]
    assert [row["attempts"] for row in parsed] == [1, None, 1, 1]
    assert [row["line"] for row in rows(line(), keep_lines=True)] == [line()[:-1].decode()]


def test_a_message_that_is_not_utf_8_is_kept_whole_beside_its_lines() -> None:
    body = line() + b"\xff\n"
    parsed = rows(body)
    assert [bad(row) is None for row in parsed] == [True, False, False]
    assert parsed[-1]["line"] == body


def test_a_message_that_cannot_be_unpacked_is_one_bad_line_with_the_reason() -> None:
    body = MAGIC + b"\n\xff\n"
    (row,) = rows(body)
    assert str(bad(row)).startswith("a message that cannot be read: no whole zstd frame: ")
    assert row["line"] == body


def test_a_message_of_another_kind_is_lines_as_it_is() -> None:
    parsed = listed(made([message(0, line() + b"\xffx", 9, b"text/plain")]))
    assert [bad(row) is None for row in parsed] == [True, False, False]


def test_a_gap_is_an_event_without_a_letter() -> None:
    (row,) = rows(gap("router-a", "/", events=7, from_ms=NOW - 1, to_ms=NOW))
    members = (row["kind"], row["events"], row["from_ms"], row["to_ms"], row["fingerprint"])
    assert members == ("gap", 7, NOW - 1, NOW, None)
    assert (row["deaths"], row["fresh"], row["first"]) == (None, None, None)


def test_first_is_told_unless_it_is_not_known() -> None:
    unknown = line().replace(b'"ts_ms"', b'"first":null,"ts_ms"')
    elsewhere = line().replace(
        b'"ts_ms"', b'"first":{"queue":"q","exchange":"e","routing_keys":[],"reason":"r"},"ts_ms"'
    )
    parsed = rows(line() + unknown + elsewhere)
    assert [row["first"] and row["first"]["queue"] for row in parsed] == ["work", None, "q"]


def test_names_of_any_character_stop_nothing() -> None:
    odd = line().replace(b'"failed_queue":"work"', b'"failed_queue":"a\\u0000b\\u0000\\"c"')
    (row,) = rows(odd)
    assert (row["failed_queue"], row["fingerprint"]) == ('a\x00b\x00"c', of_event(json.loads(odd)).id)


def test_what_is_read_line_by_line_is_never_held_whole() -> None:
    """Anybody may publish to a stream: neither many lines of one message nor large ones grow what ingest holds."""
    many = made([message(0, b"x\n" * 12_000)])
    assert sum(table.num_rows for table in many) == 12_000
    assert max(table.num_rows for table in many) <= 5_000
    large = made(message(at, b"x" * (4 << 20), kind=b"text/plain") for at in range(10))
    assert [table.num_rows for table in large] == [4, 4, 2]
