"""The canary's verdict: which of the first letters came back dead, by the events of the journal. Pure."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from dlx_router.core.bounded import MIB, Bounded
from dlx_router.redrive.task import KINDS, Canary, Kind, State, Task

DEAD: Final = frozenset({"dead_lettered", "parked", "quarantined"})
REDRIVEN: Final = KINDS[Kind.REDRIVE]
CANARY: Final = "canary: "  # how an objection begins
_MOST_EARLY: Final = 10_000  # deaths that are told before it is known that their letters were sent: by milliseconds


class _Moment(NamedTuple):
    """Of an event, in a letter's life; redrives are what no clock changes."""

    redrives: int
    ts_ms: int


class Flock:
    """The letters that one task sent, and those of them that died since. Events may come twice.

    A person's park is no death: what a task did to a letter has the task's id. `elsewhere`: they went to another place
    than their failed queue, and die wherever that leads to. `before`: so many were sent before the canary that is
    judged, and their deaths were judged then.

    Another replica may tell a death before the router that sent the letter is sure that it did, and tells that. So the
    order of the stream does not count: a death is one of what was sent if it has its redrives, or else by its time.
    """

    def __init__(self, task_id: str, *, elsewhere: bool = False, before: int = 0) -> None:
        self._task_id, self._elsewhere, self._before = task_id, elsewhere, before
        self._sent: set[tuple[str, str]] = set()
        self._at_risk: dict[tuple[str, str], _Moment] = {}
        self._early: Bounded[tuple[str, str], _Moment] = Bounded(most=_MOST_EARLY, most_bytes=8 * MIB)
        self._dead: set[tuple[str, str]] = set()

    def hear(self, event: Mapping[str, Any]) -> None:
        """Take an event of the journal into account."""
        key = (event.get("id", ""), event.get("failed_queue", ""))
        risk, kind = (key[0], "") if self._elsewhere else key, event.get("kind")
        at = _Moment(_whole(event.get("redrives")), _whole(event.get("ts_ms")))
        if event.get("redrive_id"):
            if event["redrive_id"] == self._task_id and kind == REDRIVEN:
                self._hear_sent(key, risk, at)
        elif kind in DEAD:
            self._hear_death(risk, at)

    def _hear_sent(self, key: tuple[str, str], risk: tuple[str, str], at: _Moment) -> None:
        if key not in self._sent and len(self._sent) >= self._before:
            at = self._at_risk.setdefault(risk, at)
            early = self._early.get(risk)
            if early is not None and _follows(early, at) and (at.redrives or early.ts_ms > at.ts_ms):
                self._dead.add(risk)
        self._sent.add(key)

    def _hear_death(self, risk: tuple[str, str], at: _Moment) -> None:
        sent = self._at_risk.get(risk)
        if sent is None:
            self._early[risk] = max(at, self._early.get(risk, at))
        elif _follows(at, sent):
            self._dead.add(risk)

    @property
    def sent(self) -> int:
        """Different letters that were sent, in all."""
        return len(self._sent)

    @property
    def dead(self) -> int:
        """Those of them that are dead again."""
        return len(self._dead)


class Sent:
    """Which letters one task has sent, a number each: they may be millions. Events may come twice."""

    def __init__(self, task_id: str, kind: Kind) -> None:
        """`kind`: what the task does. An export sends none."""
        self._task_id, self._kind = task_id, KINDS.get(kind, "")
        self._keys: set[int] = set()

    def hear(self, event: Mapping[str, Any]) -> None:
        """Take an event of the journal into account."""
        if event.get("redrive_id") == self._task_id and event.get("kind") == self._kind:
            self._keys.add(hash((str(event.get("id", "")), str(event.get("failed_queue", "")))))

    @property
    def count(self) -> int:
        """Different letters."""
        return len(self._keys)


def _whole(value: object) -> int:
    """A number; 0 for whatever else somebody wrote."""
    return value if isinstance(value, int) else 0


def _follows(death: _Moment, sent: _Moment) -> bool:
    """Whether it is a death of what was sent: it has the redrive that was new then; where none was, it is not older."""
    return death.redrives >= sent.redrives and (sent.redrives > 0 or death.ts_ms >= sent.ts_ms)


def objection(canary: Canary, sent: int, dead: int) -> str:
    """Why the task must stop; "" where it may go on."""
    share = 100.0 * dead / sent if sent else 0.0
    if share <= canary.max_dead_percent:
        return ""
    return (
        f"{CANARY}{dead} of the first {sent} letters came back dead ({share:.0f} %, allowed are "
        f"{canary.max_dead_percent:g} %); look at the consumer, then resume with another canary, or cancel"
    )


def is_objected(task: Task) -> bool:
    """Whether it was the canary that stopped the task: who resumes it sends another one first."""
    return task.state is State.STOPPED and task.why.startswith(CANARY)
