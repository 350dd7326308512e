"""What the index takes, everybody can show: the API, the console's pages, exports and the commands.

Whoever may write to the journal may write any JSON there. An event that nobody could show costs itself, and neither
its letter nor the answers that it would stand in.
"""

import asyncio
import json
import re
import tempfile
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlx_router.admin.api.answers import Answer
from dlx_router.admin.api.bodies import body_of
from dlx_router.cli import letter_history, status
from dlx_router.core.nested_json import MAX_DEPTH
from dlx_router.index import rows
from dlx_router.index.reader import Reader
from dlx_router.index.schema import open_writer
from dlx_router.index.store import Message, Store
from dlx_router.journal.audit import audit
from dlx_router.journal.events import gap
from dlx_router.journal.reading import parts
from tests.console.liar import Liar, console, logged_in
from tests.core.core_samples import NOW, letter
from tests.index.test_long_names import EVERYTHING, altered, saying
from tests.journal.journal_samples import RULING, letters, line, rulings, told
from tests.journal.rows_of import rows_of

ID: Final = f"{1:032x}"
MORE: Final = (
    '"headers":{"x":"1"},"body_values":{"/a":"1"},"redacted":["x-token","/card"],'
    '"error":{"type":"E","message":"m","frame":"f"},"body_mode":"inline","body_sha256":"ab","body":"eyJhIjoxfQ=="'
)
WHOLE: Final = line(letter(id=ID, failed_queue="orders"), RULING, extra=MORE)
AUDIT: Final = audit(
    "r", "/", actor="ann", action="task.done", ts_ms=NOW,
    details={"task": {"id": "t1", "spec": {"kind": "redrive", "queue": "q"}, "counts": {"sent": 1}}, "until_ms": NOW},
)  # fmt: skip
CURSOR: Final = re.compile(r"\d{1,16}\..+")  # as the API takes it
TASKS: Final = ("task.done", "group.set", "letter.comment", "webhook.told")


def nested(levels: int) -> Any:
    document: Any = 1
    for _ in range(levels):
        document = [document]
    return document


class Honest(Liar):
    """Answers as the API does, with what an index has."""

    def __init__(self) -> None:
        super().__init__()
        self.copies: list[dict[str, Any]] = []
        self.audits: list[dict[str, Any]] = []

    def answers(self, path: str) -> dict[str, Any] | None:
        if path == f"/letters/{ID}":
            return {"letters": self.copies}
        return {"audits": self.audits, "next": None} if path == "/audits" else super().answers(path)


@dataclass
class Everybody:
    """Whoever shows something. `get`: a page of the console."""

    api: Honest
    get: Callable[[str], httpx.Response]

    def see(self, file: Path) -> None:
        """What the index has is shown by all."""
        api, reader = self.api, Reader(file)
        api.copies, api.audits = [*map(answered, reader.letter(ID, EVERYTHING))], sent(reader.audits(["/"], limit=100))
        assert reader.streams()
        assert all([*letter_history.drawn(copy)] for copy in api.copies)
        assert all(status._audit(entry) for entry in status.turning_points(api.audits))
        assert all(CURSOR.fullmatch(f"{entry['ts_ms']}.{entry['event_id']}") for entry in api.audits)
        pages = [f"/letters/{ID}", f"/letters/{ID}?format=json"] if api.copies else []
        for page in (*pages, "/audit", "/audit?format=csv"):
            assert self.get(page).status_code == 200


def answered(copy: dict[str, Any]) -> Any:
    """A letter as the API answers with it."""
    shown = {**copy, "outcome": None, "body": body_of(copy, as_hex=False)}
    return sent({name: shown[name] for name in shown.keys() - {"stored", "newest"}})


def sent(document: Any) -> Any:
    """As whoever asked the API gets it."""
    return json.loads(bytes(Answer(document).body))


@pytest.fixture(scope="module")
def everybody() -> Iterator[Everybody]:
    api = Honest()
    with asyncio.Runner() as runner:
        session = logged_in(console(api))
        client = runner.run(session.__aenter__())
        yield Everybody(api, lambda page: runner.run(client.get(page)))
        runner.run(session.__aexit__(None, None, None))


def taken(everybody: Everybody, event: bytes, *, as_rows: bool) -> None:
    """A letter, and an event: shown, however it is written."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "index.sqlite"
        store = Store(open_writer(file, max_bytes=1 << 30))
        try:
            store.apply("/", [Message(0, told(1)), Message(1, rows_of([event]) if as_rows else event)])
        finally:
            store.close()
        everybody.see(file)


ODD: Final = st.one_of(
    st.none(), st.booleans(), st.text(max_size=3), st.sampled_from(["", [], {}, [5], {"a": 5}, [{}], [{}, 5], [[]]]),
    st.integers(-3, 3), st.integers(-(2**70), 2**70), st.just(10**400),
    st.floats(allow_nan=False, allow_infinity=False), st.sampled_from([60, 63, 65, 200]).map(nested),
)  # fmt: skip


def places(document: Any, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Of all values in a document."""
    parts = document.items() if isinstance(document, dict) else enumerate(document)
    inner = [
        place
        for name, value in parts
        for place in ((*way, name), *(places(value, (*way, name)) if isinstance(value, dict | list) else ()))
    ]
    return inner or [(*way,)]


def put(document: Any, place: tuple[Any, ...], value: Any) -> None:
    """Another value there."""
    *way, last = place
    for name in way:
        document = document[name]
    document[last] = value


@st.composite
def mutants(draw: st.DrawFn, event: bytes) -> bytes:
    """The event with another value at one to three places, or with a member that it had not."""
    document = json.loads(event)
    for _ in range(draw(st.integers(1, 3))):
        where = draw(st.sampled_from([place for place in places(document) if place]))
        put(document, where, deepcopy(draw(ODD)))  # else what is put into one is in the next of its like too
    if draw(st.booleans()):
        names = ("due_ms", "observed", "lease", "detail", "cause", "parent", "since_ms", "first", "fresh", "details")
        document[draw(st.sampled_from(names))] = deepcopy(draw(ODD))
    return json.dumps(document).encode() + b"\n"


def fits_a_row(event: bytes) -> bool:
    """Whether the writer of the tests can make one of it."""
    try:
        rows_of([event])
    except (TypeError, ValueError, AttributeError, KeyError, RecursionError, OverflowError):
        return False
    return True


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(event=mutants(WHOLE), as_rows=st.booleans())
def test_whatever_is_taken_of_a_letter_can_be_shown(
    everybody: Everybody,
    event: bytes,
    as_rows: bool,  # noqa: FBT001 - drawn
) -> None:
    taken(everybody, event, as_rows=as_rows and fits_a_row(event))


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(event=mutants(AUDIT), action=st.sampled_from(TASKS))
def test_whatever_is_taken_of_an_audit_can_be_shown(everybody: Everybody, event: bytes, action: str) -> None:
    taken(everybody, altered(event, lambda it: it.update(action=it["action"] and action)), as_rows=False)


@given(letters, rulings)
def test_what_a_router_writes_is_taken(died: Any, ruling: Any) -> None:
    event = line(died, ruling)
    for body in (event, rows_of([event])):
        (part,) = parts(body)
        assert rows.event_of(part).ts_ms == NOW


REFUSED: Final[dict[str, Callable[[dict[str, Any]], object]]] = {
    "redacted is a number": saying("redacted", 5),
    "redacted has a number": saying("redacted", [5]),
    "deaths has a number": saying("deaths", [{}, 5]),
    "a death without members": saying("deaths", [{}]),
    "a time of a death without end": lambda event: event["deaths"][0].update(time_ms=10**5000),
    "a time of a death that no float holds": lambda event: event["deaths"][0].update(time_ms=10**400),
    "keys of a death that are no texts": lambda event: event["deaths"][0].update(routing_keys=5),
    "the mode of the body is a list": lambda event: event.update(body_mode=["inline"], body="!"),
    "error is a list": saying("error", ["E"]),
    "a member too deep": saying("declared", nested(200)),
    "a header too deep": lambda event: event["props"].update(type=nested(MAX_DEPTH)),
}
LIMIT: Final = 4300  # digits that Python makes a number of


@pytest.mark.parametrize("why", REFUSED)
@pytest.mark.parametrize("as_rows", [False, True], ids=["lines", "rows"])
def test_an_event_that_nobody_could_show_costs_itself(
    everybody: Everybody, store: Store, file: Path, why: str, *, as_rows: bool
) -> None:
    """Its letter was answered by 500 for good."""
    document = json.loads(line(letter(id=ID, failed_queue="orders"), RULING, now_ms=NOW + 1, extra=MORE))
    document.setdefault("props", {"type": "t"})
    long = "without end" in why
    REFUSED[why](document) if not long else document["deaths"][0].update(time_ms=123)
    event = json.dumps(document, separators=(",", ":")).encode() + b"\n"
    event = event.replace(b'"time_ms":123', b'"time_ms":1' + b"0" * (LIMIT + 1)) if long else event
    as_it_is = long or not fits_a_row(event) or not as_rows
    store.apply("/", [Message(0, told(1)), Message(1, event if as_it_is else rows_of([event]))])
    assert Reader(file).streams()["/"]["unread"] == 1
    everybody.see(file)
    (whole,) = Reader(file).letter(ID, EVERYTHING)
    assert len(whole["journey"]) == 1


@pytest.mark.parametrize(
    "change",
    [
        saying("details", {"x": nested(200)}),
        saying("details", [1]),
        saying("details", "text"),
        saying("ts_ms", -1),
        saying("ts_ms", 10**18),
        saying("event_id", "audit-\n"),
        saying("event_id", "audit-\u2028"),
        saying("event_id", ""),
    ],
)
def test_an_audit_that_nobody_could_show_or_page_by_costs_itself(
    everybody: Everybody, store: Store, file: Path, change: Callable[[dict[str, Any]], object]
) -> None:
    """One such audit, signed by nobody, made all of them unreadable, or the page after it."""
    store.apply("/", [Message(0, altered(AUDIT, change)), Message(1, AUDIT)])
    assert Reader(file).streams()["/"]["unread"] == 1
    assert len(Reader(file).audits(["/"], limit=10)) == 1
    everybody.see(file)


def test_gaps_that_cannot_be_added_up_cost_themselves(store: Store, file: Path) -> None:
    """The sum of two was no number of 64 bits, and how the index is was not told any more."""
    lines = [gap("r", "/", events=events, from_ms=1, to_ms=2) for events in (2**63 - 1, 2**62, -7, 7)]
    store.apply("/", [Message(0, b"".join(lines))])
    state = Reader(file).streams()["/"]
    assert (state["unread"], state["missing"]) == (3, 7)


def test_what_is_nested_too_deeply_costs_itself_and_not_the_answer() -> None:
    """In a file of before there may be such a thing."""
    answer = sent({"audits": [{"details": {"x": nested(5_000)}}, {"details": {"y": 1}}]})
    assert answer["audits"][1] == {"details": {"y": 1}}
    assert "too deeply" in json.dumps(answer["audits"][0])
