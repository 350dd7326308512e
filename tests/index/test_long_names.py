"""Whoever may write to the journal chooses no text that has no bound: such an event is not read, and the others are."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from dlx_router.index.queries import Wanted
from dlx_router.index.reader import Reader
from dlx_router.index.store import Message, Store
from dlx_router.journal.audit import audit
from dlx_router.journal.events import gap
from dlx_router.journal.packing import packed
from tests.core.core_samples import NOW
from tests.journal.journal_samples import told
from tests.journal.rows_of import rows_of

EVERYTHING: Any = lambda _vhost, _queue: True  # noqa: E731 - a constant beside the others
LONG: Final = "x" * (1 << 20)
NAME: Final = "n" * 255
BAD: Final = "\udcff" * 255  # bytes that are no UTF-8: each is spelt out
SHARED: Final = ("failed_queue", "source", "reason", "cause", "policy", "revision", "refused", "redrive_id")
Written = Callable[[list[bytes]], bytes]


def altered(event: bytes, change: Callable[[dict[str, Any]], object]) -> bytes:
    document = json.loads(event)
    change(document)
    return json.dumps(document, separators=(",", ":")).encode() + b"\n"


def saying(name: str, value: object) -> Callable[[dict[str, Any]], object]:
    return lambda event: event.update({name: value})


def forged(text: str) -> Iterator[bytes]:
    """Events of letters, each with this text in another place that has a column."""
    numbers = iter(range(2, 99))
    for name in SHARED:
        yield altered(told(next(numbers)), saying(name, text))
    for name in ("exchange", "routing_key"):
        yield altered(told(next(numbers)), saying("target", {"exchange": "", "routing_key": "k", name: text}))
    yield altered(told(next(numbers)), lambda event: event.update(props={"message_id": text}))
    yield altered(told(next(numbers)), lambda event: event.update(event_id=f"{event['id']}-{text}"))
    yield altered(told(next(numbers)), lambda event: event.update(id=text, event_id=f"{text}-1"))
    more = {"body_mode": "inline", "body": "YQ==", "body_sha256": text}
    yield altered(told(next(numbers)), lambda event: event.update(more))


def lengths(answer: Any) -> int:
    """Of its longest text."""
    if isinstance(answer, dict):
        return max(map(lengths, answer.values()), default=0)
    if isinstance(answer, list | tuple):
        return max(map(lengths, answer), default=0)
    return len(answer) if isinstance(answer, str) else 0


def groups(file: Path) -> list[dict[str, Any]]:
    return Reader(file).groups(EVERYTHING, vhost=None, failed_queue=None, state=None, limit=100, offset=0)


@pytest.mark.parametrize(
    "written", [b"".join, lambda lines: packed(b"".join(lines)), rows_of], ids=["lines", "zstd", "rows"]
)
def test_a_text_that_no_router_writes_costs_its_own_event(store: Store, file: Path, written: Written) -> None:
    lines = [*forged(LONG)]
    for number, event in enumerate(lines):
        store.apply("/", [Message(number, written([event]))])
    store.apply("/", [Message(len(lines), written([told(1)]))])
    reader = Reader(file)
    assert reader.streams()["/"]["unread"] == len(lines)
    (row,) = reader.letters(Wanted(), EVERYTHING, limit=100, before=None)
    assert row["id"] == f"{1:032x}"
    for answer in (reader.places(), groups(file), reader.failed_queues(EVERYTHING), reader.groups_since("/", 0)):
        assert len(answer) == 1
        assert lengths(answer) < 100


@pytest.mark.parametrize("text", [NAME, BAD], ids=["text", "bytes"])
@pytest.mark.parametrize("written", [b"".join, rows_of], ids=["lines", "rows"])
def test_the_longest_names_that_amqp_has_are_kept(store: Store, file: Path, text: str, written: Written) -> None:
    lines = [*forged(text)]
    store.apply("/", [Message(number, written([event])) for number, event in enumerate(lines)])
    assert Reader(file).streams()["/"]["unread"] == 0
    spelt = text.encode("utf-8", "backslashreplace").decode()
    assert spelt in {place["routing_key"] for place in Reader(file).places()}


def test_audits_and_gaps_of_any_size_are_not_read(store: Store, file: Path) -> None:
    good = audit("r", "/", actor="ann", action="task.done", details={"n": 1}, ts_ms=NOW)
    missing = gap("r", "/", events=7, from_ms=1, to_ms=2)
    lines = [
        altered(good, lambda event: event.update(details={"text": LONG})),
        altered(good, lambda event: event.update(details=[LONG])),
        *(altered(good, saying(name, LONG)) for name in ("actor", "action", "event_id")),
        *(altered(missing, saying(name, LONG)) for name in ("router_id", "event_id")),
    ]
    store.apply("/", [Message(0, b"".join(lines)), Message(1, good + missing)])
    state = Reader(file).streams()["/"]
    assert (state["unread"], state["missing"]) == (len(lines), 7)
    (entry,) = Reader(file).audits(["/"], limit=10)
    assert (entry["actor"], entry["details"]) == ("ann", {"n": 1})


def test_a_queue_whose_name_is_no_text_is_none(store: Store, file: Path) -> None:
    store.apply("/", [Message(0, altered(told(2), lambda event: event.update(failed_queue=7)) + told(1))])
    assert Reader(file).streams()["/"]["unread"] == 1
    assert [entry["failed_queue"] for entry in Reader(file).failed_queues(EVERYTHING)] == ["orders"]
