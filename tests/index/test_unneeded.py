"""What the file keeps beside letters goes too when nothing needs it, so that its bound holds and letters have room."""

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from dlx_router.core.fingerprint import of_event
from dlx_router.index import unneeded
from dlx_router.index.queries import Wanted
from dlx_router.index.reader import Reader
from dlx_router.index.schema import open_writer
from dlx_router.index.shapes import LATEST_MS
from dlx_router.index.store import Message, Store
from dlx_router.index.worker import MAX_AGE_MS, Worker
from dlx_router.journal.audit import COMMENT, audit
from dlx_router.journal.events import gap
from tests.core.core_samples import NOW, letter
from tests.journal.journal_samples import RULING, line, told

EVERYTHING: Any = lambda _vhost, _queue: True  # noqa: E731 - a constant beside the others
MAX_BYTES: Final = 1 << 20
LATER: Final = 15 * 86_400_000
ROOM: Final = 0.9 * MAX_BYTES


@pytest.fixture
def small(file: Path) -> Iterator[Store]:
    """An index that is soon full."""
    writer = Store(open_writer(file, max_bytes=MAX_BYTES))
    yield writer
    writer.close()


def died(number: int, kind: str = "dead_lettered", at: int = 0) -> bytes:
    """Each in a queue of its own, of an error of its own, and left at a place of its own."""
    dead = letter(id=f"{number:032x}", failed_queue=f"orders.{number}")
    ruling = RULING._replace(kind=kind, routing_key=f"key.{number}", redrive_id="" if kind == "dead_lettered" else "t1")
    error = {"type": "Error", "message": "m" * 200}
    return line(dead, ruling, now_ms=NOW + at, extra=f'"error":{json.dumps(error)},"body_mode":"none"')


def filled(store: Store) -> int:
    """Letters die, are discarded and go, until what they leave fills nearly all of the file; → how many."""
    count = 0
    while store.used_bytes() < ROOM:
        new = range(count, count + 20)
        lines = [*map(died, new), *(died(number, "discarded", at=5) for number in new)]
        store.apply("/", [Message(count, b"".join(lines))])
        assert store.prune(before_ms=NOW + LATER, at_most=100) == len(new)
        count += len(new)
    return count


def tidied(store: Store, at: int = LATER) -> None:
    """All of it looked at once, so long after NOW."""
    while not store.tidy(before_ms=NOW + at - MAX_AGE_MS, age_ms=MAX_AGE_MS):
        pass


def counted(file: Path, table: str) -> int:
    with sqlite3.connect(file) as connection:
        return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def states(file: Path) -> dict[str, str]:
    """Of each group."""
    rows = Reader(file).groups(EVERYTHING, vhost=None, failed_queue=None, state=None, limit=500, offset=0)
    return {row["failed_queue"]: row["state"] for row in rows}


def set_group(number: int, signature: str = "none", **what: Any) -> Message:
    group = of_event(json.loads(died(number))).id
    order = audit("r", "/", actor="ann", action="group.set", details={"group": group, **what}, ts_ms=NOW + 9)
    return Message(9_000 + number, order, signature)


@pytest.mark.parametrize("at_once", [7, 20_000])
async def test_what_letters_left_goes_after_a_time_and_new_ones_have_room(
    small: Store, file: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(unneeded, "AT_ONCE", at_once)
    count, full = filled(small), small.used_bytes()
    tidied(small, at=MAX_AGE_MS - 1)
    assert counted(file, "groups") == count, "they are not old enough"
    small.apply("/", [Message(99_999, died(count, at=LATER))])
    tidied(small)
    assert small.used_bytes() < full / 2
    assert [counted(file, table) for table in ("groups", "queues", "places", "counts")] == [1, 1, 1, 1]
    for number in range(count, count + 50):
        small.apply("/", [Message(100_000 + number, died(number, at=LATER + 1))])
    await Worker(file, MAX_BYTES)._make_room(small)
    assert small.count() == 50
    assert len(states(file)) == 50


async def test_a_full_file_without_letters_has_room_for_new_ones(small: Store, file: Path) -> None:
    count, worker = filled(small), Worker(file, MAX_BYTES)
    small.apply("/", [set_group(3, state="ignored"), set_group(4, note="ask the shop")])
    await worker._make_room(small)
    assert small.used_bytes() < ROOM
    assert states(file) == {"orders.3": "ignored", "orders.4": "open"}
    small.apply("/", [Message(99_999, died(count))])
    await worker._make_room(small)
    assert small.count() == 1


async def test_audits_that_no_router_signed_fill_no_file(small: Store, file: Path) -> None:
    small.apply("/", [Message(0, told(1), "ok")])
    signed = audit("r", "/", actor="ann", action="task.done", details={}, ts_ms=NOW)
    small.apply("/", [Message(1, signed, "ok")])
    large = 0
    while small.used_bytes() < ROOM:
        forged = audit("r", "/", actor="eve", action="task.done", details={"x": "y" * 100_000}, ts_ms=LATEST_MS)
        small.apply("/", [Message(2 + large, forged)])
        large += 1
    await Worker(file, MAX_BYTES)._make_room(small)
    assert small.used_bytes() < ROOM / 2
    assert small.count() == 1
    assert [entry["actor"] for entry in Reader(file).audits(["/"], limit=100)].count("ann") == 1


def test_a_group_that_somebody_wrote_of_or_that_has_letters_stays(store: Store, file: Path) -> None:
    for number in range(6):
        store.apply("/", [Message(number, died(number))])
    store.apply("/", [set_group(1, state="ignored"), set_group(2, state="resolved"), set_group(3, note="mine")])
    store.apply("/", [set_group(4, state="ignored"), set_group(4, state="open")])
    for number in range(5):
        store.apply("/", [Message(10 + number, died(number, "discarded", at=5))])
    store.prune(before_ms=NOW + 6, at_most=100)
    store.apply("/", [Message(20, told(99, at=LATER))])
    tidied(store)
    kept = {"orders.1": "ignored", "orders.2": "resolved", "orders.3": "open", "orders.5": "open", "orders": "open"}
    assert states(file) == kept
    entries = Reader(file).letters(Wanted(), EVERYTHING, limit=9, before=None)
    assert {entry["failed_queue"] for entry in entries} == {"orders.5", "orders"}


def test_a_group_is_old_only_where_the_journal_that_was_read_is_newer(store: Store, file: Path) -> None:
    """While it is read from its start a person's word on the group may still come."""
    store.apply("/", [Message(0, died(1)), Message(1, died(1, "discarded", at=5))])
    store.prune(before_ms=NOW + 6, at_most=100)
    tidied(store)
    store.apply("/", [set_group(1, state="ignored")])
    assert states(file) == {"orders.1": "ignored"}


def test_a_group_that_went_comes_again_with_its_letter(store: Store, file: Path) -> None:
    store.apply("/", [Message(0, died(1)), Message(1, died(1, "discarded", at=5))])
    store.prune(before_ms=NOW + 6, at_most=100)
    store.apply("/", [Message(2, told(99, at=LATER))])
    tidied(store)
    assert states(file) == {"orders": "open"}
    store.apply("/", [Message(3, died(2, at=LATER)), Message(4, died(1, at=LATER))])
    assert states(file) == {"orders": "open", "orders.1": "open", "orders.2": "open"}
    (entry,) = Reader(file).letters(Wanted(failed_queue="orders.1"), EVERYTHING, limit=9, before=None)
    assert entry["target"]["routing_key"] == "key.1"


def test_old_audits_go_but_what_people_set_is_known_as_told_before(store: Store, file: Path) -> None:
    """An order that somebody writes into the journal again would be obeyed again."""
    lasting = ("group.set", COMMENT)
    for number, action in enumerate((*lasting, "task.done", "webhook.told")):
        for signature in ("ok", "none"):
            entry = audit("r", "/", actor=signature, action=action, details={}, ts_ms=NOW + number)
            store.apply("/", [Message(number, entry, signature)])
    new = audit("r", "/", actor="ann", action="task.done", details={}, ts_ms=NOW + LATER)
    store.apply("/", [Message(99, new, "ok")])
    tidied(store)
    entries = Reader(file).audits(["/"], limit=100)
    assert sorted(entry["action"] for entry in entries) == sorted((*lasting, "task.done"))
    assert {entry["actor"] for entry in entries} == {"ok", "ann"}


def test_old_gaps_go_and_of_others_the_newest_stay(store: Store, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unneeded, "MOST_GAPS", 5)
    lines = [gap("r", "/", events=1, from_ms=1, to_ms=NOW + number) for number in range(3)]
    lines += [gap("r", "/", events=1, from_ms=1, to_ms=NOW + LATER + number) for number in range(9)]
    store.apply("/", [Message(0, b"".join(lines))])
    tidied(store)
    assert Reader(file).streams()["/"]["missing"] == 5
