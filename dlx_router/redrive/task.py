"""A task: what was asked for, how far it is, and which changes are possible.

The API validates requests by the limits of the members here, and shows the same members; the journal has them too.
Each event of a task carries the whole task, so that the newest event alone says all and replay is `newest`. See
docs/architecture.md ("Replicas").
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Final

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter

from dlx_router.core.names import Names

VERSION: Final = 1
MAX_IDS: Final = 1000
MAX_RATE: Final = 100_000.0
ABANDONED_S: Final = 86_400.0
ABANDONED: Final = "no router has worked on it for a day; what was not sent is in its queue; resume it, or cancel"


class TaskError(ValueError):
    """What was asked for cannot be done; says which part, why, and what now."""


class Kind(StrEnum):
    """What happens to each letter that is meant."""

    REDRIVE = "redrive"
    DISCARD = "discard"
    PARK = "park"
    EXPORT = "export"  # told to whoever asks; it stays where it is


KINDS: Final[Mapping[Kind, str]] = {Kind.REDRIVE: "redriven", Kind.DISCARD: "discarded", Kind.PARK: "parked"}
"""What the journal calls a letter that such a task settled."""


class State(StrEnum):
    """Where a task stands. `stopped`: it stopped by itself, `why` says so."""

    RUNNING = "running"
    WATCHING = "watching"  # the canary was sent
    PAUSED = "paused"
    STOPPED = "stopped"
    CANCELLED = "cancelled"
    DONE = "done"


ACTIVE: Final = frozenset({State.RUNNING, State.WATCHING, State.PAUSED})
AT_WORK: Final = frozenset({State.RUNNING, State.WATCHING})
_CHANGES: Final[Mapping[State, frozenset[State]]] = {
    State.RUNNING: frozenset({State.WATCHING, State.PAUSED, State.STOPPED, State.CANCELLED, State.DONE}),
    State.WATCHING: frozenset({State.RUNNING, State.PAUSED, State.STOPPED, State.CANCELLED, State.DONE}),
    State.PAUSED: frozenset({State.RUNNING, State.CANCELLED}),
    State.STOPPED: frozenset({State.RUNNING, State.CANCELLED}),
    State.CANCELLED: frozenset(),
    State.DONE: frozenset(),
}


def _given(value: str | tuple[str, ...]) -> str | tuple[str, ...]:
    if not value:
        raise ValueError("it is empty; leave it out to select all letters, or name some")
    return value


Text = Annotated[str, Field(max_length=255)]
Named = Annotated[str, Field(min_length=1, max_length=255)]
Many = Annotated[int, Field(ge=0, le=1_000_000_000)]
_Given = AfterValidator(_given)
_STRICT: Final = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True)
class Canary:
    """The first letters go alone; the rest only where at most `max_dead_percent` of them died within `watch_s`."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    first: Annotated[int, Field(ge=1, le=100_000)]
    watch_s: Annotated[float, Field(gt=0, le=604_800)] = 60.0
    max_dead_percent: Annotated[float, Field(ge=0, lt=100)] = 0.0


@dataclass(frozen=True, slots=True)
class Destination:
    """Where letters go instead of their failed queue."""

    __pydantic_config__: ClassVar[ConfigDict] = _STRICT
    exchange: Text = ""
    routing_key: Text = ""


def forbidden(to: Destination | None, names: Names) -> str:
    """Why no letter may be sent there, "" where one may.

    What lies in a queue of the router, or comes by an exchange of it, is taken for the router's own word: a forged
    event, a death that nobody died, a state. Parking has a task of its own, which writes the record that is read there.
    """
    if to is None:
        return ""
    kind, name = ("exchange", to.exchange) if to.exchange else ("queue", to.routing_key)
    if not names.is_own(name):
        return ""
    advice = f"; a task of kind park brings letters to {names.parking!r}" if name == names.parking else ""
    return f"to: {kind} {name!r} is the router's own, and nothing is sent there{advice}; name one of yours"


@dataclass(frozen=True, slots=True)
class Edited:
    """That the letter is changed before it goes: the names of the headers, and the new body's size (None: as it was).

    What it is changed to is in no task, because tasks are in the journal whatever a policy says of bodies.
    """

    headers: tuple[str, ...] = ()
    body_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Spec:
    """What was asked for: `rate` in letters a second, 0: no limit; `cutoff_ms`: dead before that moment."""

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(**_STRICT, json_schema_extra={"required": ["queue"]})
    vhost: Text = "/"
    queue: Annotated[str, Field(min_length=1, max_length=255, validate_default=True)] = ""
    kind: Kind = Kind.REDRIVE
    # What narrows a task and is empty would mean all letters: refused, because a script's variable may be.
    ids: Annotated[tuple[Named, ...], Field(max_length=MAX_IDS, json_schema_extra={"minItems": 1}), _Given] = ()
    group: Annotated[Text, Field(json_schema_extra={"minLength": 1}), _Given] = ""
    filter: Annotated[str, Field(max_length=2000, json_schema_extra={"minLength": 1}), _Given] = ""
    to: Destination | None = None
    limit: Many = 0
    rate: Annotated[float, Field(ge=0, le=MAX_RATE)] = 50.0
    cutoff_ms: Annotated[int, Field(ge=0, le=10_000_000_000_000)] = 0
    canary: Canary | None = None
    dry_run: bool = False
    edit: Annotated[Edited | None, Field(description="Of a task that POST /edits made.")] = None
    not_a_dead_letter_queue: Annotated[
        bool, Field(description="You know that the queue is no dead-letter queue, or that somebody consumes it.")
    ] = False

    @property
    def takes_all(self) -> bool:
        """Whether every letter that was dead before the cutoff is meant, and leaves its queue."""
        return not (self.ids or self.group or self.filter or self.dry_run or self.kind is Kind.EXPORT)


@dataclass(frozen=True, slots=True)
class Counts:
    """Messages: seen in this look, sent (in all looks); of those that stay letters, unreadable ones, what never died.

    `meant`: letters that were sent before this look or that it found to be meant; `expected`: what lay in the queue as
    it began.
    """

    seen: int = 0
    sent: int = 0
    left: int = 0
    unreadable: int = 0
    not_letters: int = 0
    meant: int = 0
    expected: int = 0

    @property
    def stays(self) -> int:
        """What this look leaves where it lies."""
        return self.left + self.unreadable + self.not_letters


@dataclass(frozen=True, slots=True)
class Task:
    """One task. `term`: the leader's that wrote it; `change` counts its events.

    `canary_from`: so many were sent before the canary that counts now.
    """

    id: str
    spec: Spec
    state: State = State.RUNNING
    why: str = ""
    by: str = ""
    created_ms: int = 0
    changed_ms: int = 0
    counts: Counts = Counts()
    total: int = 0
    canary_passed: bool = False
    term: int = 0
    change: int = 0
    groups: tuple[Mapping[str, Any], ...] = field(default=())
    canary_from: int = 0

    @property
    def is_active(self) -> bool:
        """Whether it keeps others from its queue."""
        return self.state in ACTIVE

    @property
    def has_canary(self) -> bool:
        """Whether a canary has yet to be sent or judged; a dry run sends none."""
        return self.spec.canary is not None and not self.canary_passed and not self.spec.dry_run

    @property
    def canary_left(self) -> int:
        """Letters that the canary still lacks; 0 where there is none or it is over."""
        canary = self.spec.canary
        if canary is None or not self.has_canary:
            return 0
        return max(self.canary_from + canary.first - self.counts.sent, 0)

    def to_document(self) -> dict[str, Any]:
        """As JSON. What it holds is the task's own: change nothing in it."""
        members = {member.name: getattr(self, member.name) for member in fields(self)}  # asdict would copy all groups
        return {"v": VERSION, **members, "spec": asdict(self.spec), "counts": asdict(self.counts)}


def changed(task: Task, state: State, now_ms: int, why: str = "") -> Task:
    """The task in its new state; TaskError where there is no such way."""
    if task.spec.kind is Kind.EXPORT and state in {State.PAUSED, State.RUNNING}:
        raise TaskError(f"task {task.id} is an export, which goes through its queue once; cancel it, or export again")
    if state not in _CHANGES[task.state]:
        reason = f" ({task.why})" if task.why else ""
        raise TaskError(f"task {task.id} is {task.state}{reason}: it cannot become {state}")
    return replace(task, state=state, why=why, changed_ms=now_ms, change=task.change + 1)


def newest(tasks: Iterable[Task], before: dict[str, Task] | None = None) -> dict[str, Task]:
    """Return the tasks by id, each as its newest event says: of the highest term, and in it the highest change.

    The order and the number of the events do not matter, because anybody who may write to the stream can publish an
    old one again. Of two events with equal numbers the one that is not at work counts.

    `before`: what earlier events said, which is brought up to date; so of a long journal only the newest are kept.
    """
    by_id = {} if before is None else before
    for task in tasks:
        known = by_id.get(task.id)
        if known is None or _age(task) > _age(known):
            by_id[task.id] = task
    return by_id


def _age(task: Task) -> tuple[int, int, bool, str]:
    return task.term, task.change, task.state not in AT_WORK, task.state


def unless_abandoned(task: Task, now_ms: int) -> Task:
    """Return the task, stopped if no router has worked on it for a day: the event may be an old one, published again.

    By then the journal may have deleted the newer events, of its being cancelled for example.
    """
    watch_s = 0.0 if task.spec.canary is None else task.spec.canary.watch_s
    if task.state not in AT_WORK or now_ms - task.changed_ms <= (ABANDONED_S + watch_s) * 1000:
        return task
    return replace(task, state=State.STOPPED, why=ABANDONED, change=task.change + 1)


def check(spec: Spec) -> Spec:
    """The same, or TaskError that names every part that cannot be."""
    wrong = [text for bad, text in _faults(spec) if bad]
    if wrong:
        raise TaskError("; ".join(wrong))
    return spec


def _faults(spec: Spec) -> Iterable[tuple[bool, str]]:
    """Yield what no single member tells; their limits are checked where a request is read."""
    yield not spec.queue, "queue: name the dead-letter queue"
    is_group = re.fullmatch(r"g[0-9]{1,3}-[0-9a-f]{16}", spec.group) is not None
    yield bool(spec.group) and not is_group, f"group {spec.group!r}: no ID of a group; `dlx-router groups` lists them"
    yield spec.canary is not None and spec.kind is not Kind.REDRIVE, "canary: only a redrive can have one"
    yield spec.to is not None and spec.kind is not Kind.REDRIVE, "to: only a redrive goes somewhere"
    is_one = len(spec.ids) == 1 and spec.kind is Kind.REDRIVE
    yield spec.edit is not None and not is_one, "edit: of one letter that is sent back; give its id"
    yield spec.to == Destination("", spec.queue), "to: it would return to the queue it is taken from"


_TASK: Final = TypeAdapter(Task)


def of_document(document: Mapping[str, Any]) -> Task:
    """Return the task that an event carries; ignore unknown members. TaskError if this version cannot read it."""
    try:
        if abs(document["v"] - VERSION) > 1:
            raise TaskError(f"version {document['v']} is not readable by version {VERSION}")
        # Here an empty member narrows nothing; in a request it is refused.
        spec = {name: value for name, value in document["spec"].items() if value not in ("", [], ())}
        return _TASK.validate_python({**document, "spec": spec}, extra="ignore")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise TaskError(f"no task that can be read: {error!r}") from error


@dataclass(frozen=True, slots=True)
class Outlook:
    """How many letters a task means in all. `is_exact` False: not all of its queue was looked at; it is estimated."""

    letters: int
    is_exact: bool


def outlook(task: Task) -> Outlook:
    """By the part that was looked at; where nothing was yet, all that lies there, so far as the task may take it."""
    counts, spec = task.counts, task.spec
    if task.state is State.DONE:
        return Outlook(counts.sent, is_exact=True)
    unseen = max(counts.expected - counts.seen, 0)
    letters = max(counts.meant, counts.sent)
    letters += round(unseen * (counts.seen - counts.stays) / counts.seen) if counts.seen else 0
    letters = letters if counts.seen else max(task.total, counts.sent)
    most = min([bound for bound in (spec.limit, len(spec.ids)) if bound], default=letters)
    is_exact = bool(counts.seen) and (not unseen or 0 < spec.limit <= counts.meant)
    return Outlook(max(min(letters, most), counts.sent), is_exact)
