"""How events are put together in messages and transactions changes nothing; nor does what other events look like."""

import json
import sqlite3
import tempfile
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlx_router.core.letter import Arrival
from dlx_router.index import rows
from dlx_router.index.schema import open_writer
from dlx_router.index.store import Message, Store
from dlx_router.journal.audit import audit
from tests.core.core_samples import NOW, letter
from tests.index.kept import kept_events, kept_steps
from tests.journal.journal_samples import RULING, letters, line, props, rulings

KINDS = ("retried", "released", "dead_lettered", "held", "edited", "redriven", "leased", "lease_ended")
BODY = '"error":{"type":"E","message":"order %d"},"body_mode":"inline","body_sha256":"00","body":"YWJj"'


def event_line(number: int, kind: str, attempts: int, queue: str = "orders") -> bytes:
    """An event of one of few letters, whose ids end alike: they are looked for by a number that they share."""
    arrival = Arrival.RELEASE if kind == "released" else Arrival.INBOX
    dead = letter(id=f"{number}{0:031x}", failed_queue=queue, arrival=arrival, exchange="x", routing_key=f"k.{number}")
    ruling = RULING._replace(kind=kind, attempts=attempts)
    extra = {"extra": BODY % number} if kind == "dead_lettered" else {}
    return line(dead, ruling, now_ms=NOW + attempts, props=props(message_id=b"m-%d" % number), **extra)


events = st.lists(
    st.builds(
        event_line, st.integers(1, 4), st.sampled_from(KINDS), st.integers(1, 3),
        st.sampled_from(["orders", "payments"]),
    )
    | st.builds(
        lambda number: audit(
            "r", "/", actor="a", action="letters.import",
            details={"letter": json.loads(event_line(number, "parked", 1))},
            ts_ms=NOW,
        ),
        st.integers(1, 5),
    ),
    max_size=20,
)  # fmt: skip
cuts = st.sets(st.integers(1, 19))


def written(transactions: Sequence[Sequence[bytes]]) -> dict[str, list[Any]]:
    """Everything that the file says of letters, after these."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "index.sqlite"
        writer = Store(open_writer(file, max_bytes=1 << 30))
        for number, bodies in enumerate(transactions):
            writer.apply("/", [Message(number * 100 + at, body) for at, body in enumerate(bodies)])
        writer.close()
        connection = sqlite3.connect(file)
        tables = ("letters", "bodies", "groups", "places", "queues", "counts WHERE n != 0")
        contents = {
            table: sorted(connection.execute(f"SELECT * FROM {table}").fetchall(), key=repr) for table in tables
        }
        contents |= {"events": kept_events(connection), "steps": kept_steps(connection)}
        connection.close()
    return contents


@pytest.mark.slow
@given(events, cuts)
@settings(max_examples=60, deadline=None)
def test_one_transaction_says_what_many_say(lines: list[bytes], where: set[int]) -> None:
    at = sorted({0, len(lines), *(cut for cut in where if cut < len(lines))})
    several = [[b"".join(lines[begin:end])] for begin, end in pairwise(at)]
    assert written([lines]) == written([[event] for event in lines]) == written(several)


@given(letters, rulings, st.integers(0, 2**53), st.none() | st.integers(0, 2**53))
def test_an_event_taken_apart_is_the_event(dead: Any, ruling: Any, ts_ms: int, due_ms: int | None) -> None:
    """The short way through a line gives what the whole line says."""
    told_of = line(dead, ruling._replace(exchange="dlx"), ts_ms, due_ms=due_ms, props=props(message_id=b"m"))
    whole = json.loads(told_of)
    event = rows.event_of(told_of.strip())
    if event.shared is None:
        assert whole["kind"] not in rows.STATE_OF or whole["observed"]
        return
    assert len({*event.own, *event.shared.members}) == len(whole)
    assert timeless({**event.shared.members, **event.own}) == timeless(whole)
    assert event.shared == rows.shared_of(whole)._replace(members=event.shared.members)
    assert event.id == rows.plain(whole["id"])


def timeless(event: Any) -> Any:
    """When a letter died does not come from what it shares with others."""
    return event | {"deaths": [{**death, "time_ms": 0} for death in event["deaths"]]}


NESTED = b'{"v":1,"event_id":"a-b","id":"c","kind":"parked","failed_queue":"q","x":{"y":1,"ts_ms":3},"ts_ms":5}'
SPACED = (
    b'{"v": 1, "event_id": "a-b", "id": "c", "kind": "parked", "failed_queue": "q", "reason": "rejected", "ts_ms": 5}'
)


EARLY = b'{"v":1,"event_id":"a-b","id":"c","kind":"parked","failed_queue":"q","error":{"type":"E"},"ts_ms":5}'
LATE = b'{"v":1,"event_id":"a-b","id":"c","kind":"parked","failed_queue":"q","ts_ms":5,"reason":"rejected"}'


@pytest.mark.parametrize("odd", [NESTED, SPACED, EARLY, LATE])
def test_an_event_that_somebody_else_wrote_is_read_whole(odd: bytes) -> None:
    event = rows.event_of(odd)
    assert event.own == json.loads(odd)
    assert event.shared == rows.shared_of(json.loads(odd))


@pytest.mark.parametrize("body", ["YWJj", "", 'no "base64"', "é"])
def test_a_line_is_kept_without_its_body_however_it_was_written(body: str) -> None:
    event = {**json.loads(event_line(1, "parked", 1)), "body": body}
    first = {"body": body, **event}
    for compact in (True, False):
        for whole in (event, first):
            text = json.dumps(whole, separators=(",", ":") if compact else None).encode()
            assert json.loads(rows.without_body(text, whole)) == {k: v for k, v in event.items() if k != "body"}
