"""/policies/revisions: which revisions were in force, and what each decided. /policies/diff: two of them compared."""

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Path, Query
from pydantic import BaseModel, Field
from starlette.responses import Response

from dlx_router.admin.api.answers import CONFLICT, Answer, refuse
from dlx_router.admin.api.asking import asked, sees_of
from dlx_router.admin.api.context import Context, Given, Viewer
from dlx_router.config.api_access.tokens import Caller
from dlx_router.config.policy_files.revision_diff import Diff, QueueChange, compared
from dlx_router.config.policy_files.revision_document import DocumentError, document_of
from dlx_router.index.queries import Sees

router = APIRouter(tags=["policies"])

NOW: Final = "in-force"
_NAME: Final = rf"^([0-9a-f]{{12}}|{NOW})$"
_HOW: Final = f"12 hex digits, or {NOW}."
Vhost = Annotated[str, Query(max_length=255)]
Decided = Annotated[
    dict[str, int], Field(description="Decisions about letters by event, as far as the index has counted them.")
]


class Revision(BaseModel):
    """A revision of the policies. `is_known`: the router has what it was; null times: not told, or nothing decided."""

    revision: str
    in_force_ms: int | None
    is_in_force: bool
    is_known: bool
    policies: int | None
    decided: Decided
    first_ms: int | None
    last_ms: int | None


class Revisions(BaseModel):
    """Those that the index of the vhost knows, the newest first."""

    vhost: str
    revisions: list[Revision]


class WholeRevision(Revision):
    """What it was, as a document that can be compared; null: not known (any more), and `why` says so."""

    vhost: str
    queues: dict[str, Decided]
    document: dict[str, Any] | None
    why: str | None


class Change(BaseModel):
    """A key that says something else; "": it is not said."""

    key: str
    was: str
    now: str
    was_by: str
    now_by: str


class PolicyChange(BaseModel):
    """A policy that is new, gone, or says something else."""

    name: str
    change: Literal["added", "removed", "changed"]
    keys: list[Change]


class QueueDifference(BaseModel):
    """A queue for whose letters something else holds, and what each revision decided there."""

    queue: str
    queue_type: str | None
    was: list[str]
    now: list[str]
    keys: list[Change]
    was_decided: Decided
    now_decided: Decided


class Difference(BaseModel):
    """Two revisions, in the words of policies. `sources`: attachments, delayed exchanges; null: not told of both."""

    vhost: str
    was: Revision
    now: Revision
    is_equal: bool
    policies: list[PolicyChange]
    queues: list[QueueDifference]
    sources: list[Change] | None
    is_reordered: bool
    queues_left: int


@router.get("/policies/revisions", response_model=Revisions)
async def every(given: Given, who: Viewer, vhost: Vhost = "/") -> Response:
    """Which revisions were in force or decided about letters, the newest first."""
    now, sees = given.led(vhost, who).policies.revision, sees_of(given, who)
    found = await asked(given, lambda reader: reader.revisions(vhost, sees))
    return Answer({"vhost": vhost, "revisions": [{**one, "is_in_force": one["revision"] == now} for one in found]})


@router.get("/policies/revisions/{revision}", response_model=WholeRevision)
async def show(
    given: Given, who: Viewer, revision: Annotated[str, Path(pattern=_NAME, description=_HOW)], vhost: Vhost = "/"
) -> Response:
    """One of them: what it was, and what it decided in each queue."""
    one = await _one(given, who, vhost, revision)
    return Answer(one if who.match is None else {**one, "document": None, "why": _limited(who)})


@router.get("/policies/diff", response_model=Difference, responses=CONFLICT)
async def diff(
    given: Given,
    who: Viewer,
    a: Annotated[str, Query(pattern=_NAME, description=f"The one before: {_HOW}")],
    b: Annotated[str, Query(pattern=_NAME, description=f"The one after: {_HOW}")] = NOW,
    vhost: Vhost = "/",
) -> Response:
    """What two revisions say differently, policy by policy and queue by queue, and what each decided."""
    was, now = await _one(given, who, vhost, a), await _one(given, who, vhost, b)
    for one in (was, now):
        if one["document"] is None:
            raise refuse(409, one["why"])
    sees = sees_of(given, who)
    queues = [one for one in {*was["queues"], *now["queues"]} if sees(vhost, one)]
    try:
        async with given.extras.setdefault("revision_diffs", asyncio.Semaphore(1)):  # a large one takes half a second
            found = await asyncio.to_thread(compared, was["document"], now["document"], queues, given.names)
    except DocumentError as error:
        raise refuse(409, f"these revisions cannot be compared: {error}") from None
    shown = found if who.match is None else _of_queues(found, lambda queue: sees(vhost, queue))
    return Answer(_told(shown, was, now, sees))


async def _one(given: Context, who: Caller, vhost: str, name: str) -> dict[str, Any]:
    """A revision as the index has it; that in force is known without its help."""
    policies, sees = given.led(vhost, who).policies, sees_of(given, who)
    wanted = policies.revision if name == NOW else name
    found = await asked(given, lambda reader: reader.revision(vhost, wanted, sees))
    is_now = wanted == policies.revision
    if found is None and not is_now:
        raise refuse(404, f"nothing is known of revision {wanted} in vhost {vhost!r}, or not any more")
    found = found or _blank(wanted)
    if found["document"] is None and is_now:
        found["document"] = await asyncio.to_thread(document_of, policies, vhost)
    why = None if found["document"] is not None else _why(wanted, found)
    return {**found, "vhost": vhost, "is_in_force": is_now, "is_known": why is None, "why": why}


def _limited(who: Caller) -> str:
    return f"token {who.name!r} sees some queues only, and a revision may name others; ask for /policies/diff"


def _of_queues(found: Diff, sees: Callable[[str], bool]) -> Diff:
    """The difference for those queues: further policies, attachments and delayed exchanges may name others."""
    queues = tuple(one for one in found.queues if sees(one.queue))
    held = {name for one in queues for name in (*one.was, *one.now)}
    policies = tuple(one for one in found.policies if one.name in held)
    return found._replace(policies=policies, queues=queues, sources=None)


def _why(name: str, found: dict[str, Any]) -> str:
    if found["in_force_ms"] is not None:
        return f"what revision {name} was is not known: it is too large for the journal; compare its files"
    return f"what revision {name} was is not known (any more): the journal does not have it; compare its files"


def _blank(name: str) -> dict[str, Any]:
    """The revision in force, before the index has heard of it."""
    blank: dict[str, Any] = dict.fromkeys(("in_force_ms", "policies", "first_ms", "last_ms", "document"))
    return {"revision": name, **blank, "decided": {}, "queues": {}}


def _told(found: Diff, was: dict[str, Any], now: dict[str, Any], sees: Sees) -> dict[str, Any]:
    vhost = was["vhost"]
    return {
        "vhost": vhost,
        "was": _short(was),
        "now": _short(now),
        "is_equal": found.is_equal,
        "policies": [{**one._asdict(), "keys": [key._asdict() for key in one.keys]} for one in found.policies],
        "queues": [_queue(one, was, now) for one in found.queues if sees(vhost, one.queue)],
        "sources": None if found.sources is None else [one._asdict() for one in found.sources],
        "is_reordered": found.is_reordered,
        "queues_left": found.queues_left,
    }


def _short(one: dict[str, Any]) -> dict[str, Any]:
    return {name: one[name] for name in Revision.model_fields}


def _queue(one: QueueChange, was: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    told = {**one._asdict(), "keys": [key._asdict() for key in one.keys]}
    decided = {"was_decided": was["queues"].get(one.queue, {}), "now_decided": now["queues"].get(one.queue, {})}
    return told | decided
