"""Notes on letters in the index: shown, found, kept through whatever the letter goes through, and gone with it."""

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlx_router.index import comments
from dlx_router.index.queries import Wanted
from dlx_router.index.reader import Reader
from dlx_router.index.rows import TEXT_CHARS
from dlx_router.index.schema import open_writer
from dlx_router.index.store import Message, Store
from dlx_router.journal.audit import COMMENT, audit
from tests.core.core_samples import NOW
from tests.journal.journal_samples import told

EVERYTHING: Any = lambda _vhost, _queue: True  # noqa: E731 - a constant beside the others
ID = f"{1:032x}"


def note(text: str, at: int = 10, letter: str = ID, queue: str = "orders", actor: str = "ann") -> bytes:
    details = {"letter": letter, "queue": queue, "text": text}
    return audit("r", "/", actor=actor, action=COMMENT, details=details, ts_ms=NOW + at)


def noted(file: Path, number: int = 1) -> list[tuple[str, str]]:
    (row,) = Reader(file).letter(f"{number:032x}", EVERYTHING)
    return [(comment["actor"], comment["text"]) for comment in row["comments"]]


def ids_with(file: Path, words: str) -> list[str]:
    return [row["id"] for row in Reader(file).letters(Wanted(text=words), EVERYTHING, limit=10, before=None)]


def test_a_note_is_shown_with_who_and_when_and_found_by_its_words(store: Store, file: Path) -> None:
    store.apply("/", [Message(0, told(1) + told(2)), Message(1, note("asked the shop"))])
    store.apply("/", [Message(2, note("they mend it on Monday", at=20, actor="bert"))])
    assert noted(file) == [("ann", "asked the shop"), ("bert", "they mend it on Monday")]
    assert noted(file, 2) == []
    assert (ids_with(file, "shop monday"), ids_with(file, "shop nothing")) == ([ID], [])
    (row,) = Reader(file).letter(ID, EVERYTHING)
    assert ([comment["ts_ms"] for comment in row["comments"]], row["state"]) == ([NOW + 10, NOW + 20], "dead")


def test_a_note_counts_once_and_outlives_newer_events(store: Store, file: Path) -> None:
    message = note("kept words")
    store.apply("/", [Message(0, told(1)), Message(1, message)])
    store.apply("/", [Message(2, message), Message(3, told(1, redrives=1, at=30))])
    assert (noted(file), ids_with(file, "kept words")) == ([("ann", "kept words")], [ID])
    store.close()
    again = Store(open_writer(file, max_bytes=1 << 30))
    again.apply("/", [Message(4, told(1, redrives=2, at=60)), Message(5, note("another", at=70))])
    again.close()
    assert (ids_with(file, "kept"), ids_with(file, "another kept")) == ([ID], [ID])


def test_a_note_goes_with_its_letter_and_stays_an_audit(store: Store, file: Path) -> None:
    store.apply("/", [Message(0, told(1) + told(2) + note("secret"))])
    assert store.shrink(1) == 1
    assert (ids_with(file, "secret"), noted(file, 2)) == ([], [])
    store.apply("/", [Message(1, told(3))])
    assert noted(file, 3) == [], "whatever number it got"
    assert store._connection.execute("SELECT count(*) FROM comments").fetchone() == (0,)
    assert [entry["details"]["text"] for entry in Reader(file).audits(["/"], limit=9)] == ["secret"]


@pytest.mark.parametrize(
    "said",
    [note("x", letter="nobody"), note("x", queue="elsewhere"), note("x", letter="")],
    ids=["another letter", "another copy", "none"],
)
def test_a_note_on_what_is_not_known_is_an_audit_only(store: Store, file: Path, said: bytes) -> None:
    store.apply("/", [Message(0, told(1)), Message(1, said)])
    assert noted(file) == []
    assert len(Reader(file).audits(["/"], limit=9)) == 1


@pytest.mark.parametrize("signature", ["none", "bad", "unknown_key"])
def test_once_a_journal_is_signed_a_note_that_is_not_is_nobodys(store: Store, file: Path, signature: str) -> None:
    store.apply("/", [Message(0, told(1), "ok")])
    store.apply("/", [Message(1, note("forged"), signature)])
    assert (noted(file), ids_with(file, "forged")) == ([], [])


@pytest.mark.parametrize("details", [{}, {"letter": ID}, {"letter": ID, "queue": 7, "text": ["x"]}, {"text": None}])
def test_a_note_of_another_shape_costs_no_other_event(store: Store, file: Path, details: dict[str, Any]) -> None:
    odd = audit("r", "/", actor="eve", action=COMMENT, details=details, ts_ms=NOW)
    store.apply("/", [Message(0, told(1)), Message(1, odd + note("mine"))])
    assert ("ann", "mine") in noted(file)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("neps"), st.text(max_size=30)), max_size=8),
    st.integers(1, 4),
)
def test_what_is_found_is_what_stands_there(
    tmp_path_factory: pytest.TempPathFactory, done: list[tuple[str, str]], at_once: int
) -> None:
    """Notes and events in any order and any transactions: the search knows the notes' words, and no others."""
    file = tmp_path_factory.mktemp("noted") / "index.sqlite"
    store = Store(open_writer(file, max_bytes=1 << 30))
    lines = [told(1)]
    for at, (what, text) in enumerate(done, 1):
        lines.append(note(f"word{at} {text}", at=at) if what in "np" else told(1, redrives=at, at=at))
    messages = [Message(at, line) for at, line in enumerate(lines)]
    for at in range(0, len(messages), at_once):
        store.apply("/", messages[at : at + at_once])
    store.close()
    wanted = [f"word{at}" for at, (what, _) in enumerate(done, 1) if what in "np"]
    assert [text.split()[0] for _, text in noted(file)] == wanted
    assert all(ids_with(file, word) == [ID] for word in wanted)
    assert ids_with(file, "word99") == []


def test_a_letter_whose_body_has_the_mark_of_notes_is_searched_by_no_more_than_its_events(
    store: Store, file: Path
) -> None:
    hostile = base64.b64encode(f"head {comments.MARK}{'tail ' * 400}".encode()).decode()
    for at in range(20):
        body = {"body": hostile, "body_mode": "full", "redrives": at}
        event = json.loads(told(1, at=at)) | body | {"event_id": f"r-{at}"}
        store.apply("/", [Message(at, json.dumps(event).encode() + b"\n")])
    assert store._connection.execute("SELECT max(length(text)) FROM events").fetchone()[0] <= TEXT_CHARS
    store.apply("/", [Message(20, note("mine", at=30))])
    (text,) = store._connection.execute("SELECT text FROM events").fetchone()
    assert (text.partition(comments.MARK)[2], ids_with(file, "tail mine")) == ("mine", [ID])
