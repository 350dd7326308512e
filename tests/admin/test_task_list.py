"""GET /tasks: however long what is known of the tasks, the list is short, whole and in order."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from dlx_router.admin.api.answers import PLAIN
from dlx_router.redrive.task import MAX_IDS, Kind, Spec, State, Task
from dlx_router.service.redrive.task_log import MAX_KEPT
from tests.admin.replicas import Attendant, Network, Replica

GROUPS: Final = tuple(
    {"group": f"g1-{number:016x}", "failed_queue": "orders.new", "reason": "rejected", "letters": number}
    for number in range(200)
)
IDS: Final = tuple(f"{number:032x}" for number in range(MAX_IDS))


class Known:
    """Tasks as the leader of a vhost has them."""

    def __init__(self, tasks: Sequence[Task]) -> None:
        self._tasks = {task.id: task for task in tasks}

    async def await_known(self, within_s: float) -> None:
        pass

    def all(self) -> list[Task]:
        return sorted(self._tasks.values(), key=lambda task: (task.created_ms, task.id), reverse=True)

    def get(self, task_id: str) -> Task:
        return self._tasks[task_id]


@dataclass
class Busy(Attendant):
    """A vhost whose tasks are known."""

    known: Any = field(default_factory=lambda: Known([]))

    @property
    def tasks(self) -> Any:
        return self.known


def replica_of(folder: Path, tasks: Sequence[Task]) -> Replica:
    """A router that leads, and has these."""
    replica = Replica(Network(), folder, "first", ("/",))
    replica.vhosts["/"] = Busy("/", known=Known(tasks))
    replica.lead("/")
    return replica


def dry_run(number: int, **changed: Any) -> Task:
    spec = Spec("/", "DLQ.orders", Kind.REDRIVE, ids=IDS, dry_run=True)
    values = {"state": State.DONE, "created_ms": number, "groups": GROUPS}
    return Task(f"{number:012x}", spec, **{**values, **changed})


async def test_a_list_of_many_dry_runs_has_counts_in_place_of_their_groups_and_ids(tmp_path: Path) -> None:
    """1000 dry runs of 200 groups were 23 MB, which no console reads, and kept the router from all else for seconds."""
    replica = replica_of(tmp_path, [dry_run(number) for number in range(MAX_KEPT)])
    status, answer = await replica.ask("GET", "/tasks")
    assert (status, len(answer["tasks"]), answer["next"]) == (200, MAX_KEPT, None)
    assert len(str(answer)) < PLAIN.most_bytes / 4
    shown = answer["tasks"][0]
    assert (shown["group_count"], shown["spec"]["id_count"], shown["spec"]["ids"]) == (200, MAX_IDS, [*IDS[:3]])
    assert "groups" not in shown
    status, whole = await replica.ask("GET", f"/tasks/{shown['id']}")
    assert (status, whole["groups"], whole["spec"]["ids"]) == (200, [*GROUPS], [*IDS])


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 1000])
async def test_pages_of_tasks_are_the_whole_list(tmp_path: Path, limit: int) -> None:
    same_moment = [dry_run(number, created_ms=5) for number in range(4)]
    replica = replica_of(tmp_path, [*same_moment, *map(dry_run, (10, 20, 30))])
    whole = [task["id"] for task in (await replica.ask("GET", "/tasks"))[1]["tasks"]]
    paged: list[str] = []
    cursor: dict[str, str] | None = {}
    while cursor is not None:
        status, answer = await replica.ask("GET", "/tasks", params={"limit": limit, **cursor})
        assert status == 200
        paged += [task["id"] for task in answer["tasks"]]
        cursor = {"cursor": answer["next"]} if answer["next"] else None
    assert paged == whole
    assert len(whole) == 7


async def test_those_at_work_are_listed_however_few_others_are_asked_for(tmp_path: Path) -> None:
    at_work = [dry_run(1, state=State.RUNNING), dry_run(2, state=State.PAUSED), dry_run(3, state=State.WATCHING)]
    replica = replica_of(tmp_path, [*at_work, *(dry_run(number) for number in range(10, 20))])
    for few in (0, 3):
        _, answer = await replica.ask("GET", "/tasks", params={"inactive": few})
        listed = [int(task["id"], 16) for task in answer["tasks"]]
        assert listed == [*[19, 18, 17][:few], 3, 2, 1]


@pytest.mark.parametrize("cursor", ["", "x", "7", "\u0661.a", "12345678901234567.a"])
async def test_a_cursor_that_is_none_is_refused(tmp_path: Path, cursor: str) -> None:
    status, answer = await replica_of(tmp_path, []).ask("GET", "/tasks", params={"cursor": cursor})
    assert (status, "cursor" in answer["problems"][0]) == (422, True)
