"""What the index keeps of messages in format 2, and what it costs when somebody else writes them."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlx_router.index import letters
from dlx_router.index.queries import Wanted
from dlx_router.index.reader import Reader
from dlx_router.index.schema import open_writer
from dlx_router.index.store import PORTION_BYTES, Message, Store
from dlx_router.index.worker import _behind
from dlx_router.journal.batch import Batch
from dlx_router.journal.events import fragments
from dlx_router.journal.packing import packed
from dlx_router.journal.reading import lines
from tests.core.core_samples import NOW, letter
from tests.journal.journal_samples import RULING, props, told

EVERYTHING: Any = lambda _vhost, _queue: True  # noqa: E731 - a constant beside the others
EVERY = Wanted()
KINDS = ("retried", "released", "dead_lettered", "discarded", "leased", "lease_ended")
BODY = '"body_mode":"inline","body_sha256":"00","body":"YWJj"'


def message(*events: tuple[int, str, str], at: int = 0, **own: Any) -> bytes:
    """Rows of letters: (number, kind, failed queue) each."""
    batch = Batch(1)
    for number, kind, queue in events:
        dead = letter(id=f"{number:032x}", failed_queue=queue)
        told_of: dict[str, Any] = {"first_ms": NOW, "last_ms": NOW, "crc32": 7, "size": 3} | own
        batch.add(fragments(dead, RULING._replace(kind=kind)).entry(dead.id, NOW + at, **told_of))
    batch.close()
    return batch.body


def ids(file: Path) -> set[int]:
    page = Reader(file).letters(EVERY, EVERYTHING, limit=1000, before=None)
    return {int(row["id"], 16) for row in page}


def test_what_letters_share_is_read_as_the_event_of_each(store: Store, file: Path) -> None:
    run = message(*((number, "parked", "orders") for number in range(9)), props=props(message_id=b"m"), draw=0.5)
    store.apply("/", [Message(0, run, version=2)])
    for number, line in enumerate(lines(run)):
        (row,) = Reader(file).letter(f"{number:032x}", EVERYTHING)
        assert row["event"] == json.loads(line)


def test_a_kept_row_has_no_body_which_stands_elsewhere(store: Store, file: Path) -> None:
    run = message((1, "parked", "orders"), (2, "parked", "orders"), extra=BODY)
    store.apply("/", [Message(0, run, version=2)])
    (row,) = Reader(file).letter(f"{1:032x}", EVERYTHING)
    whole = json.loads(lines(run)[0])
    assert whole.pop("body") == "YWJj"
    assert (row["event"], row["stored"][3]) == (whole, b"abc")


steps = st.lists(
    st.one_of(
        st.tuples(
            st.just("apply"),
            st.lists(
                st.tuples(st.integers(0, 9), st.sampled_from(KINDS), st.sampled_from(["a", "b"])),
                min_size=1,
                max_size=8,
            ),
        ),
        st.tuples(st.just("prune"), st.integers(1, 9)),
        st.tuples(st.just("shrink"), st.integers(1, 9)),
        st.tuples(st.just("fail"), st.just(0)),
        st.tuples(st.just("again"), st.just(0)),
    ),
    max_size=12,
)


@given(steps)
@settings(max_examples=60, deadline=None)
def test_letters_are_found_and_nothing_of_others_stays_whatever_comes_and_goes(
    tmp_path_factory: pytest.TempPathFactory, done: list[tuple[str, Any]]
) -> None:
    file = tmp_path_factory.mktemp("kept") / "index.sqlite"
    writer = Store(open_writer(file, max_bytes=1 << 30))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(letters, "MAX_STEPS", 2)  # so that journeys are shortened
        for at, (what, how) in enumerate(done):
            match what:
                case "apply":
                    writer.apply("/", [Message(at, message(*how, at=at), version=2)])
                case "prune":
                    writer.prune(before_ms=NOW + at, at_most=how)
                case "shrink":
                    writer.shrink(how)
                case "fail":
                    _fail(writer, at)
                case "again":  # a process that knows nothing yet
                    writer.close()
                    writer = Store(open_writer(file, max_bytes=1 << 30))
    writer.close()
    with sqlite3.connect(file) as connection:
        there = set(connection.execute("SELECT number FROM letters"))
        for table in ("steps", "events"):
            assert set(connection.execute(f"SELECT DISTINCT letter FROM {table}")) == there
    for number in ids(file):
        page = Reader(file).letter(f"{number:032x}", EVERYTHING)
        assert all(entry["event"]["id"] == f"{number:032x}" for entry in page)
        assert page


def _fail(writer: Store, at: int) -> None:
    """A transaction that is refused at its end."""
    writer._connection.execute("CREATE TRIGGER no BEFORE INSERT ON streams BEGIN SELECT RAISE(ABORT, 'no'); END")
    writer._connection.execute("CREATE TRIGGER nor BEFORE UPDATE ON streams BEGIN SELECT RAISE(ABORT, 'no'); END")
    with pytest.raises(sqlite3.IntegrityError):
        writer.apply("/", [Message(at, message((1, "parked", "c"), (2, "parked", "c"), at=at), version=2)])
    writer._connection.executescript("DROP TRIGGER no; DROP TRIGGER nor;")


# What somebody else may write


def test_one_value_that_no_column_takes_costs_its_own_event(store: Store, file: Path) -> None:
    """It failed the transaction, which was tried again for ever."""
    store._connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 50_000)
    huge = message((2, "parked", "y" * 60_000))
    assert store.apply("/", [Message(0, told(1)), Message(1, huge, version=2), Message(2, told(3))]) == 2
    assert ids(file) == {1, 3}
    assert Reader(file).streams()["/"] == {
        "offset": 2, "events": 2, "unread": 1, "last_ms": NOW, "missing": 0,
    }  # fmt: skip
    (group,) = Reader(file).groups(EVERYTHING, vhost=None, failed_queue=None, state=None, limit=10, offset=0)
    assert group["deaths"] == 2
    assert store.apply("/", [Message(3, told(4))]) == 1


def test_what_small_messages_become_has_a_bound_in_each_transaction(store: Store) -> None:
    """A message of 300 bytes holds a line of 4 MB; 64 of them were held at once."""
    long = (
        b'{"v":1,"kind":"parked","failed_queue":"%d","deaths":[],"body_mode":"none","x":"' + b"x" * (3 << 20) + b'"}\n'
    )
    bombs = [packed(long % number + b'[0,"a%d","b",1,null,1,1,1,1,[],{}]' % number) for number in range(6)]
    assert sum(map(len, bombs)) < 6_000
    begun: list[str] = []
    store._connection.set_trace_callback(lambda sql: begun.append(sql) if sql.startswith("BEGIN") else None)
    assert store.apply("/", [Message(at, body, version=2) for at, body in enumerate(bombs)]) == 6
    assert len(begun) == 3  # two of them are more than PORTION_BYTES


def test_what_is_in_the_file_is_not_counted_again_when_the_rest_is_tried_again(store: Store, file: Path) -> None:
    batch = [Message(at, b" " * PORTION_BYTES + told(at)) for at in range(4)]
    store._connection.execute(
        "CREATE TRIGGER full BEFORE UPDATE ON streams WHEN new.offset = 2 BEGIN SELECT RAISE(ABORT, 'full'); END"
    )
    with pytest.raises(sqlite3.IntegrityError):
        store.apply("/", batch)
    store._connection.execute("DROP TRIGGER full")
    rest = _behind(store.position("/"), batch)
    assert [entry.offset for entry in rest] == [2, 3]
    store.apply("/", rest)
    assert Reader(file).streams()["/"]["events"] == 4


numbers = st.integers(-(1 << 70), 1 << 70) | st.sampled_from([0, -1, 1 << 62, (1 << 63) - 1, 1 << 63, True])
NAMES = (
    "id", "event_id", "kind", "v", "ts_ms", "due_ms", "props", "deaths", "failed_queue", "target", "digest", "error",
    "headers", "body", "body_mode", "message_id", "type", "size", "observed", "redrive_id", "attempts", "message",
)  # fmt: skip
names = st.sampled_from(NAMES)
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | numbers | st.floats() | st.text(max_size=9) | st.just("\udc80\0"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4),
    max_leaves=6,
)
SHARED = {"v": 1, "kind": "parked", "vhost": "/", "failed_queue": "q", "reason": "rejected",
          "deaths": [{"queue": "q", "reason": "rejected", "count": 1, "exchange": "", "routing_keys": ["q"]}],
          "target": {"exchange": "", "routing_key": "k"}, "body_mode": "none"}  # fmt: skip
ROW: list[Any] = [0, "aa", "bb", NOW, 5, 0, 0, 3, 4, [5], {}, {}]


def _odd(where: int, value: Any) -> list[Any]:
    return [*ROW[:where], value, *ROW[where + 1 :]]


odd_rows = st.builds(_odd, st.integers(0, len(ROW) - 1), values)
odd_shared = st.dictionaries(st.sampled_from([*SHARED]) | names, values, max_size=3).map(lambda some: SHARED | some)


@pytest.mark.slow
@given(st.lists(st.tuples(odd_shared, st.lists(odd_rows, max_size=3)), max_size=3))
@settings(max_examples=150, deadline=None)
def test_whatever_a_message_says_the_events_beside_it_count(
    tmp_path_factory: pytest.TempPathFactory, forged: list[tuple[dict[str, Any], list[list[Any]]]]
) -> None:
    file = tmp_path_factory.mktemp("forged") / "index.sqlite"
    writer = Store(open_writer(file, max_bytes=1 << 30))
    text = [json.dumps(SHARED)]
    for number, (shared, rows) in enumerate(forged, 1):
        text += [json.dumps(shared), *(json.dumps([number, *row[1:]] if row[0] == 0 else row) for row in rows)]
    text.append(json.dumps([0, "cc", "dd", NOW, None, 0, 0, 3, 4, [5], {}]))
    writer.apply("/", [Message(0, packed("\n".join(text).encode()), version=2), Message(1, told(7))])
    writer.close()
    reader = Reader(file)
    assert reader.letter("cc", EVERYTHING)
    assert reader.letter(f"{7:032x}", EVERYTHING)
    for row in reader.letters(EVERY, EVERYTHING, limit=100, before=None):
        json.dumps(reader.letter(row["id"], EVERYTHING), allow_nan=False, default=repr)
    reader.close()
