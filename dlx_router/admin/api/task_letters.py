"""GET /tasks/{id}/letters: what an export has read, told as somebody asks for it."""

import json
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from pydantic import BaseModel
from starlette.responses import Response

from dlx_router.admin.api.answers import CONFLICT, LETTERS_BYTES, Takes
from dlx_router.admin.api.context import Given, Operator
from dlx_router.admin.api.tasks import Vhost, refusing
from dlx_router.redrive.task import State

router = APIRouter(tags=["tasks"])

MAX_NUMBER: Final = 1 << 40
_JSON: Final = {"content-type": "application/json", "cache-control": "no-store"}
_LETTERS: Final = Takes(most_bytes=LETTERS_BYTES)


class Exported(BaseModel):
    """Letters of an export, see docs/redrive.md; `next` null: that was all, and `state` says how it ended."""

    letters: list[dict[str, Any]]
    next: int | None
    state: State
    why: str


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
