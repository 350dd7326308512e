"""Redrive tasks over HTTP: start, list, show, pause, resume, cancel.

Errors: 400 what was asked cannot be, 404 no such vhost, queue or task, 409 another task has the queue or the task's
state forbids it, 503 this router does not lead (Retry-After says when to ask again).
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, Protocol

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from dlx_router.operate.redrive.task import Kind, State, Task, TaskError, spec_of
from dlx_router.service.redriving.tasks import Conflict, Missing, NotLeader, Tasks

RETRY_AFTER_S: Final = "2"
Text = Annotated[str, Field(max_length=255)]


class Served(Protocol):
    """Who has the tasks of each vhost."""

    @property
    def vhosts(self) -> Sequence[str]: ...

    def tasks(self, vhost: str) -> Tasks | None: ...


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
    ids: Annotated[list[Text], Field(max_length=1000)] = []
    group: Text = ""
    filter: Annotated[str, Field(max_length=2000)] = ""
    to: Destination | None = None
    limit: Annotated[int, Field(ge=0, le=1_000_000_000)] = 0
    rate: Annotated[float, Field(ge=0, le=100_000)] = 50.0
    ramp: Annotated[list[Annotated[float, Field(gt=0, le=100_000)]], Field(max_length=20)] = []
    ramp_step_s: Annotated[float, Field(gt=0, le=86_400)] = 10.0
    cutoff_ms: Annotated[int, Field(ge=0, le=10_000_000_000_000)] = 0
    canary: Canary | None = None
    max_target_depth: Annotated[int, Field(ge=0, le=1_000_000_000)] = 0
    dry_run: bool = False


def router(served: Served, who: Callable[[Request], str] = lambda _request: "api") -> APIRouter:
    """The paths of tasks; `who(request)` names the person or token behind a request, for the journal."""
    api = APIRouter(prefix="/tasks", tags=["tasks"])

    @api.post("", status_code=201, summary="Start a task")
    async def create(asked: NewTask, request: Request) -> dict[str, Any]:
        return (await _of(served, asked.vhost).create(spec_of(asked.model_dump()), who(request))).to_document()

    @api.get("", summary="All tasks, newest first")
    async def every(vhost: Text = "/", queue: Text = "") -> dict[str, Any]:
        found = _of(served, vhost).all()
        return {"tasks": [one.to_document() for one in found if queue in {"", one.spec.queue}]}

    @api.get("/{task_id}", summary="One task")
    async def show(task_id: str, vhost: Text = "/") -> dict[str, Any]:
        return _of(served, vhost).get(task_id).to_document()

    for verb, state in (("pause", State.PAUSED), ("resume", State.RUNNING), ("cancel", State.CANCELLED)):
        api.add_api_route(
            f"/{{task_id}}/{verb}", _changer(served, state, who), methods=["POST"], name=verb, summary=f"{verb} a task"
        )
    return api


def _changer(served: Served, state: State, who: Callable[[Request], str]) -> Callable[..., Any]:
    async def change(task_id: str, request: Request, vhost: Text = "/") -> dict[str, Any]:
        task: Task = await _of(served, vhost).change(task_id, state, who(request))
        return task.to_document()

    return change


def _of(served: Served, vhost: str) -> Tasks:
    found = served.tasks(vhost)
    if found is None:
        raise Missing(f"vhost {vhost!r} is not served; served are {', '.join(served.vhosts) or 'none yet'}")
    return found


def answer_errors(app: FastAPI) -> None:
    """Make the app answer our errors as this module says."""

    async def answer(_request: Request, error: Exception) -> JSONResponse:
        status = next(code for kind, code in _CODES if isinstance(error, kind))
        headers = {"Retry-After": RETRY_AFTER_S} if isinstance(error, NotLeader) else {}
        return JSONResponse({"error": str(error)}, status, headers)

    for kind in (TaskError, NotLeader):
        app.add_exception_handler(kind, answer)


_CODES: Final[Sequence[tuple[type[Exception], int]]] = (
    (Missing, 404),
    (Conflict, 409),
    (TaskError, 400),
    (NotLeader, 503),
)


def alone(served: Served) -> FastAPI:
    """The paths of tasks by themselves."""
    app = FastAPI(title="dlx-router", openapi_url="/api/v1/openapi.json", docs_url=None, redoc_url=None)
    app.include_router(router(served), prefix="/api/v1")
    answer_errors(app)
    return app
