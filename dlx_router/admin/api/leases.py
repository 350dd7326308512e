"""/queues/{queue}/receive and /leases: letters of a dead-letter queue, worked off one by one.

A letter that was received is nobody else's until its lease ends: as its holder says, or by itself. It is in its queue
all the time, unacknowledged, so whatever happens to holder, router or broker, it comes back unless somebody ended it.
"""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Request
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from starlette.responses import Response

from dlx_router.admin.api.answers import CONFLICT, LEASES, LETTERS_BYTES, PLAIN, Answer, Takes, refuse
from dlx_router.admin.api.asgi import WAITING
from dlx_router.admin.api.context import Context, Given, Operator
from dlx_router.admin.api.tasks import (
    RETRY_AFTER_S,
    EditedBody,
    EditedHeaders,
    EditedText,
    edit_of,
    refusing,
)
from dlx_router.config.api_access.tokens import Caller
from dlx_router.config.units import duration_ms
from dlx_router.core.leases import LONGEST_S, MAX_CHARS, Ended, Lease, LeaseBusy, LeaseOver, NoRoom, vhost_of
from dlx_router.journal.privacy import rule_of
from dlx_router.redrive.export_format import line
from dlx_router.redrive.letter_edits import Edit
from dlx_router.redrive.task import Destination, TaskError, Text
from dlx_router.service.leases.holder import HeldLetter
from dlx_router.service.leases.manager import NoHandle, ReceiveRequest, VhostLeases, translated
from dlx_router.service.redrive.sender import group_of
from dlx_router.telemetry.wall_clock import wall_ms

router = APIRouter(tags=["leases"])

MOST: Final = 100
LONGEST_WAIT_S: Final = 20.0
ANSWER_S: Final = 10.0  # beyond the wait: for the broker, and for who reads
_JSON: Final = {"content-type": "application/json", "cache-control": "no-store"}


def _seconds(value: Any) -> Any:  # noqa: ANN401 - what JSON can hold
    return duration_ms(value) / 1000 if isinstance(value, str) else value


Visibility = Annotated[
    float,
    Field(gt=0, le=LONGEST_S, description="Seconds, or text with a unit (5m): so long the lease lasts."),
    BeforeValidator(_seconds),
]
Wait = Annotated[
    float,
    Field(ge=0, le=LONGEST_WAIT_S, description="Seconds, or text with a unit: for a first letter."),
    BeforeValidator(_seconds),
]


class Wanted(BaseModel):
    """Which letters, and for how long they are yours."""

    model_config = ConfigDict(extra="forbid")
    vhost: Text = "/"
    max: Annotated[int, Field(ge=1, le=MOST)] = 1
    wait: Wait = 0.0
    visibility: Visibility = 30.0
    filter: Annotated[str | None, Field(min_length=1, max_length=2000, description="CEL, as a task's.")] = None
    not_a_dead_letter_queue: bool = False


class Received(BaseModel):
    """A letter as an export tells it, and its lease; `receives`: how often it was received, as far as known."""

    model_config = ConfigDict(extra="allow")
    handle: str
    until_ms: int
    receives: int
    id: str
    body: str | None = None  # base64; absent where the policy redacts it and it is no JSON


class Letters(BaseModel):
    """Those that were received, the oldest first, but for what came back."""

    letters: list[Received]


class Action(StrEnum):
    """What becomes of the letter."""

    DONE = "done"  # it is deleted
    RELEASE = "release"  # back to its queue, now
    EXTEND = "extend"
    REDRIVE = "redrive"  # back to where it failed, or to `to`
    PARK = "park"
    EDIT = "edit"  # as redrive, with another body or other headers


_WITH: Final = {
    Action.EXTEND: {"visibility"},
    Action.REDRIVE: {"to"},
    Action.EDIT: {"to", "body", "text", "headers"},
}
_ENDS: Final = {
    Action.DONE: Ended.DONE,
    Action.PARK: Ended.PARKED,
    Action.REDRIVE: Ended.REDRIVEN,
    Action.EDIT: Ended.EDITED,
}


class Change(BaseModel):
    """`visibility` goes with extend, `to` with redrive and edit, `body`, `text` and `headers` with edit."""

    model_config = ConfigDict(extra="forbid")
    action: Action
    visibility: Visibility | None = None
    to: Destination | None = None
    body: EditedBody = None
    text: EditedText = None
    headers: EditedHeaders = {}

    def check(self) -> None:
        """TaskError: something is said that does not go with the action, or is missing."""
        odd = self.model_fields_set - {"action"} - _WITH.get(self.action, set())
        if odd:
            raise TaskError(f"{', '.join(sorted(odd))}: not with {self.action}")
        if self.action is Action.EXTEND and self.visibility is None:
            raise TaskError("visibility: say how long, from now")

    def to_edit(self) -> Edit:
        """TaskError: the body is no base64, or is given twice."""
        return edit_of(self.body, self.text, self.headers)


class Changed(BaseModel):
    """`ended` null: the lease goes on, until `until_ms`."""

    ended: Ended | None
    until_ms: int | None


@router.post("/queues/{queue:path}/receive", response_model=Letters, responses=CONFLICT)
async def receive(
    request: Request, given: Given, who: Operator, queue: Annotated[str, Path(max_length=255)], wanted: Wanted
) -> Response:
    """Letters of a queue, at least once: those that are not said to be done come back when their leases end."""
    leases = await _of(given, who, wanted.vhost, Takes(wanted.wait, LETTERS_BYTES))
    until_s = asyncio.get_running_loop().time() + wanted.wait + ANSWER_S
    knowing = wanted.not_a_dead_letter_queue
    asked = ReceiveRequest(queue, who.name, wanted.max, wanted.wait, wanted.visibility, knowing=knowing)
    with _refusing(), request.scope[WAITING].until(until_s):
        received = await leases.receive(asked, wanted.filter or "")
    if received and await request.is_disconnected():
        await leases.release_all([lease for _, lease in received])
    until_ms = wall_ms() + int(wanted.visibility * 1000)
    documents = [_letter_document(handle, lease, until_ms) for handle, lease in received]
    return Response(b'{"letters":[' + b",".join(documents) + b"]}", headers=_JSON)


@router.post("/leases/{handle}", response_model=Changed, responses={**CONFLICT, **LEASES})
async def change(
    given: Given, who: Operator, handle: Annotated[str, Path(max_length=MAX_CHARS)], wanted: Change
) -> Response:
    """Say what becomes of a letter. What is answered has happened: `done` is told by the journal, and acknowledged."""
    vhost = vhost_of(handle)
    if vhost is None:
        raise refuse(404, "there is no such lease: this is no handle")
    leases = await _of(given, who, vhost)
    try:
        with _refusing():
            wanted.check()
            return Answer(await _changed(leases, handle, who.name, wanted))
    except LeaseOver as error:
        return Answer({"error": str(error), "problems": [], "ended": error.how}, 410)


async def _changed(leases: VhostLeases, handle: str, by: str, wanted: Change) -> dict[str, Any]:
    term, lease_id = leases.claim(handle, by)
    if wanted.action is Action.EXTEND:
        assert wanted.visibility is not None
        return {"ended": None, "until_ms": await term.extend(lease_id, wanted.visibility)}
    if wanted.action is Action.RELEASE:
        await term.release(lease_id)
        return {"ended": Ended.RELEASED, "until_ms": None}
    ended, edit = _ENDS[wanted.action], wanted.to_edit() if wanted.action is Action.EDIT else None
    await term.remove(lease_id, ended, to=wanted.to, edit=edit)
    return {"ended": ended, "until_ms": None}


def _letter_document(handle: str, lease: Lease[HeldLetter], until_ms: int) -> bytes:
    """As an export tells the letter, redacted as its policy says, with its lease."""
    letter, envelope, rule = lease.held.letter, lease.held.envelope, rule_of(lease.held.policy)
    content = envelope.content.props
    exported = line(letter, envelope.props, content, envelope.delivery.body, group=group_of(letter, rule), rule=rule)
    own = json.dumps({"handle": handle, "until_ms": until_ms, "receives": lease.receives}, separators=(",", ":"))
    return own.encode()[:-1] + b"," + exported[1:]


async def _of(given: Context, who: Caller, vhost: str, takes: Takes = PLAIN) -> VhostLeases:
    """The vhost's leases."""
    return await given.led_known(vhost, who, "leases", lambda runner: runner.leases, takes=takes)


@contextmanager
def _refusing() -> Iterator[None]:
    """Turns what leases object, and what they object as tasks do, into the answer that says it."""
    try:
        with refusing(), translated():
            yield
    except NoHandle as error:
        raise refuse(404, str(error)) from None
    except NoRoom as error:
        raise refuse(429, str(error), retry_after_s=RETRY_AFTER_S) from None
    except LeaseBusy as error:
        raise refuse(503, str(error), retry_after_s=RETRY_AFTER_S) from None
