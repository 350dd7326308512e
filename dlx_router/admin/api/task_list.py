"""GET /tasks: many tasks at once, without what may be long of each; GET /tasks/{id} has all of one."""

from collections.abc import Sequence
from itertools import islice
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field
from starlette.responses import Response

from dlx_router.admin.api.answers import Answer
from dlx_router.admin.api.came_back import documents
from dlx_router.admin.api.context import Given, Viewer
from dlx_router.admin.api.cursors import TimeCursor, cursor_of, place_of
from dlx_router.admin.api.tasks import Asked, KnownTask, Vhost, refusing
from dlx_router.redrive.task import Task

router = APIRouter(tags=["tasks"])

MOST: Final = 1000  # so many are kept beside those at work
FIRST_IDS: Final = 3


class AskedInShort(Asked):
    """What a task was asked to do; `ids`: the first three."""

    id_count: int = Field(description="How many ids it was given; GET /tasks/{id} has all of them.")


class ListedTask(KnownTask):
    """A task as it stands, without the groups that a dry run counted."""

    spec: AskedInShort
    group_count: int = Field(description="How many groups were counted; GET /tasks/{id} has all of them.")


class AllTasks(BaseModel):
    """Newest first. `next` null: that was all."""

    tasks: list[ListedTask]
    next: str | None


@router.get("/tasks", response_model=AllTasks)
async def every(  # noqa: PLR0913, PLR0917 - each is a filter
    given: Given,
    who: Viewer,
    vhost: Vhost = "/",
    queue: Annotated[str, Query(max_length=255)] = "",
    inactive: Annotated[
        int | None, Query(ge=0, le=MOST, description="Of those stopped, cancelled or done only so many, the newest.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=MOST)] = MOST,
    cursor: TimeCursor = None,
) -> Response:
    """The tasks of a vhost, or of one queue in it."""
    tasks = await given.led_known(vhost, who, "tasks", lambda runner: runner.tasks)
    with refusing():
        wanted = [task for task in tasks.all() if queue in {"", task.spec.queue}]
    wanted = wanted if inactive is None else _with_few_inactive(wanted, inactive)
    behind = [task for task in wanted if cursor is None or _place(task) < place_of(cursor)]
    page = behind[:limit]
    following = cursor_of(*_place(page[-1])) if len(behind) > limit else None
    return Answer({"tasks": await documents(given, page, _in_short), "next": following})


def _with_few_inactive(tasks: Sequence[Task], most: int) -> list[Task]:
    few = {task.id for task in islice((task for task in tasks if not task.is_active), most)}
    return [task for task in tasks if task.is_active or task.id in few]


def _place(task: Task) -> tuple[int, str]:
    """Where it stands in the order of `Tasks.all`."""
    return task.created_ms, task.id


def _in_short(task: Task) -> dict[str, Any]:
    """Without what is long of some: 1000 ids, and a line for each of hundreds of groups."""
    document = task.to_document()
    groups, spec = document.pop("groups"), document["spec"]
    in_short = {**spec, "ids": spec["ids"][:FIRST_IDS], "id_count": len(spec["ids"])}
    return {**document, "spec": in_short, "group_count": len(groups)}
