"""Messages of both formats tell the same events, and whatever somebody writes into a stream stops no reader."""

import json
from pathlib import Path
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.core.letter import Letter
from dlx_router.journal import dictionary, fields, packing, reading
from dlx_router.journal.audit import audit
from dlx_router.journal.batch import Batch
from dlx_router.journal.events import Ruling, fragments, gap
from dlx_router.journal.packing import FormatError, packed
from dlx_router.journal.privacy import Rule, disclosed, discreet
from dlx_router.journal.reading import Row, lines, parts
from dlx_router.redrive.task_events import MARK
from dlx_router.redrive.task_events import letters as letters_in
from tests.core.core_samples import NOW, amqp_text, law, letter
from tests.journal import plain_reader
from tests.journal.journal_samples import RULING, letters, moments, props, rulings, some_props

Told = tuple[Letter, Ruling, int, dict[str, Any]]

EXTRA = (
    '"body_mode":"none"',
    '"redacted":["x-token"],"body_mode":"hash","body_sha256":"00"',
    '"lease":{"id":"l","by":"ann","receives":2},"body_mode":"none"',
    '"lease":{"id":"l","by":"\\u00e9","receives":1,"ended":"done","key":"k"},"body_mode":"none"',
    '"headers":{"a":"\\"b\\""},"error":{"type":"T"},"body_mode":"inline","body_sha256":"00","body":"eA=="',
)
tellings = st.tuples(
    letters,
    rulings,
    moments,
    st.fixed_dictionaries(
        {"first_ms": moments, "last_ms": moments, "crc32": st.integers(0, 2**32 - 1), "size": st.integers(0, 2**40)},
        optional={
            "props": some_props.map(lambda values: props(**values)),
            "due_ms": st.none() | moments,
            "draw": st.none() | st.floats(-1, 1),
            "extra": st.sampled_from(EXTRA),
        },
    ),
)


def message(entries: list[Told], *, of_task: bool = False) -> Batch:
    """A message that tells all of it."""
    batch = Batch(1)
    for died, ruling, now_ms, own in entries:
        assert batch.add(fragments(died, ruling).entry(died.id, now_ms, **own))
    batch.tells_tasks = of_task
    batch.close()
    return batch


def plain(entries: list[Told]) -> list[Any]:
    """The same, each read alone from its line of format 1."""
    return [json.loads(fragments(died, ruling).line(died.id, now_ms, **own)) for died, ruling, now_ms, own in entries]


def some(count: int = 3, **own: Any) -> list[Told]:
    """A run of letters that died alike."""
    at: dict[str, Any] = {"first_ms": NOW, "last_ms": NOW, "crc32": 7, "size": 3} | own
    return [(letter(id=f"{number:032x}"), RULING, NOW + number, at) for number in range(count)]


# The same events


@law
@given(st.lists(tellings, min_size=1, max_size=6))
def test_both_formats_read_as_equal_events(entries: list[Told]) -> None:
    first, second = message(entries, of_task=True), message(entries)
    assert (first.format, second.format) == (fields.LINES, fields.ROWS)
    assert first.events == second.events == len(entries)
    wanted = plain(entries)
    assert [json.loads(text) for text in lines(first.body, 1)] == wanted
    assert [json.loads(text) for text in lines(second.body, 2)] == wanted
    assert [part.event() for part in parts(second.body) if isinstance(part, Row)] == wanted
    assert plain_reader.events(None, first.body) == plain_reader.events("zstd", second.body) == wanted


@law
@given(st.lists(tellings, min_size=1, max_size=4), amqp_text)
def test_an_odd_letter_id_breaks_no_row(entries: list[Told], odd: str) -> None:
    batch = Batch(1)
    for died, ruling, now_ms, own in entries:
        batch.add(fragments(died, ruling).entry(odd, now_ms, **own))
    batch.close()
    assert [json.loads(text)["id"] for text in lines(batch.body)] == [odd] * len(entries)


def test_whole_events_stand_between_rows_in_their_order() -> None:
    batch = Batch(1)
    for number, (died, ruling, now_ms, own) in enumerate(some(3)):
        batch.add(gap("router-a", "/", events=number + 1, from_ms=NOW, to_ms=NOW))
        batch.add(fragments(died, ruling).entry(died.id, now_ms, **own))
    batch.close()
    kinds = [json.loads(text)["kind"] for text in lines(batch.body)]
    assert kinds == ["gap", "dead_lettered"] * 3
    assert [document["kind"] for document in plain_reader.events("zstd", batch.body)] == kinds


def test_what_tells_of_a_task_is_lines() -> None:
    batch = message(some(3), of_task=True)
    assert (batch.format, batch.body.count(b"\n")) == (fields.LINES, 3)
    assert plain_reader.events(None, batch.body) == plain(some(3))


def test_an_event_that_readers_would_not_unpack_is_a_line() -> None:
    batch = Batch(1)
    died, ruling, now_ms, own = some(1)[0]
    huge = f'"body_mode":"inline","body":"{"x" * packing.MAX_BYTES}"'
    batch.add(fragments(died, ruling).entry(died.id, now_ms, **(own | {"extra": huge})))
    batch.close()
    assert batch.format == fields.LINES
    assert len(json.loads(lines(batch.body)[0])["body"]) == packing.MAX_BYTES


def test_who_looks_for_a_task_writes_no_letter_out() -> None:
    """Without the broker's filter a new leader reads all of the journal: fifty million events may be in it."""
    rows, task = message(some(3)), audit("r", "/", actor="a", action="task.done", details={}, ts_ms=NOW)
    assert lines(rows.body, saying=MARK) == []
    batch = Batch(1)
    batch.add(task)
    batch.close()
    assert lines(batch.body, saying=MARK) == [task.rstrip()]
    both = packed(packing.unpacked(rows.body) + task)
    assert len(lines(both, saying=MARK)) == 4


# The dictionary


def test_the_dictionary_is_the_one_that_the_docs_have() -> None:
    assert plain_reader.DICTIONARY.read_bytes() == dictionary.BYTES
    assert plain_reader.digest() in Path("docs/journal.md").read_text(encoding="utf-8")
    assert zstandard.ZstdCompressionDict(dictionary.BYTES).dict_id() == dictionary.ID


def test_a_message_written_by_the_first_version_is_read_for_ever() -> None:
    body = bytes.fromhex(FIRST)
    assert [json.loads(text) for text in lines(body, 2)] == plain(some(2)) == plain_reader.events("zstd", body)


def test_what_is_redacted_is_not_in_the_bytes_nor_in_their_number() -> None:
    """Two letters that differ in a redacted value only make the same message."""
    bodies = []
    for secret in ("4111-1111-1111-1111", "swordfish"):
        rule = Rule(body="all", redact=("/card", "x-error-message"), pointers=("/card",))
        died = letter(id="ab" * 16, error={"message": secret, "type": "Declined"})
        extra = disclosed(rule, "retried", headers=b"", body=json.dumps({"card": secret}).encode(), error=died.error)
        own: dict[str, Any] = {"first_ms": NOW, "last_ms": NOW, "crc32": 7, "size": 3}
        own["extra"] = extra.replace(_sha(extra), "0")  # a digest of the whole body is told, and is documented
        bodies.append(message([(discreet(rule, died), RULING, NOW, own)]).body)
    assert bodies[0] == bodies[1]


def _sha(extra: str) -> str:
    return str(json.loads(f"{{{extra}}}")["body_sha256"])


# What somebody else may write


def frame(text: bytes, **how: Any) -> bytes:
    return zstandard.ZstdCompressor(**how).compress(text)


def _other_dictionary() -> zstandard.ZstdCompressionDict:
    samples: list[Any] = [f"event {number} of somebody else {number * 7919}".encode() * 9 for number in range(500)]
    return zstandard.train_dictionary(1024, samples, dict_id=50_000)


def _unsized() -> bytes:
    packer = zstandard.ZstdCompressor(write_content_size=False)
    return packer.compress(b"{}\n" * 9)


WRONG: list[tuple[str, bytes, int | None, str]] = [
    ("a bomb", frame(b"\0" * (packing.MAX_BYTES + 1)), 2, "larger than 4194304 bytes"),
    ("a frame that hides its size", _unsized(), 2, "does not say how large"),
    ("half a frame", packed(bytes(range(256)) * 9)[:99], 2, "no whole zstd frame"),
    ("no frame behind the mark", packing.MAGIC, 2, "no whole zstd frame"),
    ("more than a frame", packed(b"{}") + b"more", 2, "no whole zstd frame"),
    ("another dictionary", frame(b"x" * 99, dict_data=_other_dictionary()), 2, "dictionary 50000; 40001 is known"),
    ("a newer format", b'{"v":9}\n', 3, "format 3; 1 and 2 are known"),
    ("a newer format, packed", packed(b"{}"), 7, "format 7"),
    ("many lines", packed(b"[]\n" * (reading.MAX_LINES + 1)), 2, "at most 10000 are read"),
    (
        "rows that share a long line",
        packed(b'{"deaths":[],"x":"%s"}\n' % (b"x" * 100_000) + b'[0,"a","b",1,null,1,1,1,1,[],{}]\n' * 700),
        2,
        "events of more than",
    ),
]


@pytest.mark.parametrize(("_what", "body", "version", "why"), WRONG, ids=[case[0] for case in WRONG])
def test_a_message_that_cannot_be_read_says_why(_what: str, body: bytes, version: int | None, why: str) -> None:
    with pytest.raises(FormatError, match=why):
        lines(body, version)


ODD_LINES: list[tuple[str, bytes]] = [
    ("no such line", b'[7,"a","b",1,null,1,1,1,1,[],{}]'),
    ("the line before the first", b'[-1,"a","b",1,null,1,1,1,1,[],{}]'),
    ("too few values", b'[0,"a"]'),
    ("too many values", b'[0,"a","b",1,null,1,1,1,1,[1],{},{},{}]'),
    ("a death too many", b'[0,"a","b",1,null,1,1,1,1,[1,2],{}]'),
    ("a number that is none", b'[0,"a","b","now",null,1,1,1,1,[1],{}]'),
    ("a broken number", b'[0,"a","b",1.5,null,1,1,1,1,[1],{}]'),
    ("true for a number", b'[0,"a","b",1,null,1,1,true,1,[1],{}]'),
    ("text for a wait", b'[0,"a","b",1,"",1,1,1,1,[1],{}]'),
    ("nothing for a wait", b'[0,"a","b",1,[],1,1,1,1,[1],{}]'),
    ("a broken zero", b'[0,"a","b",1,0.0,1,1,1,1,[1],{}]'),
    ("a broken second", b'[0,"a","b",1,null,1,1,1,1,[0.0],{}]'),
    ("more than 64 bits", b'[0,"a","b",1,null,9223372036854775808,1,1,1,[1],{}]'),
    ("as many digits as Python reads", b'[0,"a","b",1,null,1,1,1,1,[' + b"9" * 4300 + b"],{}]"),
    ("no id", b'[0,null,"b",1,null,1,1,1,1,[1],{}]'),
    ("properties that are none", b'[0,"a","b",1,null,1,1,1,1,[1],[]]'),
    ("a number beyond all", b'[0,"a","b",1e999,null,1,1,1,1,[1],{}]'),
    ("deep nesting", b"[" * 100_000),
    ("no text", b"[\xff]"),
    ("nothing", b"[]"),
    ("no JSON", b"[0,"),
]


@pytest.mark.parametrize(("_what", "odd"), ODD_LINES, ids=[case[0] for case in ODD_LINES])
def test_a_row_that_is_none_is_left_for_the_caller_to_refuse(_what: str, odd: bytes) -> None:
    entries = some(2)
    rows = packing.unpacked(message(entries).body).splitlines()
    body = packed(b"\n".join((rows[0], rows[1], odd, rows[2])))
    pieces = parts(body)
    assert [part.event() for part in pieces if isinstance(part, Row)] == plain(entries)
    assert [part for part in pieces if not isinstance(part, Row)] == [odd]
    assert [document["id"] for document in letters_in(b"\n".join(lines(body)))] == [died.id for died, *_ in entries]


def test_a_broken_shared_line_takes_its_own_rows_along_and_no_others() -> None:
    entries = some(2)
    shared, *rows = packing.unpacked(message(entries).body).splitlines()
    body = packed(b"\n".join((b'{"kind":', shared, rows[0], rows[1].replace(b"[0,", b"[1,", 1))))
    assert [part.event() for part in parts(body) if isinstance(part, Row)] == plain(entries)[1:]


ODD_VALUES: list[Any] = [None, True, 0, -1, "", "x", [], {}, [[]], {"a": 1}, [{"queue": "q"}], [{"time_ms": 5}], 1.5]
NAMES = ("v", "kind", "id", "event_id", "ts_ms", "due_ms", "digest", "deaths", "props", "body_mode", "draw", "x")
odd_members = st.dictionaries(st.sampled_from(NAMES), st.sampled_from(ODD_VALUES), max_size=3)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len(dict(pairs)) == len(pairs), f"a name twice: {pairs}"
    return dict(pairs)


@law
@given(odd_members, st.lists(odd_members, max_size=3), st.sampled_from(ODD_VALUES), st.integers(0, 9))
def test_a_row_is_the_same_event_written_out_whoever_wrote_it(
    shared: dict[str, Any], more: list[dict[str, Any]], odd: Any, at: int
) -> None:
    line = {"v": 1, "kind": "parked", "deaths": [{"queue": "q"}], "body_mode": "none"} | shared
    row: list[Any] = [0, "aa", "bb", NOW, 5, 0, 0, 3, 4, [5], {}]
    rows = [row, [*row[: at + 1], odd, *row[at + 2 :]], *([*row, extra] for extra in more)]
    body = packed("\n".join(json.dumps(document) for document in (line, *rows)).encode())
    for part in parts(body):
        if isinstance(part, Row):
            assert json.loads(part.line(), object_pairs_hook=_once) == part.event()


@law
@given(st.lists(tellings, min_size=1, max_size=3), st.data())
def test_a_message_with_other_bytes_in_it_is_read_or_refused(entries: list[Told], data: st.DataObject) -> None:
    text = bytearray(packing.unpacked(message(entries).body))
    at = data.draw(st.integers(0, len(text) - 1))
    text[at : at + data.draw(st.integers(0, 9))] = data.draw(st.binary(max_size=9) | st.sampled_from(list(ODD_BYTES)))
    whole = bytearray(message(entries).body)
    whole[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    for body in (packed(bytes(text)), bytes(whole)):
        try:
            texts = lines(body)
        except FormatError:
            continue
        list(letters_in(b"\n".join(texts)))


ODD_BYTES = (b"[0,", b'{"event_id":1}\n', b"\n[]\n", b"null", b'"', b"{}", b"-1", b"NaN", b"\n{\n")
FIRST = (  # two letters, by the first version that wrote format 2: never change it
    "28b52ffd62419cad016d040013050f97dc5d8f9020490f38924c3ab1c4ac2f89dcb983b0d9f7d8e05d2489582431387648210e20"
    "219128c8918e796f5e4d3cb328fc90c2158cfa817898121ffce062d5196f511afff231ee03cd31caf7c27ed9f716e348b2c26a27"
    "9f077bcc378334e56bac92cab344993f65b3af4fda33077647d13d6124cc39d0d30c6b8d535b8f6e50b03028f351988ddc"
)
