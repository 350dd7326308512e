"""/tasks and /edits: start, list, show, pause, resume, cancel, and fetch what an export reads.

A change is in the journal before its answer.
"""

import json
import time
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice
from typing import Annotated, Any, Final

from fastapi import APIRouter, HTTPException, Query
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr
from starlette.responses import Response

from dlx_router.admin.api.answers import CONFLICT, LETTERS_BYTES, Answer, Takes, refuse
from dlx_router.admin.api.asking import asked
from dlx_router.admin.api.context import Context, Given, Operator, Viewer
from dlx_router.admin.api.cursors import TimeCursor, cursor_of, place_of
from dlx_router.config.api_access.tokens import Caller
from dlx_router.index.reader import Reader
from dlx_router.redrive.letter_edits import Edit, Value
from dlx_router.redrive.task import VERSION, Destination, Kind, Outlook, Spec, State, Task, TaskError, Text, outlook
from dlx_router.service.redrive.task_log import MAX_KEPT, NotLeader, UnknownTask
from dlx_router.service.redrive.tasks import Tasks

router = APIRouter(tags=["tasks"])

RETRY_AFTER_S: Final = 2
FIRST_IDS: Final = 3
MAX_NUMBER: Final = 1 << 40
_JSON: Final = {"content-type": "application/json", "cache-control": "no-store"}
_LETTERS: Final = Takes(most_bytes=LETTERS_BYTES)
_KEPT_S: Final = 1.0
_SHARE: Final = 20  # the question takes a twentieth of the time at most, however often somebody asks
_MOST: Final = 500  # tasks in one question
Vhost = Annotated[str, Query(max_length=255)]
EditedBody = Annotated[str | None, Field(max_length=1 << 20, description="Base64.")]
EditedText = Annotated[str | None, Field(max_length=1 << 20)]
EditedHeaders = Annotated[
    dict[str, StrictBool | StrictInt | StrictStr | None],
    Field(max_length=50, description="To set; null takes one off."),
]


def edit_of(body: str | None, text: str | None, headers: Mapping[str, Value]) -> Edit:
    """What a request asks to change. TaskError: the body is no base64, or is given twice."""
    if body is not None and text is not None:
        raise TaskError("body, text: one of them")
    try:
        plain = None if body is None else b64decode(body, validate=True)
        return Edit(plain if text is None else text.encode(), headers)
    except (ValueError, UnicodeError) as error:
        raise TaskError(f"body: {error}") from None


class NewEdit(BaseModel):
    """One letter, changed and sent back. `body` is base64, `text` the same in UTF-8; neither: the body stays."""

    model_config = ConfigDict(extra="forbid")
    vhost: Text = "/"
    queue: Annotated[str, Field(min_length=1, max_length=255, description="Where the letter lies.")]
    id: Annotated[str, Field(min_length=1, max_length=255)]
    body: EditedBody = None
    text: EditedText = None
    headers: EditedHeaders = {}
    to: Destination | None = None
    not_a_dead_letter_queue: bool = False

    def to_edit(self) -> Edit:
        """TaskError: the body is no base64, or is given twice."""
        return edit_of(self.body, self.text, self.headers)


@dataclass(frozen=True)
class OneTask(Task):
    """A task as it stands; `why` says what stopped it, or which letters stay."""

    v: int = VERSION
    meant: Annotated[
        Outlook | None, Field(description="How many letters the task is about; not exact: estimated by what was seen.")
    ] = None
    came_back: Annotated[
        int | None, Field(description="Letters of a redrive that died again; null: no index tells.")
    ] = None


class AllTasks(BaseModel):
    """Newest first. `next` null: that was all."""

    tasks: Annotated[
        list[dict[str, Any]],
        Field(
            description="As GET /tasks/{id}, but `groups` is their number in `group_count`, and of `ids` there are the "
            "first three; `id_count`: how many."
        ),
    ]
    next: str | None


class Exported(BaseModel):
    """Letters of an export, see docs/redrive.md; `next` null: that was all, and `state` says how it ended."""

    letters: list[dict[str, Any]]
    next: int | None
    state: State
    why: str


class Preview(BaseModel):
    """What a task would find in a queue; no message is read. `unacked` null: unknown."""

    queue: str
    messages: int
    unacked: int | None
    consumers: int
    is_dead_letter_queue: bool
    objection: str


@router.get("/tasks", response_model=AllTasks)
async def every(  # noqa: PLR0913, PLR0917 - each is a filter
    given: Given,
    who: Viewer,
    vhost: Vhost = "/",
    queue: Annotated[str, Query(max_length=255)] = "",
    inactive: Annotated[
        int | None,
        Query(ge=0, le=MAX_KEPT, description="Of those that are over only so many, the newest."),
    ] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_KEPT)] = MAX_KEPT,
    cursor: TimeCursor = None,
) -> Response:
    """The tasks of a vhost, or of one queue in it."""
    tasks = await _of(given, who, vhost)
    with refusing():
        wanted = [task for task in tasks.all() if queue in {"", task.spec.queue}]
    wanted = wanted if inactive is None else _with_few_inactive(wanted, inactive)
    behind = [task for task in wanted if cursor is None or _place(task) < place_of(cursor)]
    page = behind[:limit]
    following = cursor_of(*_place(page[-1])) if len(behind) > limit else None
    return Answer({"tasks": await _documents(given, page, _in_short), "next": following})


@router.post("/tasks", status_code=201, response_model=OneTask, responses=CONFLICT)
async def create(given: Given, who: Operator, wanted: Spec) -> Response:
    """Start a task. It means only what was dead before `cutoff_ms`, by default now."""
    tasks = await _of(given, who, wanted.vhost)
    with refusing():
        task = await tasks.create(wanted, who.name)
    return await _answer(given, task, 201)


@router.post("/edits", status_code=201, response_model=OneTask, responses=CONFLICT)
async def edit(given: Given, who: Operator, wanted: NewEdit) -> Response:
    """Change one letter and send it back, by a task. Its record and deaths are locked; the journal tells both sides."""
    tasks = await _of(given, who, wanted.vhost)
    spec = Spec(wanted.vhost, wanted.queue, ids=(wanted.id,), to=wanted.to, rate=0.0)
    spec = replace(spec, not_a_dead_letter_queue=wanted.not_a_dead_letter_queue)
    with refusing():
        task = await tasks.create(spec, who.name, wanted.to_edit())
    return await _answer(given, task, 201)


@router.get("/tasks/preview", response_model=Preview, responses=CONFLICT)
async def preview(
    given: Given, who: Operator, queue: Annotated[str, Query(min_length=1, max_length=255)], vhost: Vhost = "/"
) -> Response:
    """What a task would meet in a queue, before it is asked for."""
    tasks = await _of(given, who, vhost)
    with refusing():
        shown = await tasks.preview(queue)
    return Answer({**asdict(shown), "objection": shown.objection})


@router.get("/tasks/{task_id}", response_model=OneTask)
async def show(given: Given, who: Viewer, task_id: str, vhost: Vhost = "/") -> Response:
    """One task, counted to this moment."""
    tasks = await _of(given, who, vhost)
    with refusing():
        task = tasks.get(task_id)
    return await _answer(given, task)


@router.get("/tasks/{task_id}/letters", response_model=Exported, responses=CONFLICT)
async def exported(
    given: Given,
    who: Operator,
    task_id: str,
    after: Annotated[int, Query(ge=0, le=MAX_NUMBER, description="`next` of the answer before.")] = 0,
    vhost: Vhost = "/",
) -> Response:
    """Letters of a task of kind export, some 1 MiB at once; it goes on as they are asked for. There may be none yet."""
    tasks = await given.led_known(vhost, who, "tasks", lambda runner: runner.tasks, takes=_LETTERS)
    with refusing():
        lines, following, task = await tasks.exported(task_id, after)
    rest = json.dumps({"next": following, "state": task.state, "why": task.why}).encode()
    return Response(b'{"letters":[' + b",".join(lines) + b"]," + rest[1:], headers=_JSON)


@router.post("/tasks/{task_id}/pause", response_model=OneTask, responses=CONFLICT)
async def pause(given: Given, who: Operator, task_id: str, vhost: Vhost = "/") -> Response:
    """Stop it for now; when this answers, what was not sent is back in its queue."""
    return await _change(given, who, vhost, task_id, State.PAUSED)


@router.post("/tasks/{task_id}/resume", response_model=OneTask, responses=CONFLICT)
async def resume(given: Given, who: Operator, task_id: str, vhost: Vhost = "/") -> Response:
    """Go on with a task that was paused or stopped; one that its canary stopped sends another canary first."""
    return await _change(given, who, vhost, task_id, State.RUNNING)


@router.post("/tasks/{task_id}/cancel", response_model=OneTask, responses=CONFLICT)
async def cancel(given: Given, who: Operator, task_id: str, vhost: Vhost = "/") -> Response:
    """End it for good; what was not sent stays in its queue."""
    return await _change(given, who, vhost, task_id, State.CANCELLED)


async def _change(given: Context, who: Caller, vhost: str, task_id: str, state: State) -> Response:
    tasks = await _of(given, who, vhost)
    with refusing():
        task = await tasks.change(task_id, state, who.name)
    return await _answer(given, task)


async def _answer(given: Context, task: Task, status: int = 200) -> Answer:
    (document,) = await _documents(given, [task])
    return Answer(document, status)


async def _of(given: Context, who: Caller, vhost: str) -> Tasks:
    """The vhost's tasks."""
    return await given.led_known(vhost, who, "tasks", lambda runner: runner.tasks)


@contextmanager
def refusing() -> Iterator[None]:
    """Turns what tasks object into the answer that says it."""
    try:
        yield
    except UnknownTask as error:
        raise refuse(404, str(error)) from None
    except TaskError as error:
        raise refuse(409, str(error)) from None
    except NotLeader as error:
        raise refuse(503, str(error), retry_after_s=RETRY_AFTER_S) from None


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


async def _documents(
    given: Context, tasks: Sequence[Task], document: Callable[[Task], dict[str, Any]] = Task.to_document
) -> list[dict[str, Any]]:
    """Each task as JSON has it, or as `document` makes it."""
    counted = await _counted(given, [task for task in tasks if _goes_back(task)][:_MOST])
    return [
        {**document(task), "meant": asdict(outlook(task)), "came_back": counted.get(task.id) if counted else None}
        for task in tasks
    ]


def _goes_back(task: Task) -> bool:
    return task.spec.kind is Kind.REDRIVE and not task.spec.dry_run and task.counts.sent > 0


async def _counted(given: Context, tasks: Sequence[Task]) -> dict[str, int]:
    """Return the counts by task; empty without an index, because they are unknown then."""
    if given.index is None or not tasks:
        return {}
    kept: dict[frozenset[str], tuple[float, dict[str, int]]] = given.extras.setdefault("came_back", {})
    wanted = frozenset(task.id for task in tasks)
    until, known = kept.get(wanted, (0.0, {}))
    began = time.monotonic()
    if began < until:
        return known
    try:
        known = await _returned(given, tasks)
    except HTTPException:  # the index is away, or the question too long: the task is shown without
        known = {}
    now = time.monotonic()
    for key in [key for key, (until, _) in kept.items() if until < now]:
        del kept[key]
    kept[wanted] = (now + max(_KEPT_S, (now - began) * _SHARE), known)
    return known


async def _returned(given: Context, tasks: Sequence[Task]) -> dict[str, int]:
    counts = dict.fromkeys((task.id for task in tasks), 0)
    for elsewhere in (False, True):
        ids = [task.id for task in tasks if (task.spec.to is not None) is elsewhere]
        if ids:
            counts |= await asked(given, partial(Reader.came_back, tasks=ids, elsewhere=elsewhere))
    return counts
