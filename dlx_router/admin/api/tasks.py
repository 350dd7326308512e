"""/tasks: one of them started, shown, paused, resumed, cancelled. A change is in the journal before its answer."""

from base64 import b64decode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Annotated, Final

from fastapi import APIRouter, Query
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictInt, StrictStr
from starlette.responses import Response

from dlx_router.admin.api.answers import CONFLICT, Answer, refuse
from dlx_router.admin.api.came_back import documents
from dlx_router.admin.api.context import Context, Given, Operator, Viewer
from dlx_router.config.api_access.tokens import Caller
from dlx_router.redrive.letter_edits import Edit, Value
from dlx_router.redrive.task import Kind, State, Task, TaskError, spec_of
from dlx_router.service.redrive.task_log import NotLeader, UnknownTask
from dlx_router.service.redrive.tasks import Tasks

router = APIRouter(tags=["tasks"])

RETRY_AFTER_S: Final = 2
Text = Annotated[str, Field(max_length=255)]
Named = Annotated[str, Field(min_length=1, max_length=255)]
Known = Annotated[
    bool, Field(description="You know that the queue is no dead-letter queue, or that somebody consumes it.")
]
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


class Destination(BaseModel):
    """Where letters go instead of their failed queue."""

    model_config = ConfigDict(extra="forbid")
    exchange: Text = ""
    routing_key: Text = ""


class Canary(BaseModel):
    """The first letters go alone; the rest only where at most `max_dead_percent` of them died within `watch_s`."""

    model_config = ConfigDict(extra="forbid")
    first: Annotated[int, Field(ge=1, le=100_000)]
    watch_s: Annotated[float, Field(gt=0, le=604_800)] = 60.0
    max_dead_percent: Annotated[float, Field(ge=0, lt=100)] = 0.0


class NewTask(BaseModel):
    """What a new task shall do."""

    model_config = ConfigDict(extra="forbid")
    vhost: Text = "/"
    queue: Annotated[str, Field(min_length=1, max_length=255)]
    kind: Kind = Kind.REDRIVE
    # What narrows a task and is empty would mean all letters: refused, because a script's variable may be.
    ids: Annotated[list[Named], Field(min_length=1, max_length=1000)] = []
    group: Named = ""
    filter: Annotated[str, Field(min_length=1, max_length=2000)] = ""
    to: Destination | None = None
    limit: Annotated[int, Field(ge=0, le=1_000_000_000)] = 0
    rate: Annotated[float, Field(ge=0, le=100_000)] = 50.0
    ramp: Annotated[list[Annotated[float, Field(gt=0, le=100_000)]], Field(max_length=20)] = []
    ramp_step_s: Annotated[float, Field(gt=0, le=86_400)] = 10.0
    cutoff_ms: Annotated[int, Field(ge=0, le=10_000_000_000_000)] = 0
    canary: Canary | None = None
    max_target_depth: Annotated[int, Field(ge=0, le=1_000_000_000)] = 0
    dry_run: bool = False
    not_a_dead_letter_queue: Known = False


class Edited(BaseModel):
    """That the letter was changed: names of headers, and the new body's size; null: as it was."""

    headers: list[str]
    body_bytes: int | None


class Asked(NewTask):
    """What a task was asked to do."""

    ids: list[Text] = []
    group: Text = ""
    filter: str = ""
    edit: Edited | None = None


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
    not_a_dead_letter_queue: Known = False

    def to_edit(self) -> Edit:
        """TaskError: the body is no base64, or is given twice."""
        return edit_of(self.body, self.text, self.headers)


class Counts(BaseModel):
    """Messages: looked at in this look, sent in all; of those that stay: letters, unreadable ones, what never died.

    `meant`: sent before this look, or found to be meant in it; `expected`: what lay in the queue as it began; `parked`:
    in all, what was near the delivery limit of its queue and went to parking instead of back.
    """

    seen: int
    sent: int
    left: int
    unreadable: int
    not_letters: int
    meant: int
    expected: int
    parked: int = 0


class Meant(BaseModel):
    """How many letters the task is about; `is_exact` false: not all of its queue was looked at, and it is estimated."""

    letters: int
    is_exact: bool


class GroupCount(BaseModel):
    """Of a dry run: letters of one group that would go."""

    group: str
    failed_queue: str
    reason: str
    letters: int


class KnownTask(BaseModel):
    """What an answer has of a task, whether it is of one or of many."""

    v: int
    id: str
    state: State
    why: str
    by: str
    created_ms: int
    changed_ms: int
    counts: Counts
    total: int
    canary_passed: bool
    canary_from: int = Field(description="So many were sent before the canary that counts now.")
    term: int
    change: int
    meant: Meant
    came_back: int | None = Field(description="Letters of a redrive that died again; null: no index tells.")


class OneTask(KnownTask):
    """A task as it stands; `why` says what stopped it, or which letters stay."""

    spec: Asked
    groups: list[GroupCount]


class Preview(BaseModel):
    """What a task would meet in a queue. `unacked` null: nobody can say. `letters`: of `sampled`, null: none was."""

    queue: str
    messages: int
    unacked: int | None
    consumers: int
    is_dead_letter_queue: bool
    sampled: int
    letters: int | None
    not_sampled: str
    objection: str


@router.post("/tasks", status_code=201, response_model=OneTask, responses=CONFLICT)
async def create(given: Given, who: Operator, wanted: NewTask) -> Response:
    """Start a task. It means only what was dead before `cutoff_ms`, by default now."""
    tasks = await _of(given, who, wanted.vhost)
    with refusing():
        task = await tasks.create(spec_of(wanted.model_dump()), who.name)
    return await _answer(given, task, 201)


@router.post("/edits", status_code=201, response_model=OneTask, responses=CONFLICT)
async def edit(given: Given, who: Operator, wanted: NewEdit) -> Response:
    """Change one letter and send it back, by a task. Its record and deaths are locked; the journal tells both sides."""
    tasks = await _of(given, who, wanted.vhost)
    asked = {"vhost": wanted.vhost, "queue": wanted.queue, "ids": [wanted.id], "rate": 0.0}
    asked |= {"to": None if wanted.to is None else wanted.to.model_dump()}
    asked |= {"not_a_dead_letter_queue": wanted.not_a_dead_letter_queue}
    with refusing():
        task = await tasks.create(spec_of(asked), who.name, wanted.to_edit())
    return await _answer(given, task, 201)


@router.get("/tasks/preview", response_model=Preview, responses=CONFLICT)
async def preview(
    given: Given, who: Operator, queue: Annotated[str, Query(min_length=1, max_length=255)], vhost: Vhost = "/"
) -> Response:
    """What a task would meet in a queue, before it is asked for. Up to 100 messages are looked at and given back."""
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
    (document,) = await documents(given, [task])
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
