"""Lines of the journal become rows that tell all that the line told, and what is no event is kept with the reason."""

import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import functions as f

from dlx_router.core.fingerprint import of_event
from dlx_router.journal.events import gap
from dlx_router.journal.replay import letter_of
from dlx_router.spark import schemas
from dlx_router.spark.archive import parsing
from tests.journal.journal_samples import letters as any_letter
from tests.journal.journal_samples import line, props, some_props
from tests.journal.journal_samples import rulings as any_ruling

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession


def rows(spark: "SparkSession", *bodies: bytes, **how: Any) -> "list[Row]":
    """One message of each body, parsed."""
    source = [("s", at, None, None, body, None, None) for at, body in enumerate(bodies)]
    return parsing.rows(spark.createDataFrame(source, schemas.SOURCE), **how).orderBy("offset", "idx").collect()


def event(row: "Row") -> dict[str, Any]:
    """The row as an event, without what is null."""
    told = row.asDict(recursive=True)
    return {name: told[name] for name in schemas.EVENT.names if told[name] is not None or name == "first"}


@settings(max_examples=5, deadline=None, phases=[Phase.generate], suppress_health_check=[*HealthCheck])  # no shrinking
@given(st.lists(st.tuples(any_letter, any_ruling, some_props, st.floats(-1, 1)), min_size=20, max_size=20))
def test_a_row_gives_back_the_letter_that_was_decided(spark: "SparkSession", cases: list[Any]) -> None:
    lines = [
        line(one, ruling, props=props(**some), draw=draw, due_ms=5, extra='"body_mode":"none"')
        for one, ruling, some, draw in cases
    ]
    found = rows(spark, b"".join(lines))
    assert [row["idx"] for row in found] == list(range(len(lines)))
    for told, row in zip(lines, found, strict=True):
        whole = json.loads(told)
        assert row["event_id"] == whole["event_id"]
        if b"\\ud" in told.lower():
            assert json.loads(row["line"]) == whole  # no column can hold half of a pair
            continue
        letter, again = letter_of(whole), letter_of(event(row))
        assert replace(again, header=letter.header, body=letter.body) == letter
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
def test_what_is_no_event_is_a_row_with_the_reason(
    spark: "SparkSession", body: bytes, reasons: list[str | None]
) -> None:
    found = rows(spark, body)
    assert [row[parsing.BAD_REASON] for row in found] == reasons
    assert all((row["event_date"] is None) is (row[parsing.BAD_REASON] is not None) for row in found)
    assert all(row["line"] == body.decode().splitlines()[row["idx"]] for row in found if row[parsing.BAD_REASON])


def test_what_the_columns_cannot_hold_is_kept_as_the_line(spark: "SparkSession") -> None:
    newer = line().replace(b'"v":1', b'"v":2,"new":[1]')
    odd = line().replace(b'"attempts":1', b'"attempts":"many"')
    surrogate = line().replace(b'"policy":"all"', b'"policy":"\\udc80"')
    found = rows(spark, newer + odd + surrogate + line())
    assert [row[parsing.BAD_REASON] for row in found] == [None] * 4
    assert [row["line"] for row in found] == [newer[:-1].decode(), odd[:-1].decode(), surrogate[:-1].decode(), None]
    assert [row["attempts"] for row in found] == [1, None, 1, 1]
    assert [row["line"] for row in rows(spark, line(), keep_lines=True)] == [line()[:-1].decode()]


def test_a_message_that_is_not_utf_8_is_kept_whole_beside_its_lines(spark: "SparkSession") -> None:
    body = line() + b"\xff\n"
    source = spark.createDataFrame([("s", 0, None, None, body, None, None)], schemas.SOURCE)
    found = parsing.rows(source).orderBy("idx").withColumn("line", f.col("line").cast("binary")).collect()
    assert [row[parsing.BAD_REASON] is None for row in found] == [True, False, False]
    assert bytes(found[-1]["line"]) == body


def test_a_message_that_cannot_be_unpacked_is_one_bad_line_with_the_reason(spark: "SparkSession") -> None:
    body = b"\x28\xb5\x2f\xfd\n\xff\n"
    source = spark.createDataFrame([("s", 0, None, None, body, None, "no whole zstd frame")], schemas.SOURCE)
    (row,) = parsing.rows(source).withColumn("line", f.col("line").cast("binary")).collect()
    assert row[parsing.BAD_REASON] == "a message that cannot be read: no whole zstd frame"
    assert (bytes(row["line"]), row["event_date"]) == (body, None)


def test_a_gap_is_an_event_without_a_letter(spark: "SparkSession") -> None:
    (row,) = rows(spark, gap("router-a", "/", events=7, from_ms=1, to_ms=2))
    assert (row["kind"], row["events"], row["from_ms"], row["to_ms"], row["fingerprint"]) == ("gap", 7, 1, 2, None)
    assert (row["deaths"], row["fresh"], row["first"]) == (None, None, None)


def test_first_is_told_unless_it_is_not_known(spark: "SparkSession") -> None:
    unknown = line().replace(b'"ts_ms"', b'"first":null,"ts_ms"')
    elsewhere = line().replace(
        b'"ts_ms"', b'"first":{"queue":"q","exchange":"e","routing_keys":[],"reason":"r"},"ts_ms"'
    )
    found = rows(spark, line() + unknown + elsewhere)
    assert [row["first"] and row["first"]["queue"] for row in found] == ["work", None, "q"]


def test_names_of_any_character_stop_nothing(spark: "SparkSession") -> None:
    odd = line().replace(b'"failed_queue":"work"', b'"failed_queue":"a\\u0000b\\u0000\\"c"')
    (row,) = rows(spark, odd)
    assert (row["failed_queue"], row["fingerprint"]) == ('a\x00b\x00"c', of_event(json.loads(odd)).id)


def test_every_batch_has_the_same_code(spark: "SparkSession") -> None:
    """Else Spark compiles it anew for each, and Java never runs it long enough to make it fast."""

    def plan(body: bytes) -> str:
        source = spark.createDataFrame([("s", 0, None, None, body, None, None)], schemas.SOURCE)
        written: Any = parsing.rows(source)
        return re.sub(r"#\d+L?", "", written._jdf.queryExecution().analyzed().toString())

    spark.conf.set("spark.sql.debug.maxToStringFields", "1000")
    first, second = plan(b"{}"), plan(b"[]")
    spark.conf.unset("spark.sql.debug.maxToStringFields")
    assert "lambda" in first, "the name of a lambda's variable is what differed"
    assert first == second
