"""The index's writer by itself: an event counts once, a full file makes room, a foreign file is never touched."""

import json
import sqlite3
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from dlx_router.core.fingerprint import of_event
from dlx_router.core.letter import Letter
from dlx_router.index import forgetting, schema
from dlx_router.index import store as store_module
from dlx_router.index.queries import Wanted, query
from dlx_router.index.reader import IndexAway, Reader
from dlx_router.index.rows import STATE_OF
from dlx_router.index.schema import Damaged, IndexFileError, open_writer
from dlx_router.index.store import Message, Store
from dlx_router.journal import packing
from dlx_router.journal.audit import audit
from dlx_router.journal.batch import Batch
from dlx_router.journal.events import Ruling, fragments, gap
from dlx_router.journal.fields import LINES, ROWS
from dlx_router.journal.packing import packed
from tests.core.core_samples import NOW, letter
from tests.index.kept import kept_events, kept_steps
from tests.journal.journal_samples import RULING, letters, line, moments, props, rulings, some_props, told
from tests.journal.rows_of import rows_of

EVERYTHING: Any = lambda _vhost, _queue: True  # noqa: E731 - a constant beside the others
ALL = Wanted()
LEASED = '"lease":{"id":"l1","by":"me","receives":1},"body_mode":"none"'
LEASE_ENDED = '"lease":{"id":"l1","by":"me","receives":1,"ended":"expired"},"body_mode":"none"'


def everything(file: Path) -> list[dict[str, Any]]:
    return Reader(file).letters(ALL, EVERYTHING, limit=1000, before=None)


def test_an_event_counts_once_however_often_it_comes(store: Store, file: Path) -> None:
    body = told(1) + told(2)
    store.apply("/", [Message(0, body), Message(1, body)])
    store.apply("/", [Message(2, body)])
    assert len(everything(file)) == 2
    (group,) = Reader(file).groups(EVERYTHING, vhost=None, failed_queue=None, state=None, limit=10, offset=0)
    assert (group["deaths"], group["states"]) == (2, {"dead": 2})
    assert group["id"] == of_event(json.loads(told(1))).id
    assert store.position("/") is not None
    assert store.position("other") is None


@pytest.mark.parametrize("written", [b"".join, rows_of], ids=["lines", "rows"])
def test_a_lease_is_a_step_on_a_letters_way_and_changes_nothing_else(
    store: Store, file: Path, written: Callable[[list[bytes]], bytes]
) -> None:
    leased, shown = letter(id=f"{1:032x}", failed_queue="orders"), EVERYTHING
    lines = [
        line(leased, RULING._replace(kind="leased", redrive_id="l1"), now_ms=NOW + 10, due_ms=NOW + 99, extra=LEASED),
        line(leased, RULING._replace(kind="lease_ended", redrive_id="l1"), now_ms=NOW + 20, extra=LEASE_ENDED),
    ]
    store.apply("/", [Message(0, written(lines[:1]))])
    assert everything(file) == [], "nothing is known of where it is"
    store.apply("/", [Message(1, told(1))])
    before = everything(file)
    store.apply("/", [Message(2, written(lines)), Message(3, written(lines[1:]))])
    after = everything(file)
    assert [{**row, "cursor": 0} for row in after] == [{**row, "cursor": 0} for row in before]
    (whole,) = Reader(file).letter(f"{1:032x}", shown)
    steps = [(step["kind"], step["cause"], step["due_ms"], step["redrive_id"]) for step in whole["journey"][1:]]
    assert steps == [("leased", None, NOW + 99, "l1"), ("lease_ended", "expired", None, "l1")]
    assert whole["event"]["kind"] == "dead_lettered"
    (group,) = Reader(file).groups(shown, vhost=None, failed_queue=None, state=None, limit=10, offset=0)
    assert (group["deaths"], group["states"]) == (1, {"dead": 1})


@pytest.mark.parametrize("kind", ["redriven", "discarded", "parked", "edited"])
def test_what_a_task_does_to_a_letter_is_no_death_and_opens_no_group(store: Store, file: Path, kind: str) -> None:
    def group() -> dict[str, Any]:
        (row,) = Reader(file).groups(EVERYTHING, vhost=None, failed_queue=None, state=None, limit=10, offset=0)
        return row

    store.apply("/", [Message(0, told(1))])
    details = {"group": group()["id"], "state": "resolved"}
    resolved = audit("r", "/", actor="ann", action="group.set", details=details, ts_ms=NOW + 10)
    store.apply("/", [Message(1, resolved)])
    ruling = RULING._replace(kind=kind, redrive_id="t1")
    store.apply("/", [Message(2, line(letter(id=f"{1:032x}", failed_queue="orders"), ruling, now_ms=NOW + 20))])
    seen = group()
    assert (seen["state"], seen["returned"], seen["deaths"], seen["last_ms"]) == ("resolved", False, 1, NOW)
    assert seen["states"] == {"dead" if kind == "edited" else STATE_OF[kind]: 1}
    store.apply("/", [Message(3, told(1, redrives=1, at=30))])
    seen = group()
    assert (seen["state"], seen["returned"], seen["deaths"], seen["last_ms"]) == ("open", True, 2, NOW + 30)


def sent_by(task: str, number: int, at: int, **where: Any) -> bytes:
    ruling = RULING._replace(kind="redriven", redrive_id=task)
    return line(letter(id=f"{number:032x}", failed_queue="orders", redrives=1), ruling, now_ms=NOW + at, **where)


def test_what_a_task_sent_and_died_again_came_back(store: Store, file: Path) -> None:
    first = b"".join(told(number) for number in range(1, 6))
    sent = sent_by("t1", 1, 10) + sent_by("t1", 2, 10) + sent_by("t2", 3, 10) + sent_by("t1", 4, 10)
    again = told(1, redrives=1, at=20) + told(3, redrives=1, at=20)
    store.apply("/", [Message(0, first), Message(1, sent), Message(2, again), Message(3, sent_by("t3", 1, 30))])
    assert Reader(file).came_back(["t1", "t2", "t3", "t9"], elsewhere=False) == {"t1": 1, "t2": 1}
    elsewhere = line(letter(id=f"{2:032x}", failed_queue="mended", redrives=1), RULING, now_ms=NOW + 40)
    store.apply("/", [Message(4, elsewhere)])
    assert Reader(file).came_back(["t1"], elsewhere=False) == {"t1": 1}
    assert Reader(file).came_back(["t1"], elsewhere=True) == {"t1": 2}


def journey(file: Path, number: int = 1) -> list[str]:
    (whole,) = Reader(file).letter(f"{number:032x}", EVERYTHING)
    return [step["kind"] for step in whole["journey"]]


@pytest.mark.parametrize("written", [b"".join, rows_of], ids=["lines", "rows"])
@pytest.mark.parametrize("together", [True, False])
def test_a_letter_that_died_again_before_its_redrive_was_sure_is_dead(
    store: Store,
    file: Path,
    written: Callable[[list[bytes]], bytes],
    together: bool,  # noqa: FBT001 - a column of the table
) -> None:
    """Another replica tells the death within milliseconds, who sent the letter tells that once it is confirmed."""
    lines = [told(1), told(1, redrives=1, at=1005), sent_by("t1", 1, 1000)]
    messages = [written(lines)] if together else [written([each]) for each in lines]
    store.apply("/", [Message(number, body) for number, body in enumerate(messages)])
    store.apply("/", [Message(9, written(lines[2:]))])
    (row,) = everything(file)
    assert (row["state"], row["redrives"], row["last_ms"]) == ("dead", 1, NOW + 1005)
    assert row["newest"][:2] == ["dead_lettered", NOW + 1005]
    assert journey(file) == ["dead_lettered", "redriven", "dead_lettered"]
    (group,) = Reader(file).groups(EVERYTHING, vhost=None, failed_queue=None, state=None, limit=10, offset=0)
    assert (group["deaths"], group["states"]) == (2, {"dead": 1})
    assert Reader(file).came_back(["t1"], elsewhere=False) == {"t1": 1}
    store.apply("/", [Message(10, sent_by("t2", 1, 2000))])
    assert everything(file)[0]["state"] == "redriven"


def decided(kind: str, at: int, attempts: int) -> bytes:
    ruling = RULING._replace(kind=kind, attempts=attempts)
    return line(letter(id=f"{1:032x}", failed_queue="orders"), ruling, now_ms=NOW + at)


def test_a_death_that_is_told_late_counts_and_moves_nothing(store: Store, file: Path) -> None:
    """A replica's journal was away for ten minutes; what it had to tell comes behind what others told since."""
    store.apply("/", [Message(0, decided("dead_lettered", 600_000, 3)), Message(1, decided("retried", 0, 1))])
    store.apply("/", [Message(2, decided("retried", 300_000, 2))])
    assert [(row["state"], row["attempts"]) for row in everything(file)] == [("dead", 3)]
    assert journey(file) == ["retried", "retried", "dead_lettered"]
    (group,) = Reader(file).groups(EVERYTHING, vhost=None, failed_queue=None, state=None, limit=10, offset=0)
    assert (group["deaths"], group["states"], group["first_ms"]) == (3, {"dead": 1}, NOW)


def test_a_host_whose_clock_is_ahead_does_not_have_the_last_word(store: Store, file: Path) -> None:
    store.apply("/", [Message(0, decided("retried", 3_600_000, 1)), Message(1, decided("dead_lettered", 5_000, 2))])
    assert [row["state"] for row in everything(file)] == ["dead"]
    ahead = line(letter(id=f"{1:032x}", failed_queue="orders"), RULING._replace(kind="parked", attempts=9), 2**52)
    store.apply("/", [Message(2, ahead), Message(3, decided("discarded", 9_000, 0))])
    assert [row["state"] for row in everything(file)] == ["discarded"]


def test_what_a_task_sent_goes_with_its_letters(store: Store, file: Path) -> None:
    store.apply("/", [Message(0, told(1) + sent_by("t1", 1, 10) + told(1, redrives=1, at=20) + told(2))])
    assert store.shrink(1) == 1
    assert Reader(file).came_back(["t1"], elsewhere=False) == {}


def test_lines_that_are_no_events_are_counted_and_stop_nothing(store: Store, file: Path) -> None:
    odd = b'{"v":9,"kind":"x","event_id":"y"}\nno json\n[]\n{"v":1,"kind":"parked","event_id":"a-b"}\n{"v":1}\n'
    store.apply("/", [Message(0, odd + told(1))])
    assert len(everything(file)) == 1
    assert Reader(file).streams()["/"]["unread"] == 5


def test_a_message_that_cannot_be_read_is_counted_and_named(store: Store, file: Path) -> None:
    bomb = zstandard.ZstdCompressor().compress(b"\0" * (packing.MAX_BYTES + 1))
    newer = Message(7, told(2), version=3)
    store.apply("/", [Message(5, bomb), Message(6, packed(b"\xff\n[0]\n")), newer, Message(8, told(1), version=1)])
    assert len(everything(file)) == 1
    assert Reader(file).streams()["/"]["unread"] == 4
    assert store.unreadable == "message at offset 7: format 3; 1 and 2 are known"
    assert store.position("/") is not None


def _message(events: list[tuple[Letter, Ruling, int, dict[str, Any]]], message_format: int) -> bytes:
    batch = Batch(1)
    batch.tells_tasks = message_format == LINES
    for dead, ruling, now_ms, own in events:
        batch.add(fragments(dead, ruling).entry(dead.id, now_ms, **own))
    batch.close()
    return batch.body


def _held(file: Path) -> dict[str, list[Any]]:
    """All that the file says of letters; of their events what they mean, not how they are written."""
    with sqlite3.connect(file) as connection:
        names = ("letters", "bodies", "counts", "places", "queues")
        tables = {name: connection.execute(f"SELECT * FROM {name} ORDER BY 1, 2, 3").fetchall() for name in names}
        return tables | {"events": kept_events(connection), "steps": kept_steps(connection)}


runs = st.lists(
    st.tuples(
        letters,
        rulings,
        st.integers(0, 10**12),
        st.fixed_dictionaries(
            {"first_ms": moments, "last_ms": moments, "crc32": st.just(7), "size": st.integers(0, 99)},
            optional={
                "props": some_props.map(lambda fields: props(**fields)),
                "due_ms": moments,
                "draw": st.floats(-1, 1),
                "extra": st.sampled_from(
                    ['"error":{"type":"T"},"body_mode":"none"', '"body_mode":"inline","body":"eA=="']
                ),
            },
        ),
    ),
    min_size=1,
    max_size=6,
)


@settings(max_examples=40, deadline=None)
@given(runs)
def test_both_formats_make_the_same_index(
    tmp_path_factory: pytest.TempPathFactory, events: list[tuple[Letter, Ruling, int, dict[str, Any]]]
) -> None:
    folder, contents = tmp_path_factory.mktemp("index"), []
    for message_format in (LINES, ROWS):
        file = folder / f"{message_format}.sqlite"
        writer = Store(open_writer(file, max_bytes=1 << 30))
        writer.apply("/", [Message(0, _message(events, message_format), version=message_format)])
        writer.close()
        contents.append(_held(file))
    assert contents[0] == contents[1]


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "-1e400"])
@pytest.mark.parametrize(
    "said", ['"draw":{0}', '"attempts":{0}', '"ts_ms":{0}', '"props":{{"priority":{0}}}', '"more":[{{"deep":{0}}}]']
)
def test_a_number_that_json_lacks_costs_its_own_line(store: Store, file: Path, said: str, number: str) -> None:
    """Whoever may write to the journal can write it; an answer with one in it could not be told."""
    odd = told(2).replace(b'{"v":1', f'{{{said.format(number)},"v":1'.encode(), 1)
    tail = told(3).replace(b"}\n", f",{said.format(number)}}}\n".encode(), 1)[: -len(b"\n")] + b"\n"
    store.apply("/", [Message(0, odd + tail + told(1))])
    assert Reader(file).streams()["/"]["unread"] == 2
    assert len(everything(file)) == 1
    json.dumps(everything(file), allow_nan=False)


def test_gaps_are_told(store: Store, file: Path) -> None:
    missing = gap("r", "/", events=7, from_ms=1, to_ms=2)
    store.apply("/", [Message(0, missing + missing)])
    assert Reader(file).streams()["/"]["missing"] == 7


def test_names_that_are_no_text_are_kept(store: Store, file: Path) -> None:
    store.apply("/", [Message(0, told(1, queue="bad\udc80"))])
    assert everything(file)[0]["failed_queue"] == "bad\\udc80"


def test_what_came_by_the_time_a_queue_was_empty_is_gone_and_what_came_later_is_not(store: Store, file: Path) -> None:
    store.apply("/", [Message(0, told(1) + told(2, at=100))])
    (place,) = Reader(file).places()
    assert store.emptied("/", (place["exchange"], place["routing_key"]), NOW + 50) == 1
    assert [row["state"] for row in everything(file)] == ["dead", "gone"]
    (group,) = Reader(file).groups(EVERYTHING, vhost=None, failed_queue=None, state=None, limit=10, offset=0)
    assert group["states"] == {"dead": 1, "gone": 1}


DAY: Final = 86_400_000


def parked(at: int = 0, kind: str = "parked", task: str = "") -> bytes:
    """An event of a message without x-death: one that is equal has the same ids, whenever it comes."""
    died = letter(id=f"{1:032x}", failed_queue="orders", history=(), fresh=(), reason="unknown")
    return line(died, RULING._replace(kind=kind, redrive_id=task), now_ms=NOW + at)


def state_and_steps(file: Path) -> tuple[str, list[tuple[str, int]]]:
    (row,) = Reader(file).letter(f"{1:032x}", EVERYTHING)
    return row["state"], [(step["kind"], step["ts_ms"] - NOW) for step in row["journey"]]


@pytest.mark.parametrize("at_once", [True, False])
def test_an_equal_message_that_comes_later_lies_again(store: Store, file: Path, *, at_once: bool) -> None:
    events = [parked(), parked(at=10, kind="discarded", task="t1"), parked(at=DAY), parked(at=DAY)]
    for number, event in enumerate([b"".join(events)] if at_once else events):
        store.apply("/", [Message(number, event)])
    steps = [("parked", 0), ("discarded", 10), ("parked", DAY)]
    assert state_and_steps(file) == ("parked", steps)
    store.apply("/", [Message(10, parked(at=2 * DAY)), Message(11, parked())])
    assert state_and_steps(file) == ("parked", steps), "it lies already"
    store.apply("/", [Message(12, parked(at=2 * DAY, kind="discarded", task="t2"))])
    store.apply("/", [Message(13, event) for event in events])
    assert state_and_steps(file) == ("discarded", [*steps, ("discarded", 2 * DAY)]), (
        "what is told twice says nothing new"
    )
    store.apply("/", [Message(14, parked(at=3 * DAY))])
    assert state_and_steps(file)[0] == "parked"
    (place,) = Reader(file).places()
    assert place["n"] == 1
    (group,) = Reader(file).groups(EVERYTHING, vhost=None, failed_queue=None, state=None, limit=10, offset=0)
    assert group["states"] == {"parked": 1}
    assert store.shrink(1) == 1
    assert store.count() == 0


def test_a_message_whose_queue_was_found_empty_lies_again_when_an_equal_one_comes(store: Store, file: Path) -> None:
    store.apply("/", [Message(0, parked())])
    (place,) = Reader(file).places()
    store.emptied("/", (place["exchange"], place["routing_key"]), NOW + 5)
    assert state_and_steps(file)[0] == "gone"
    store.apply("/", [Message(1, parked()), Message(2, parked(at=DAY))])
    assert state_and_steps(file) == ("parked", [("parked", 0), ("parked", DAY)])


def test_a_line_that_is_told_twice_holds_nothing_again_whatever_clocks_said(store: Store, file: Path) -> None:
    """The clock of whoever discarded it was behind."""
    late = parked(at=100)
    store.apply("/", [Message(0, late), Message(1, parked(at=50, kind="discarded", task="t1")), Message(2, late)])
    assert state_and_steps(file)[0] == "discarded"


def test_the_end_of_a_wait_that_is_told_again_moves_no_letter(store: Store, file: Path) -> None:
    """Retried, given back, and decided once more after a crash: a copy waits, and its end is not told another time."""
    events = [parked(kind="retried"), parked(at=10, kind="released"), parked(at=20, kind="retried")]
    store.apply("/", [Message(number, event) for number, event in enumerate(events)])
    assert state_and_steps(file)[0] == "released"


def test_a_letter_that_is_tried_again_at_once_does_not_wait(store: Store, file: Path) -> None:
    """No `released` follows: it was shown as waiting for ever."""
    at_once = RULING._replace(kind="retried", exchange="", routing_key="orders")
    waits = at_once._replace(exchange=None, routing_key="", rung_ms=1000)
    for number, ruling in enumerate((at_once, waits)):
        store.apply("/", [Message(number, line(letter(id=f"{number:032x}"), ruling, due_ms=NOW))])
    states = [Reader(file).letter(f"{number:032x}", EVERYTHING)[0]["state"] for number in range(2)]
    assert states == ["released", "retrying"]


def test_a_failed_transaction_leaves_nothing(store: Store, file: Path) -> None:
    store.apply("/", [Message(0, told(1))])
    store._connection.execute("DROP TABLE bodies")
    store._connection.execute("CREATE TABLE bodies (letter INTEGER PRIMARY KEY CHECK (letter < 0))")
    before = store.position("/")
    full = line(letter(id="f" * 32), extra='"body_mode":"inline","body_sha256":"00","body":"YQ=="')
    with pytest.raises(sqlite3.Error):
        store.apply("/", [Message(1, told(2) + full)])
    assert store.position("/") == before
    assert len(everything(file)) == 1


def test_a_full_file_says_so_and_makes_room(file: Path) -> None:
    store = Store(open_writer(file, max_bytes=2 << 20))

    def fill() -> None:
        for number in range(100_000):
            store.apply("/", [Message(number, told(number))])

    with pytest.raises(sqlite3.OperationalError) as full:
        fill()
    assert schema.is_passing(full.value)
    known = store.count()
    assert store.shrink(known // 2) == known // 2
    store.apply("/", [Message(known, told(10**6))])
    kept = everything(file)
    assert kept[0]["id"] == f"{10**6:032x}"  # the newest is there, the oldest are not
    assert store.count() == known - known // 2 + 1
    store.close()


def test_only_finished_letters_go_by_age(store: Store, file: Path) -> None:
    store.apply("/", [Message(0, told(1) + told(2, "discarded") + told(3, "discarded", at=10_000))])
    assert store.prune(before_ms=NOW + 5000, at_most=100) == 1
    assert {row["id"][-1] for row in everything(file)} == {"1", "3"}


def test_another_stream_takes_the_old_ones_place_whole(store: Store, file: Path) -> None:
    store.apply("/", [Message(0, told(1))])
    store.apply("other", [Message(0, told(2))])
    assert [*store.forget("/")]
    assert [row["id"][-1] for row in everything(file)] == ["2"]
    assert store.position("/") is None
    store.apply("/", [Message(0, told(1))])
    assert len(everything(file)) == 2


@pytest.mark.parametrize("looked_at", [2, 5, 50_000])
def test_a_vhost_is_forgotten_a_piece_at_a_time_and_by_the_next_process_too(
    store: Store, file: Path, monkeypatch: pytest.MonkeyPatch, looked_at: int
) -> None:
    """All at once took as much memory as the file has bytes: the process was killed, began anew, and was killed."""
    monkeypatch.setattr(store_module, "MOST_GONE", 3)
    monkeypatch.setattr(forgetting, "LOOKED_AT", looked_at)
    for number in range(20):
        store.apply("/" if number % 3 else "other", [Message(number, told(number))])
    left = [store.count()]
    for _ in store.forget("/"):
        assert store.is_forgetting("/"), "nobody takes what is left for all that there was"
        left.append(store.count())
        if left[-1] < 14:
            break
    store.close()
    following = Store(open_writer(file, max_bytes=1 << 30))
    assert following.is_forgetting("/")
    left += [following.count() for _ in following.forget("/")]
    assert max(before - after for before, after in pairwise(left)) <= 3
    assert (following.is_forgetting("/"), following.position("/"), following.count()) == (False, None, 7)
    assert {row["vhost"] for row in everything(file)} == {"other"}
    following.close()


# -- the file ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"somebody's notes", b"SQLite format 3\x00" + bytes(84)])
def test_a_file_that_is_not_ours_is_not_touched(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    with pytest.raises(IndexFileError, match="no index of the router"):
        open_writer(file, max_bytes=1 << 20)
    assert file.read_bytes() == content


def test_a_file_of_ours_that_is_damaged_says_so(file: Path) -> None:
    open_writer(file, max_bytes=1 << 20).close()
    file.write_bytes(b"x" * 10_000)
    with pytest.raises(Damaged):
        open_writer(file, max_bytes=1 << 20)


def test_a_file_of_another_layout_is_to_be_made_anew(file: Path) -> None:
    open_writer(file, max_bytes=1 << 20).close()
    with sqlite3.connect(file) as other:
        other.execute(f"PRAGMA user_version = {schema.VERSION + 1}")
    other.close()
    with pytest.raises(Damaged, match=f"layout {schema.VERSION + 1}, not {schema.VERSION}"):
        open_writer(file, max_bytes=1 << 20)


def test_a_reader_of_nothing_says_that_it_is_being_made(file: Path) -> None:
    with pytest.raises(IndexAway):
        everything(file)


# -- words ------------------------------------------------------------------------------------------------------------


@given(st.text(max_size=60))
@settings(max_examples=200)
def test_any_words_can_be_asked_for(text: str) -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE VIRTUAL TABLE t USING fts5 (x)")
    connection.execute("SELECT * FROM t WHERE t MATCH ?", (query(text.replace("\0", "")),)).fetchall()
    connection.close()


def test_letters_come_newest_or_oldest_first_and_each_page_goes_on_behind_the_one_before(
    store: Store, file: Path
) -> None:
    for number in range(7):
        store.apply("/", [Message(number, told(number))])
    reader = Reader(file)
    newest = [row["cursor"] for row in everything(file)]
    for oldest in (False, True):
        cursors, before = list[int](), None
        while page := reader.letters(ALL, EVERYTHING, limit=3, before=before, oldest=oldest):
            cursors += [row["cursor"] for row in page]
            before = cursors[-1]
        assert cursors == sorted(newest, reverse=not oldest)


def test_the_oldest_that_rests_in_a_queue_is_told(store: Store, file: Path) -> None:
    store.apply(
        "/", [Message(0, told(1, at=50)), Message(1, told(2, at=70)), Message(2, told(3, queue="other", at=60))]
    )
    oldest = {row["failed_queue"]: row["oldest_ms"] for row in Reader(file).failed_queues(EVERYTHING)}
    assert oldest == {"orders": NOW + 50, "other": NOW + 60}
    waits = RULING._replace(kind="retried")
    store.apply("/", [Message(3, line(letter(id=f"{1:032x}", failed_queue="orders"), waits, now_ms=NOW + 80))])
    oldest = {row["failed_queue"]: row["oldest_ms"] for row in Reader(file).failed_queues(EVERYTHING)}
    assert oldest["orders"] == NOW + 70, "what waits does not rest"


def test_each_audit_comes_once_whatever_the_page(store: Store, file: Path) -> None:
    moments = [5, 9, 9, 9, 2, 7]
    bodies = [
        audit("r", "/", actor=str(number), action="x", details={}, ts_ms=NOW + at) for number, at in enumerate(moments)
    ]
    store.apply("/", [Message(number, body) for number, body in enumerate(bodies)])
    for limit in (1, 2, 4, 10):
        entries, before = list[dict[str, Any]](), None
        while page := Reader(file).audits(["/"], limit=limit, before=before):
            entries += page
            before = page[-1]["ts_ms"], page[-1]["event_id"]
        assert sorted(entry["actor"] for entry in entries) == ["0", "1", "2", "3", "4", "5"]
        assert [entry["ts_ms"] for entry in entries] == sorted((NOW + at for at in moments), reverse=True)
