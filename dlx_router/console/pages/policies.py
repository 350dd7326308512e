"""What is in force, what of it holds for a queue, and who did what."""

from operator import itemgetter
from typing import Any, Final

from starlette.responses import Response

from dlx_router.console.asking import Asked
from dlx_router.console.command_lines import command
from dlx_router.console.pages.overview import missing
from dlx_router.console.rendering import when
from dlx_router.console.router_api import ApiError
from dlx_router.console.sorting import arranged, order_of
from dlx_router.core.audit_details import audit_details
from dlx_router.core.printable import plain

REASONS: Final = ("rejected", "expired", "maxlen", "delivery_limit", "application")
COLUMNS: Final = ["name", "vhost", "selects", "priority", "file", "keys"]
KEYS: Final = ["key", "value", "set_by"]
AUDITS: Final = ["ts_ms", "actor", "action", "vhost", "details", "signature", "event_id"]
POLICIES: Final = {
    "name": itemgetter("name"), "priority": itemgetter("priority"), "file": itemgetter("file"),
}  # fmt: skip
_FEW, _MANY = 100, 500
_REFUSALS: Final = frozenset({404, 422})


async def policies(asked: Asked) -> Response:
    """The policies in force, as the router has them now."""
    answer = await asked.get("/policies")
    order = order_of(asked.query("sort"), POLICIES, "")
    answer["policies"] = arranged(answer["policies"], POLICIES, order) if order.name else answer["policies"]
    listed = asked.listing("policies", COLUMNS, answer["policies"])
    return listed or asked.page("policies.html", found=answer, order=order, command=command("policy", "lint"))


async def explain(asked: Asked) -> Response:
    """Every key for a queue, and the line that set it."""
    wanted = {name: asked.query(name) for name in ("queue", "vhost", "reason")}
    vhosts = await asked.vhosts()
    wanted["vhost"] = wanted["vhost"] or next(iter(vhosts), "/")
    explanation: dict[str, Any] | None = None
    problem = ""
    if wanted["queue"]:
        try:
            explanation = await asked.get("/explain", **wanted)
            explanation["keys"].sort(key=lambda row: row["set_by"] == "default")  # what somebody wrote comes first
        except ApiError as error:
            if error.status not in _REFUSALS:
                raise
            problem = "; ".join((error.error, *error.problems))
    listed = asked.listing("explain", KEYS, explanation["keys"] if explanation else [])
    command_line = command(
        "policy",
        "explain",
        operand=wanted["queue"] or "QUEUE",
        vhost=wanted["vhost"] if wanted["vhost"] != "/" else None,
        reason=wanted["reason"],
    )
    return listed or asked.page(
        "explain.html", wanted=wanted, found=explanation, said=problem, reasons=REASONS, command=command_line
    )


async def audit(asked: Asked) -> Response:
    """Who did what, the newest first."""
    limit, cursor = _MANY if asked.query("format") else _FEW, asked.query("cursor")
    answer = await asked.get("/audits", limit=limit, cursor=cursor)
    listed = asked.listing("audit", AUDITS, answer["audits"])
    older = None if answer.get("next") is None else asked.again(cursor=answer["next"])
    return listed or asked.page(
        "audit.html",
        audits=[{**entry, "what": _what(entry)} for entry in answer["audits"]],
        older=older,
        is_first=not cursor,
        missing=missing(answer),
        command=command("audits"),
    )


def _what(entry: dict[str, Any]) -> dict[str, str]:
    return {
        name.removesuffix("_ms"): when(value) if name.endswith("_ms") and isinstance(value, int) else plain(value)
        for name, value in audit_details(entry).items()
    }
