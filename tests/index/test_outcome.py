"""Did it help: what the index says of a letter is core's answer to its history."""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.core.recovered import AT_LEAST_MS, LEASES, ORDER, SILENT, fate
from dlx_router.index.queries import Wanted
from dlx_router.index.reader import Reader
from dlx_router.index.rows import FINISHED, LYING, STATE_OF, state_of
from dlx_router.index.schema import open_writer
from dlx_router.index.shown import outcome
from dlx_router.index.store import Message, Store
from tests.core.core_samples import NOW, hard_law, letter
from tests.journal.journal_samples import RULING, line

EVERYTHING: Any = lambda _vhost, _queue: True  # noqa: E731 - a constant beside the others
ALL: Final = Wanted()
WINDOW: Final = 2 * AT_LEAST_MS
ENDS: Final = ("discarded", "retired")  # whatever the clock of who ended it said
moments: Final = st.integers(NOW - WINDOW - 3, NOW - WINDOW + 3) | st.integers(NOW - 5, NOW + 5)


class Told(NamedTuple):
    """An event of one letter."""

    kind: str
    ts_ms: int
    due_ms: int
    redrives: int
    attempts: int

    def line(self) -> bytes:
        dead = letter(id=f"{1:032x}", failed_queue="orders", redrives=self.redrives)
        ruling = RULING._replace(kind=self.kind, attempts=self.attempts)
        return line(dead, ruling, now_ms=self.ts_ms, due_ms=self.due_ms)


events: Final = st.builds(
    Told, st.sampled_from(sorted(STATE_OF)), moments, moments, st.integers(0, 2), st.integers(0, 3)
)


def by_core(lines: list[bytes]) -> str | None:
    """The newest event that speaks, by ORDER; what is told twice counts once, unless an equal message came again."""
    own: dict[str, dict[str, Any]] = {}
    for event in map(json.loads, lines):
        name = event["event_id"]
        own.setdefault(f"{name}@{event['ts_ms']}" if name in own and _lies_again(own, event) else name, event)
    newest = _newest(own)
    if newest is None:
        return None
    return fate(newest["kind"], newest["ts_ms"], newest.get("due_ms"), as_of_ms=NOW, window_ms=WINDOW)


def _newest(own: dict[str, dict[str, Any]]) -> dict[str, Any] | None:
    speaking = [event for event in own.values() if event["kind"] not in SILENT]
    return max(speaking, key=_order, default=None)


def _order(event: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(event[name] for name in ORDER)


def _lies_again(own: dict[str, dict[str, Any]], event: dict[str, Any]) -> bool:
    """An equal message without x-death has the ids of the one before: it came once that one was gone, and later."""
    where, last_ms = _where([each for each in own.values() if each["kind"] not in LEASES])
    if STATE_OF.get(event["kind"]) not in LYING or event["ts_ms"] <= max(last_ms, own[event["event_id"]]["ts_ms"]):
        return False
    return where in FINISHED


def _where(moved: list[dict[str, Any]]) -> tuple[str | None, int]:
    """Where it is, and since when: what came last says so, unless clock and life make it older and it is no end."""
    state, moment = None, (0, 0, 0)
    for each in moved:
        ts_ms, *life = (each[name] for name in ORDER[:3])
        if ts_ms >= moment[0] or life > [*moment[1:]] or each["kind"] in ENDS:
            state = state_of(each) if each["kind"] != "edited" else state or "edited"
            moment = (ts_ms, *life)
    return state, moment[0]


def by_index(*batches: list[bytes]) -> str | None:
    """What the index answers, once it has read these in turn."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "index.sqlite"
        store, reader = Store(open_writer(file, max_bytes=1 << 30)), Reader(file)
        try:
            for number, lines in enumerate(batches):
                store.apply("/", [Message(number, b"".join(lines))])
            (row,) = reader.letters(ALL, EVERYTHING, limit=10, before=None)
            (whole,) = reader.letter(row["id"], EVERYTHING)
        finally:
            reader.close()
            store.close()
    outcomes = {outcome(each, as_of_ms=NOW, window_ms=WINDOW) for each in (row, whole)}
    assert len(outcomes) == 1
    return outcomes.pop()


@hard_law
@given(st.lists(events, min_size=1, max_size=8), st.integers(0, 8))
def test_the_index_answers_as_core_does(history: list[Told], cut: int) -> None:
    lines = [event.line() for event in history]
    batches = [batch for batch in (lines[:cut], lines[cut:]) if batch]
    assert by_index(*batches) == by_core(lines)


@pytest.mark.parametrize(
    ("steps", "answer"),
    [
        ([("redriven", NOW - WINDOW)], "recovered"),
        ([("redriven", NOW - WINDOW + 1)], "open"),
        ([("redriven", NOW - WINDOW), ("dead_lettered", NOW - WINDOW + 1)], "dead_lettered"),
        ([("retried", NOW - WINDOW - 9), ("released", NOW)], "recovered"),
        ([("redriven", NOW - WINDOW), ("edited", NOW - WINDOW)], "recovered"),
        ([("redriven", NOW - WINDOW), ("held", NOW)], "held"),
        ([("released", NOW - WINDOW)], None),
        ([("dead_lettered", NOW - 9), ("discarded", NOW - 8), ("dead_lettered", NOW - 9)], "discarded"),
        (
            [("dead_lettered", NOW - 9), ("discarded", NOW - 8), ("dead_lettered", NOW - 7)],
            "dead_lettered",
        ),  # an equal one
        (
            [("parked", NOW - 9), ("dead_lettered", NOW - 5), ("discarded", NOW - 9), ("parked", NOW - 4)],
            "parked",
        ),  # an equal one, after an end by a clock that was behind
    ],
)
def test_a_letter_of_the_index_says_whether_it_helped(steps: list[tuple[str, int]], answer: str | None) -> None:
    assert by_index([Told(kind, ts_ms, ts_ms, 0, 1).line() for kind, ts_ms in steps]) == answer
