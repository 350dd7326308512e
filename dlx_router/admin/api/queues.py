"""/queues: where letters failed and where they lie. /audits: who did what. /status: how router and index are."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from starlette.responses import Response

from dlx_router import __version__
from dlx_router.admin.api import models
from dlx_router.admin.api.answers import CONFLICT, Answer, refuse
from dlx_router.admin.api.asking import as_of, asked, sees_of
from dlx_router.admin.api.context import Admin, Given, Operator, Viewer
from dlx_router.admin.api.cursors import TimeCursor, cursor_of, place_of
from dlx_router.config.language.keys import REASONS
from dlx_router.service.queue_reads import ReadRefused
from dlx_router.service.redrive.preview import PeekError
from dlx_router.service.vhost.runner import VhostRunner

router = APIRouter(tags=["queues"])

AT_ONCE: Final = 500  # events; the journal keeps few MB for a stream that lags


@router.get("/queues", response_model=models.Queues)
async def queues(given: Given, who: Viewer) -> Response:
    """Failed queues, and the places where letters lie. Depths are looked at every some seconds."""
    sees = sees_of(given, who)
    failed = await asked(given, lambda reader: reader.failed_queues(sees))
    places = await asked(given, lambda reader: reader.places(sees))
    signatures = await asked(given, lambda reader: reader.signatures(given.visible(who)))
    failed = [row for row in failed if row["vhost"] in given.attendants]  # one may have been left meanwhile
    breakers = {vhost: given.attendants[vhost].breakers() for vhost in {row["vhost"] for row in failed}}
    for row in failed:
        attendant, queue = given.attendants[row["vhost"]], row["failed_queue"]
        policy = attendant.policy_for(queue, REASONS[0])
        row |= {"policy": None if policy is None else policy.policy, "breaker": breakers[row["vhost"]].get(queue)}
    depths = given.depths
    lying = [
        depths.to_document(place, limited=who.is_limited) if depths is not None else _unchecked(place)
        for place in places
    ]
    return Answer({"failed": failed, "lying": lying, "signatures": signatures, "as_of": as_of(given, who)})


def _unchecked(place: dict[str, Any]) -> dict[str, Any]:
    blank = {"queue": None, "depth": None, "checked_ms": None}
    return {**{key: place[key] for key in ("vhost", "exchange", "routing_key")}, "indexed": place["n"], **blank}


@router.post("/queues/import", response_model=models.Imported, responses=CONFLICT)
async def bring_in(
    given: Given, who: Operator, wanted: models.Import, vhost: Annotated[str, Query(max_length=255)] = "/"
) -> Response:
    """Make the letters that lie in a queue known to the index. They stay where they are."""
    attendant, importer = given.led(vhost, who), given.importer
    if importer is None or given.index is None:
        raise refuse(503, "there is no index: set DLX_ROUTER_INDEX_PATH to a file, and leave JOURNAL on")
    if who.match is not None:
        raise refuse(403, f"token {who.name!r} sees some queues only, and an import does not know whose letters come")
    kind = await given.kind_of(attendant, wanted.queue)
    await given.audit(who, vhost, "queue.import", {"queue": wanted.queue, "limit": wanted.limit})
    try:
        lines, read, unreadable = await importer.lines(
            attendant, wanted.queue, kind, limit=wanted.limit, actor=who.name
        )
    except (PeekError, ReadRefused) as error:
        raise refuse(409, str(error)) from None
    for start in range(0, len(lines), AT_ONCE):
        await given.write(attendant, lines[start : start + AT_ONCE])
    return Answer({"read": read, "unreadable": unreadable})


@router.get("/audits", response_model=models.Audits)
async def audits(
    given: Given,
    who: Viewer,
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
    cursor: TimeCursor = None,
) -> Response:
    """What people did, newest first. Not for tokens that see some queues only: an audit may name others."""
    if who.match is not None:
        raise refuse(403, f"token {who.name!r} sees some queues only; an audit may name others")
    before = place_of(cursor) if cursor is not None else None
    rows = await asked(given, lambda reader: reader.audits(given.visible(who), limit=limit, before=before))
    for row in rows:
        row["cursor"] = cursor_of(row["ts_ms"], row["event_id"])
    following = rows[-1]["cursor"] if len(rows) == limit else None
    return Answer({"audits": rows, "next": following, "as_of": as_of(given, who)})


@router.get("/status", response_model=models.Status)
async def status(given: Given, who: Viewer) -> Response:
    """This router, who asks, each vhost that it serves, and how far its index is."""
    vhosts = {vhost: _leading(given.attendants[vhost], given.router_id) for vhost in given.visible(who)}
    index: dict[str, Any] = {"on": given.index is not None}
    if given.index is not None:
        index_state = given.index.status
        index |= {key: index_state.get(key) for key in ("trouble", "rebuilds")}
        index["vhosts"] = {
            vhost: state for vhost, state in (index_state.get("vhosts") or {}).items() if who.may_see(vhost)
        }
    tokens = {"on": given.tokens is not None, "trouble": given.tokens.trouble if given.tokens is not None else None}
    asks = {"name": who.name, "role": who.role.name.lower(), "vhost": who.vhost, "match": who.match}
    about = {"router_id": given.router_id, "version": __version__, "who": asks}
    return Answer({**about, "vhosts": vhosts, "index": index, "tokens": tokens})


def _leading(runner: VhostRunner, router_id: str) -> dict[str, Any]:
    """Who leads the vhost, as far as this router knows."""
    leadership = runner.leadership
    leader = leadership.leader
    name = router_id if leadership.is_ours else leader.router_id if leader is not None else None
    lasts_s = leadership.leaderless_s
    return {
        "leads": leadership.is_ours,
        "term": leadership.term,
        "leader": name,
        "leaderless_ms": None if lasts_s is None else int(lasts_s * 1000),
        "journal": str(runner.journal.mode),
    }


@router.post("/index/rebuild", status_code=202, response_model=models.Status)
async def rebuild(given: Given, who: Admin) -> Response:
    """Rebuild this router's index from the start of the journal. What was imported has to be imported again."""
    index = given.index
    if index is None or who.is_limited:
        raise refuse(503 if index is None else 403, "no index here" if index is None else "not for a limited token")
    for vhost in given.visible(who):
        if vhost in given.attendants:  # while others were audited it may have been left
            await given.audit(who, vhost, "index.rebuild", {})
    index.rebuild()
    answer = await status(given, who)
    answer.status_code = 202
    return answer
