"""Two ways lead into the archive, in columns and line by line; whatever stands in a stream, both make the same rows."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dlx_router.journal import reading
from dlx_router.journal.packing import packed
from dlx_router.spark.amqp import Message
from dlx_router.spark.archive import columns, lines
from tests.core.core_samples import law
from tests.journal.journal_samples import line
from tests.journal.rows_of import rows_of
from tests.journal.test_formats import message as batch_of
from tests.journal.test_formats import some, tellings
from tests.spark.rows import STREAM, listed, made, message, messages, one_by_one, rows

SHARED = rows_of([line()])
TEXT = reading.text_of(SHARED, 2).decode()
COMMON, ROW = TEXT.splitlines()

ODD_ROWS = [
    ROW.replace("[0,", given_)
    for given_ in ("[1,", "[-1,", "[00,", "[true,", "[0.0,", "[ 0,", "[0, ", "[")
] + [
    "[]", "[0]", "[[[[", '[0,"a"]', "[1e999]", ROW + "x", ROW + ROW, ROW[:-1], ROW.replace("{",
    '{"message_id":"a\\u00e9",'),
    ROW.replace("{", '{"message_id":"\\ud83d\\ude00"', 1), ROW.replace("}", '"priority":4}', 1),
]  # fmt: skip
FURTHER: tuple[dict[str, Any], ...] = (
    {"draw": 0.25}, {"draw": 1}, {"draw": None}, {"draw": "1"}, {"draw": 10**400},
    {"error": {"type": "T", "message": "no 17"}},
    {"error": None}, {"error": {"type": None, "frame": "f"}}, {"error": {"type": 5}}, {"error": {"more": 1}},
    {"error": []},
    {"headers": {"a": "1"}}, {"body_values": {"/a": "null"}}, {"redacted": ["x", "y"]}, {"redacted": [1]},
    {"since_ms": 5}, {"serial": 1 << 52}, {"serial": 3, "possible_copy": True}, {"serial": "3"}, {"possible_copy": 1},
    {"since_ms": 1 << 70}, {"since_ms": 1.5}, {"parent": "cd" * 16},
    {"body_mode": "inline", "body": "eA==", "body_sha256": "00"},
    {"body_mode": None}, {"first": None}, {"first": {"queue": "q"}}, {"fresh": []}, {"deaths": []},
    {"ts_ms": 5}, {"ts_ms": -1},
    {"v": 2}, {"v": 3}, {"kind": None}, {"event_id": "other"}, {"new": {"deep": [1]}},
    {"error": {"message": '},{"a":1'}},
    {"error": {"message": "\udc80"}}, {"error": {"message": "😀 null"}}, {"error": {"message": 'a\\"b\x00\n'}},
    {"props": {}},
    {"attempts": "many"}, {"details": {"a": [1, {"b": None}], "c": 1.5}}, {"vhost": 7}, {"failed_queue": None},
)  # fmt: skip
OWN_PROPS: tuple[dict[str, Any], ...] = (
    {}, {"message_id": "m"}, {"message_id": ""}, {"message_id": "a},{b"}, {"message_id": 'q"'}, {"timestamp_s": 2**63},
    {"timestamp_s": 17, "message_id": "m"}, {"message_id": "m", "correlation_id": "c", "timestamp_s": 17},
    {"type": "t"},
    {"correlation_id": "é"}, {"message_id": None}, {"message_id": 5}, {"priority": "high"}, {"unknown": 1},
)  # fmt: skip
COMMONS: tuple[dict[str, Any], ...] = (
    {}, {"props": {}}, {"props": {"message_id": "common", "type": "t"}}, {"props": {"priority": "x"}},
    {"fresh": []}, {"new": 1},
    {"error": {"type": "T", "message": "m"}}, {"draw": 0.5}, {"first": None}, {"first": 5},
    {"first": {"queue": "w"}}, {"v": 2},
    {"v": 9}, {"v": None}, {"kind": "quarantined", "detail": "not AMQP at byte 17"}, {"vhost": None}, {"reason": None},
    {"ts_ms": 7}, {"deaths": []}, {"deaths": [{"queue": "a"}, {"count": "x", "time_ms": "y"}]}, {"deaths": 5},
    {"policy": "\udc80"},
    {"policy": "é😀"}, {"event_id": "x"}, {"policy": '"event_id":'}, {"attempts": "many"},
    {"details": {"a": 1}}, {"target": None},
)  # fmt: skip
NUMBERS = st.sampled_from(
    [0, 1, -1, 5000, 10**14, 253_402_300_799_999, 253_402_300_800_000, 10**17, 1 << 62, 0.5, None, "1"]
)
IDS = st.sampled_from(["ab" * 16, "", "-", 'a"b', "é", "a,b", 5])
encode = json.JSONEncoder(separators=(",", ":")).encode


@st.composite
def texts(draw: st.DrawFn) -> str:
    """The text of a message in format 2, as somebody could write it."""
    common = [json.loads(COMMON) | draw(st.sampled_from(COMMONS)) for _ in range(draw(st.integers(1, 2)))]
    encoded = [encode(record) for record in common]
    for _ in range(draw(st.integers(0, 4))):
        number = draw(st.integers(0, len(common)))
        values = json.loads(ROW)[:9]
        values[0], values[4] = number, draw(st.sampled_from([None, 5000]))
        if draw(st.integers(0, 3)) == 0:
            values[draw(st.integers(3, 8))] = draw(NUMBERS)
        if draw(st.integers(0, 5)) == 0:
            values[draw(st.integers(1, 2))] = draw(IDS)
        deaths = common[number % len(common)]["deaths"]
        count = len(deaths) if isinstance(deaths, list) and draw(st.integers(0, 7)) else draw(st.integers(0, 3))
        values += [[1_790_000_000 + at for at in range(count)], draw(st.sampled_from(OWN_PROPS))]
        encoded.append(encode(values + draw(st.lists(st.sampled_from(FURTHER), max_size=1))))
    encoded += draw(
        st.lists(
            st.sampled_from([*ODD_ROWS, "", "{", "x", line().decode().strip(), "[é", '{"event_id":1}']), max_size=1
        )
    )
    end = draw(st.sampled_from(["\n", "\n", "\n", "", "\r\n"]))
    return "\n".join(draw(st.permutations(encoded)) if draw(st.booleans()) else encoded) + end


bodies = st.one_of(
    texts().map(lambda text: packed(text.encode())),
    st.lists(tellings, min_size=1, max_size=4).map(lambda drawn: batch_of(drawn).body),
    st.lists(tellings, min_size=1, max_size=2).map(lambda drawn: batch_of(drawn, of_task=True).body),
    st.sampled_from(
        [b"", b"rubbish", b"\xff\n" + line(), packed(b"\xff"), packed(b""), packed(b"\n\n"), SHARED[:20], SHARED]
    ),
)
streams = st.lists(st.tuples(bodies, st.sampled_from([1, 2, 2, 2, 3])), max_size=6).map(
    lambda drawn: [message(at * 2, body, version) for at, (body, version) in enumerate(drawn)]
)


def same(every: list[Message], actual: list[dict[str, Any]]) -> None:
    """What was found is what the lines say, one by one."""
    wanted = one_by_one(every)
    for row in (*actual, *wanted):
        row.pop("ingest_ts", None)
    assert actual == wanted


def same_of(text: str) -> None:
    every = messages(packed(text.encode()))
    same(every, rows(every[0].body))


@pytest.mark.slow
@law
@given(streams)
@example([message(0, SHARED, 2), message(1, SHARED, 2)])
def test_both_ways_give_equal_rows(every: list[Message]) -> None:
    same(every, listed(made(every)))


@pytest.mark.parametrize("own", OWN_PROPS)
def test_odd_properties_are_read_alike(own: dict[str, Any]) -> None:
    text = f"{COMMON}\n{encode([*json.loads(ROW)[:10], own])}\n"
    same_of(text)


@pytest.mark.parametrize("further", FURTHER)
def test_odd_members_are_read_alike(further: dict[str, Any]) -> None:
    text = f"{COMMON}\n{encode([*json.loads(ROW)[:10], {}, further])}\n{ROW}\n"
    same_of(text)


@pytest.mark.parametrize("common", COMMONS)
def test_odd_shared_lines_are_read_alike(common: dict[str, Any]) -> None:
    text = f"{encode(json.loads(COMMON) | common)}\n{ROW}\n{COMMON}\n{ROW.replace('[0,', '[1,')}\n"
    same_of(text)


def test_what_a_router_writes_goes_the_fast_way() -> None:
    """Else it would be right and slow, and no law would tell."""
    error = '"error":{"type":"T","message":"order 17: \\"no\\" stock at \\u00e9"},"body_mode":"hash","body_sha256":"00"'
    events = [*some(3), *some(2, extra=error, draw=0.25, due_ms=1_790_000_005_000)]
    texts = [columns.Text(STREAM, at, "ok", b"", reading.text_of(batch_of(events).body, 2)) for at in range(4)]
    fast = columns.read(texts, 0)
    assert fast.table is not None
    assert (fast.table.num_rows, fast.rows, fast.messages) == (20, [], [])
    assert fast.table["error_template"].to_pylist()[4] == 'order <n>: "no" stock at é'


def test_one_odd_row_costs_its_neighbours_nothing() -> None:
    text = "\n".join([COMMON, *[ROW] * 50, ROW.replace("]", ",1]"), *[ROW] * 49]) + "\n"
    fast = columns.read([columns.Text(STREAM, 0, "ok", b"", text.encode())], 0)
    assert fast.table is not None
    assert fast.table.num_rows == 99
    assert [place.idx for place, _ in fast.rows] == [50]
    assert {*fast.table["idx"].to_pylist()} == {*range(100)} - {50}
    assert lines.row(*fast.rows[0]).bad == "not a JSON object with an event"


def test_equal_errors_are_masked_once_and_each_row_has_its_own_group() -> None:
    events = [
        event
        for number in range(30)
        for event in some(1, extra=f'"error":{{"message":"order {number % 3}"}},"body_mode":"none"')
    ]
    parsed = rows(batch_of(events).body)
    assert {row["error_template"] for row in parsed} == {"order <n>"}
    assert len({row["fingerprint"] for row in parsed}) == 1
    assert [row["error"]["message"] for row in parsed] == [f"order {number % 3}" for number in range(30)]
