"""The canary's verdict: which of the first letters came back dead, by the events of the journal. Pure."""

from collections.abc import Mapping
from typing import Any, Final

from dlx_router.redrive.task import KINDS, Canary, State, Task

DEAD: Final = frozenset({"dead_lettered", "parked", "quarantined"})
SENT: Final = frozenset(KINDS.values())
CANARY: Final = "canary: "  # how an objection begins


class Flock:
    """The letters that one task sent, and those of them that died since. Events may come twice.

    A person's park is no death: what a task did to a letter has the task's id. `elsewhere`: they went to another place
    than their failed queue, and die wherever that leads to. `before`: so many were sent before the canary that is
    judged, and their deaths were judged then.
    """

    def __init__(self, task_id: str, *, elsewhere: bool = False, before: int = 0) -> None:
        self._task_id, self._elsewhere, self._before = task_id, elsewhere, before
        self._sent: set[tuple[str, str]] = set()
        self._at_risk: set[tuple[str, str]] = set()
        self._dead: set[tuple[str, str]] = set()

    def hear(self, event: Mapping[str, Any]) -> None:
        """Take an event of the journal into account."""
        key = (event.get("id", ""), event.get("failed_queue", ""))
        risk = (key[0], "") if self._elsewhere else key
        if event.get("redrive_id"):
            if event["redrive_id"] == self._task_id and event.get("kind") in SENT:
                self._hear_sent(key, risk)
        elif risk in self._at_risk and event.get("kind") in DEAD:
            self._dead.add(risk)

    def _hear_sent(self, key: tuple[str, str], risk: tuple[str, str]) -> None:
        if key not in self._sent and len(self._sent) >= self._before:
            self._at_risk.add(risk)
        self._sent.add(key)

    @property
    def sent(self) -> int:
        """Different letters that were sent, in all."""
        return len(self._sent)

    @property
    def dead(self) -> int:
        """Those of them that are dead again."""
        return len(self._dead)


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
