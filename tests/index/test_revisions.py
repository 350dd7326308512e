"""Revisions of the policies in the index: when each came into force, what it was, what it decided."""

from pathlib import Path
from typing import Any

import pytest

from dlx_router.index import revisions
from dlx_router.index.reader import Reader
from dlx_router.index.store import Message, Store
from dlx_router.journal.audit import audit
from dlx_router.journal.revision_text import MOST_PACKED, packed, unpacked
from tests.core.core_samples import NOW, letter
from tests.journal.journal_samples import RULING, line

EVERYTHING: Any = lambda _vhost, _queue: True  # noqa: E731 - a constant beside the others
A, B = "a" * 12, "b" * 12


def in_force(revision: str, at: int, **more: Any) -> bytes:
    details = {"revision": revision, "policies": 2, "packed": packed({"is": revision}), **more}
    return audit("r", "/", actor="router", action=revisions.IN_FORCE, details=details, ts_ms=NOW + at)


def decided(number: int, revision: str, kind: str = "dead_lettered", queue: str = "orders", **ruling: Any) -> bytes:
    dead = letter(id=f"{number:032x}", failed_queue=queue)
    return line(dead, RULING._replace(kind=kind, revision=revision, **ruling), now_ms=NOW + number)


def known(file: Path, sees: Any = EVERYTHING) -> list[tuple[Any, ...]]:
    names = ("revision", "in_force_ms", "is_known", "decided")
    return [tuple(row[name] for name in names) for row in Reader(file).revisions("/", sees)]


def test_a_revision_is_known_by_what_it_was_and_what_it_decided(store: Store, file: Path) -> None:
    store.apply("/", [Message(0, in_force(A, 0) + decided(1, A) + decided(2, A, "retried"))])
    store.apply("/", [Message(1, in_force(B, 5) + decided(3, B, queue="mails") + decided(4, B, queue="mails"))])
    assert known(file) == [
        (B, NOW + 5, True, {"dead_lettered": 2}),
        (A, NOW, True, {"dead_lettered": 1, "retried": 1}),
    ]
    whole = Reader(file).revision("/", B, EVERYTHING)
    assert whole is not None
    assert (whole["document"], whole["queues"]) == ({"is": B}, {"mails": {"dead_lettered": 2}})
    assert (whole["first_ms"], whole["last_ms"]) == (NOW + 3, NOW + 3), "of the first event of a transaction"
    assert Reader(file).revision("/", "c" * 12, EVERYTHING) is None
    assert (Reader(file).revisions("other", EVERYTHING), Reader(file).newest_revision("other")) == ([], None)


def test_what_was_rolled_back_to_is_the_newest_again(store: Store, file: Path) -> None:
    store.apply("/", [Message(0, in_force(A, 0) + in_force(B, 5) + in_force(A, 9))])
    assert Reader(file).newest_revision("/") == A
    assert [(row[0], row[1]) for row in known(file)] == [(A, NOW + 9), (B, NOW + 5)]


def test_what_the_journal_said_last_is_the_newest_whatever_the_clock_said(store: Store, file: Path) -> None:
    """Else a router whose clock was ahead for an hour would have its successor say what is in force all the time."""
    store.apply("/", [Message(0, in_force(A, 3_600_000))])
    store.apply("/", [Message(1, in_force(B, 0))])
    assert Reader(file).newest_revision("/") == B
    store.apply("/", [Message(2, in_force(A, 1, packed=None))])
    assert Reader(file).newest_revision("/") == A
    whole = Reader(file).revision("/", A, EVERYTHING)
    assert whole is not None
    assert (whole["document"], whole["in_force_ms"]) == ({"is": A}, NOW + 1)
    store.apply("/", [Message(3, b"".join(in_force(f"{n:012x}", n - 9_999_999) for n in range(revisions.MOST)))])
    assert Reader(file).newest_revision("/") == f"{revisions.MOST - 1:012x}"


def test_decisions_count_once_and_stay_when_their_letters_go(store: Store, file: Path) -> None:
    body = decided(1, A) + decided(2, A)
    store.apply("/", [Message(0, body), Message(1, body)])
    store.apply("/", [Message(2, body)])
    assert store.shrink(2) == 2
    assert known(file) == [(A, None, False, {"dead_lettered": 2})]


def test_what_a_task_did_is_no_decision_of_a_policy(store: Store, file: Path) -> None:
    store.apply("/", [Message(0, decided(1, A) + decided(1, A, "discarded", redrive_id="t1"))])
    store.apply("/", [Message(1, decided(2, A, "released") + decided(3, ""))])
    assert known(file) == [(A, None, False, {"dead_lettered": 1})]


def test_who_sees_some_queues_sees_the_decisions_there(store: Store, file: Path) -> None:
    store.apply("/", [Message(0, decided(1, A) + decided(2, A, queue="mails"))])
    assert known(file, lambda _vhost, queue: queue == "mails") == [(A, None, False, {"dead_lettered": 1})]


def test_decisions_too_old_are_forgotten_as_finished_letters_are(store: Store, file: Path) -> None:
    store.apply("/", [Message(0, decided(1, A))])
    store.prune(before_ms=NOW, at_most=10)
    assert len(known(file)) == 1
    store.prune(before_ms=NOW + 100, at_most=10)
    assert known(file) == []


def test_another_stream_has_other_revisions(store: Store, file: Path) -> None:
    store.apply("/", [Message(0, in_force(A, 0) + decided(1, A))])
    assert [*store.forget("/")]
    assert known(file) == []


def test_what_a_revision_was_is_no_burden_of_the_list_of_audits(store: Store, file: Path) -> None:
    store.apply("/", [Message(0, in_force(A, 0))])
    (entry,) = Reader(file).audits(["/"], limit=9)
    assert entry["details"] == {"revision": A, "policies": 2}


@pytest.mark.parametrize(
    "told", [{"packed": None}, {"packed": "bm8gemxpYg=="}, {"packed": 7}], ids=["too large", "none", "odd"]
)
def test_a_revision_that_cannot_be_read_is_one_that_is_not_known(store: Store, file: Path, told: Any) -> None:
    store.apply("/", [Message(0, in_force(A, 0, **told))])
    whole = Reader(file).revision("/", A, EVERYTHING)
    assert whole is not None
    assert (whole["document"], whole["in_force_ms"]) == (None, NOW)


def test_once_a_journal_is_signed_nobody_else_says_what_is_in_force(store: Store, file: Path) -> None:
    store.apply("/", [Message(0, in_force(A, 0), "ok")])
    store.apply("/", [Message(1, in_force(B, 5), "none")])
    assert Reader(file).newest_revision("/") == A


def test_only_so_many_revisions_are_kept(store: Store, file: Path) -> None:
    body = b"".join(in_force(f"{number:012x}", number) for number in range(revisions.MOST + 3))
    store.apply("/", [Message(0, body)])
    rows = Reader(file).revisions("/", EVERYTHING)
    assert (len(rows), rows[-1]["revision"]) == (revisions.MOST, f"{3:012x}")


def test_a_document_is_packed_or_said_to_be_too_large() -> None:
    noise = {str(number): f"{hash((number, 7)):x}" for number in range(20_000)}
    assert packed(noise) is None
    blob = packed({"a": [1, "ü"]})
    assert blob is not None
    assert len(blob) < MOST_PACKED
    assert unpacked(None) is None
    assert [unpacked(data) for data in (b"", b"x", b"\x78\x9c")] == [None, None, None]
