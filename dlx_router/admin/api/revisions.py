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
    revisions = await asked(given, lambda reader: reader.revisions(vhost, sees))
    return Answer(
        {
            "vhost": vhost,
            "revisions": [{**revision, "is_in_force": revision["revision"] == now} for revision in revisions],
        }
    )


@router.get("/policies/revisions/{revision}", response_model=WholeRevision)
async def show(
    given: Given, who: Viewer, revision: Annotated[str, Path(pattern=_NAME, description=_HOW)], vhost: Vhost = "/"
) -> Response:
    """One of them: what it was, and what it decided in each queue."""
    whole = await _revision(given, who, vhost, revision)
    return Answer(whole if who.match is None else {**whole, "document": None, "why": _limited(who)})


@router.get("/policies/diff", response_model=Difference, responses=CONFLICT)
async def diff(
    given: Given,
    who: Viewer,
    a: Annotated[str, Query(pattern=_NAME, description=f"The one before: {_HOW}")],
    b: Annotated[str, Query(pattern=_NAME, description=f"The one after: {_HOW}")] = NOW,
    vhost: Vhost = "/",
) -> Response:
    """What two revisions say differently, policy by policy and queue by queue, and what each decided."""
    was, now = await _revision(given, who, vhost, a), await _revision(given, who, vhost, b)
    for revision in (was, now):
        if revision["document"] is None:
            raise refuse(409, revision["why"])
    sees = sees_of(given, who)
    queues = [queue for queue in {*was["queues"], *now["queues"]} if sees(vhost, queue)]
    try:
        async with given.extras.setdefault("revision_diffs", asyncio.Semaphore(1)):  # a large one takes half a second
            difference = await asyncio.to_thread(compared, was["document"], now["document"], queues, given.names)
    except DocumentError as error:
        raise refuse(409, f"these revisions cannot be compared: {error}") from None
    shown = difference if who.match is None else _of_queues(difference, lambda queue: sees(vhost, queue))
    return Answer(_document(shown, was, now, sees))


async def _revision(given: Context, who: Caller, vhost: str, name: str) -> dict[str, Any]:
    """A revision as the index has it; that in force is known without its help."""
    policies, sees = given.led(vhost, who).policies, sees_of(given, who)
    wanted = policies.revision if name == NOW else name
    revision = await asked(given, lambda reader: reader.revision(vhost, wanted, sees))
    is_now = wanted == policies.revision
    if revision is None and not is_now:
        raise refuse(404, f"nothing is known of revision {wanted} in vhost {vhost!r}, or not any more")
    revision = revision or _blank(wanted)
    if revision["document"] is None and is_now:
        revision["document"] = await asyncio.to_thread(document_of, policies, vhost)
    why = None if revision["document"] is not None else _why(wanted, revision)
    return {**revision, "vhost": vhost, "is_in_force": is_now, "is_known": why is None, "why": why}


def _limited(who: Caller) -> str:
    return f"token {who.name!r} sees some queues only, and a revision may name others; ask for /policies/diff"


def _of_queues(difference: Diff, sees: Callable[[str], bool]) -> Diff:
    """The difference for those queues: further policies, attachments and delayed exchanges may name others."""
    queues = tuple(queue for queue in difference.queues if sees(queue.queue))
    held = {name for queue in queues for name in (*queue.was, *queue.now)}
    policies = tuple(policy for policy in difference.policies if policy.name in held)
    return difference._replace(policies=policies, queues=queues, sources=None)


def _why(name: str, revision: dict[str, Any]) -> str:
    if revision["in_force_ms"] is not None:
        return f"what revision {name} was is not known: it is too large for the journal; compare its files"
    return f"what revision {name} was is not known (any more): the journal does not have it; compare its files"


def _blank(name: str) -> dict[str, Any]:
    """The revision in force, before the index has heard of it."""
    blank: dict[str, Any] = dict.fromkeys(("in_force_ms", "policies", "first_ms", "last_ms", "document"))
    return {"revision": name, **blank, "decided": {}, "queues": {}}


def _document(difference: Diff, was: dict[str, Any], now: dict[str, Any], sees: Sees) -> dict[str, Any]:
    vhost = was["vhost"]
    return {
        "vhost": vhost,
        "was": _short(was),
        "now": _short(now),
        "is_equal": difference.is_equal,
        "policies": [
            {**policy._asdict(), "keys": [key._asdict() for key in policy.keys]} for policy in difference.policies
        ],
        "queues": [_queue(queue, was, now) for queue in difference.queues if sees(vhost, queue.queue)],
        "sources": None if difference.sources is None else [source._asdict() for source in difference.sources],
        "is_reordered": difference.is_reordered,
        "queues_left": difference.queues_left,
    }


def _short(revision: dict[str, Any]) -> dict[str, Any]:
    return {name: revision[name] for name in Revision.model_fields}


def _queue(change: QueueChange, was: dict[str, Any], now: dict[str, Any]) -> dict[str, Any]:
    document = {**change._asdict(), "keys": [key._asdict() for key in change.keys]}
    decided = {"was_decided": was["queues"].get(change.queue, {}), "now_decided": now["queues"].get(change.queue, {})}
    return document | decided
