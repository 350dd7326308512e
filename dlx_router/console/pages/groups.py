"""Groups: letters that died of the same thing, and what people decide about them."""

import time
from typing import Any, Final

from starlette.responses import Response

from dlx_router.console.asking import Asked
from dlx_router.console.command_lines import command
from dlx_router.console.forms import FormError
from dlx_router.console.pages.overview import BARS, RESTING, course, missing
from dlx_router.console.rendering import quoted
from dlx_router.console.sorting import Order, order_of

PAGE: Final = 50
MOST: Final = 500
SORTS: Final = ("last", "first", "deaths", "lying")  # the most of it first
LETTERS: Final = 200
SHOWN: Final = 20
COLUMNS: Final = [
    "id", "vhost", "failed_queue", "reason", "error_type", "message", "frame", "deaths", "lying", "first_ms",
    "last_ms", "state", "note",
]  # fmt: skip
STATES: Final = ("open", "ignored", "resolved")
_HOUR_MS: Final = 3_600_000


async def groups(asked: Asked) -> Response:
    """All of them, those that had a death last first."""
    wanted = {name: asked.query(name) for name in ("vhost", "queue", "state")}
    at = asked.query("offset", most=7)
    offset = int(at) if at.isascii() and at.isdigit() else 0
    order = order_of(asked.query("sort"), SORTS, "-last")
    limit = MOST if asked.query("format") else PAGE
    how = {} if order.name == "last" else {"sort": order.name}  # as routers of before have it
    answer = await asked.get("/groups", **wanted, **how, limit=limit, offset=offset)
    listed = asked.listing("groups", COLUMNS, answer["groups"])
    older = None if answer["next"] is None else asked.again(offset=answer["next"])
    command_line = command("groups", **{name: value for name, value in wanted.items() if name != "vhost"})
    return listed or asked.page(
        "groups.html",
        groups=answer["groups"],
        wanted=wanted,
        older=older,
        offset=offset,
        command=command_line,
        order=Order(order.name, falls=True),
        missing=missing(answer),
    )


async def group(asked: Asked) -> Response:
    """One group: its error, its course, its letters, and what can be done."""
    name = asked.request.path_params["group_id"]
    detail = await asked.get(f"/groups/{_named(name)}")
    letters = (await asked.get("/letters", group=name, limit=LETTERS))["letters"]
    span = [min((letter["last_ms"] for letter in letters), default=0), max([detail["last_ms"], 1])]
    return asked.page(
        "group.html",
        group=detail,
        letters=letters[:SHOWN],
        known=len(letters),
        bars=course([letter["last_ms"] for letter in letters], *span) if letters else [0] * BARS,
        span=span,
        places=places(letters),
        commands={state: command("groups", verb, operand=detail["id"]) for state, verb in _VERBS.items()},
    )


_VERBS: Final = {"ignored": "ignore", "resolved": "resolve", "open": "open"}


async def change_group(asked: Asked) -> Response:
    """Its state or its note."""
    name, form = asked.request.path_params["group_id"], asked.form
    body: dict[str, Any] = {}
    state, hours = form.text("state"), form.number("hours")
    if state:
        if state not in STATES:
            raise FormError("state: open, ignored or resolved")
        body["state"] = state
    if state == "ignored" and hours:
        body["until_ms"] = int(time.time() * 1000 + hours * _HOUR_MS)
    if "note" in form:
        body["note"] = form.text("note")[:2000]
    await asked.change("PATCH", f"/groups/{_named(name)}", body)
    return asked.go(asked.path("/groups", name))


def places(letters: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The queues in which these letters rest, the fullest first: from there they can be sent back."""
    counts: dict[tuple[str, str], int] = {}
    for letter in letters:
        target = letter.get("target")
        if letter["state"] in RESTING and target is not None and not target["exchange"]:
            key = (letter["vhost"], target["routing_key"])
            counts[key] = counts.get(key, 0) + 1
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    return [{"vhost": vhost, "queue": queue, "n": n} for (vhost, queue), n in ordered]


def _named(name: str) -> str:
    return quoted(name[:64])
