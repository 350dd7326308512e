"""What dies now: the first page."""

import asyncio
import time
from collections.abc import Awaitable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, TypeVar

from starlette.responses import Response

from dlx_router.console.asking import Asked
from dlx_router.console.rendering import lasting
from dlx_router.console.router_api import ApiError, RouterApi
from dlx_router.console.sorting import arranged, order_of

KEPT_S: Final = 10.0
NEWEST: Final = 500
HOUR_MS: Final = 3_600_000
BARS: Final = 30
AT_WORK: Final = frozenset({"running", "watching", "paused"})
RESTING: Final = frozenset({"dead", "parked", "quarantined"})
WAITING: Final = frozenset({"retrying", "held"})
MAX_VHOSTS: Final = 20
OVER: Final = 3  # tasks that are over, beside those at work
_SHOWN: Final = ("vhost", "failed_queue", "last_ms")
Found = TypeVar("Found")
Told = dict[str, Any]


COLUMNS: Final = [
    "router", "vhost", "failed_queue", "policy", "breaker", "resting", "waiting", "hour", "oldest_ms", "last_ms",
]  # fmt: skip
LYING: Final = ["router", "vhost", "queue", "exchange", "routing_key", "depth", "indexed", "checked_ms"]
VALUES: Final = {
    "queue": itemgetter("failed_queue"), "hour": itemgetter("hour"), "dead": itemgetter("resting"),
    "waiting": itemgetter("waiting"), "oldest": itemgetter("oldest_ms"), "last": itemgetter("last_ms"),
}  # fmt: skip


async def overview(asked: Asked) -> Response:
    """Every router that the console shows, or the one that the address names."""
    routers = list(asked.console.routers.values())
    shown = [asked.router] if "router" in asked.request.path_params else routers
    boards = await asyncio.gather(*(_board(asked, router) for router in shown))
    order = order_of(asked.query("sort"), VALUES, "-last")
    for board in boards:
        board["rows"] = arranged(board["rows"], VALUES, order)
    of, columns = ("lying", LYING) if asked.query("list") == "lying" else ("rows", COLUMNS)
    rows = [{"router": board["router"].name, **row} for board in boards for row in board[of]]
    listed = asked.listing("overview", columns, [{name: row.get(name) for name in columns} for row in rows])
    return listed or asked.page("overview.html", boards=boards, order=order)


async def _board(asked: Asked, router: RouterApi) -> Told:
    """All that the page says of one router; what cannot be had is told in the router's words."""
    token = asked.session.words[router.name]
    ready, status, queues, groups, recent = await asyncio.gather(
        _tried(router.readiness()),
        _tried(router.get("/status", token)),
        _tried(router.get("/queues", token)),
        _tried(router.get("/groups", token, state="open", limit=6)),
        _tried(_recent(asked, router)),
    )
    vhosts = sorted(status.get("vhosts") or {}) if isinstance(status, dict) else []
    tasks, unasked = await _tasks(router, token, vhosts)
    lists = queues if isinstance(queues, dict) else {"failed": [], "lying": []}
    newest = recent["letters"] if isinstance(recent, dict) else []
    now_ms = int(time.time() * 1000)
    return {
        "router": router,
        "vhosts": len({row["vhost"] for row in (*lists["failed"], *lists["lying"])}),
        "ready": ready,
        "status": status,
        "leads": _who_leads(status),
        "knows": {
            "queues": isinstance(queues, dict) and not missing(queues),
            "groups": isinstance(groups, dict) and not missing(groups),
            "tasks": isinstance(status, dict),
        },
        "trouble": [*_errors([status, queues, groups, recent]), *_led_by_nobody(status), *missing(lists)],
        "rows": [_row(queue, newest, now_ms) for queue in lists["failed"]],
        "lying": lists["lying"],
        "groups": groups["groups"] if isinstance(groups, dict) else [],
        "tasks": [task for task in tasks if task["state"] in AT_WORK],
        "over": [task for task in tasks if task["state"] not in AT_WORK][:OVER],
        "unasked": unasked,
        "is_part": len(newest) == NEWEST and newest[-1]["last_ms"] > now_ms - HOUR_MS,
        "at": asked.at(router.name),
    }


def _row(queue: Told, newest: Sequence[Told], now_ms: int) -> Told:
    """A failed queue: what rests in it, what waits, and its last hour."""
    mine = [
        letter["last_ms"]
        for letter in newest
        if (letter["vhost"], letter["failed_queue"]) == (queue["vhost"], queue["failed_queue"])
    ]
    bars = course(mine, now_ms - HOUR_MS, now_ms)
    states = queue["states"]
    return {
        **queue,
        "resting": sum(n for state, n in states.items() if state in RESTING),
        "waiting": sum(n for state, n in states.items() if state in WAITING),
        "bars": bars,
        "hour": sum(bars),
    }


def missing(answer: Mapping[str, Any]) -> list[str]:
    """Vhosts whose letters may be missing in a list, because the index does not read their journal now."""
    unread = [vhost for vhost, ms in (answer.get("as_of") or {}).items() if ms is None]
    return [f"Vhost {vhost}: the router's index does not read its journal now." for vhost in unread]


def _who_leads(status: Told | ApiError) -> str:
    """Which router answers, and which it asks for what it does not lead."""
    if not isinstance(status, dict) or not status.get("router_id"):
        return ""
    vhosts = [vhost for vhost in (status.get("vhosts") or {}).values() if isinstance(vhost, dict)]
    others = sorted(
        {str(vhost["leader"]) for vhost in vhosts if vhost.get("leader") not in (None, status["router_id"])}
    )
    asks = f", which asks {', '.join(others)} for what it does not lead" if others else ""
    return f"router {status['router_id']}{asks}"


def _led_by_nobody(status: Told | ApiError) -> list[str]:
    """Vhosts that nobody leads just now, and for how long."""
    vhosts = status.get("vhosts") or {} if isinstance(status, dict) else {}
    lasting_ms = {vhost: state.get("leaderless_ms") for vhost, state in vhosts.items() if isinstance(state, dict)}
    fate = "tasks and the index rest until somebody does; letters go on"
    return [
        f"Vhost {vhost}: nobody leads for {lasting(ms)}; {fate}" for vhost, ms in lasting_ms.items() if ms is not None
    ]


def course(moments: Sequence[int], since_ms: int, until_ms: int) -> list[int]:
    """How many fell into each of some equal stretches of time."""
    bars, wide = [0] * BARS, max(until_ms - since_ms, 1)
    for moment in moments:
        if since_ms <= moment <= until_ms:
            bars[min((moment - since_ms) * BARS // wide, BARS - 1)] += 1
    return bars


async def _recent(asked: Asked, router: RouterApi) -> Told:
    """The newest letters; asked once for all who look within some seconds by the same account."""

    async def newest() -> Told:
        answer = await router.get("/letters", asked.session.words[router.name], limit=NEWEST)
        return {"letters": [{name: letter[name] for name in _SHOWN} for letter in answer["letters"]]}

    return await asked.console.remembered.get(router.name, asked.session.account, "newest letters", KEPT_S, newest)


async def _tasks(router: RouterApi, token: str, vhosts: Sequence[str]) -> tuple[list[Told], list[str]]:
    """Those at work and the newest others; and of which vhosts they are not there, and why."""
    asked, rest = vhosts[:MAX_VHOSTS], vhosts[MAX_VHOSTS:]
    answers = await asyncio.gather(
        *(_tried(router.get("/tasks", token, vhost=vhost, inactive=OVER)) for vhost in asked)
    )
    whose: dict[str, list[str]] = {}
    for vhost, answer in zip(asked, answers, strict=True):
        if isinstance(answer, ApiError):
            whose.setdefault(answer.error, []).append(vhost)
    if rest:
        whose[f"only {MAX_VHOSTS} vhosts are asked here; the page of tasks shows each"] = [*rest]
    unasked = [f"Not shown of {_few(names)}: {why}" for why, names in whose.items()]
    return [task for answer in answers if isinstance(answer, dict) for task in answer["tasks"]], unasked


def _few(vhosts: Sequence[str]) -> str:
    """The vhosts by name, or by number where they are many."""
    if len(vhosts) > OVER:
        return f"{len(vhosts)} vhosts"
    return f"vhost{'s' if len(vhosts) > 1 else ''} {', '.join(vhosts)}"


async def _tried(work: Awaitable[Found]) -> Found | ApiError:
    """Its result, or why there is none: one part of a page never costs the others."""
    try:
        return await work
    except ApiError as error:
        return error


def _errors(parts: Sequence[object]) -> list[str]:
    return list(dict.fromkeys(part.error for part in parts if isinstance(part, ApiError)))
