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
_SAID: Final = frozenset({404, 422})


async def policies(asked: Asked) -> Response:
    """The policies in force, as the router has them now."""
    found = await asked.get("/policies")
    order = order_of(asked.query("sort"), POLICIES, "")
    found["policies"] = arranged(found["policies"], POLICIES, order) if order.name else found["policies"]
    listed = asked.listing("policies", COLUMNS, found["policies"])
    return listed or asked.page("policies.html", found=found, order=order, command=command("policy", "lint"))


async def explain(asked: Asked) -> Response:
    """Every key for a queue, and the line that set it."""
    wanted = {name: asked.query(name) for name in ("queue", "vhost", "reason")}
    vhosts = await asked.vhosts()
    wanted["vhost"] = wanted["vhost"] or next(iter(vhosts), "/")
    found: dict[str, Any] | None = None
    said = ""
    if wanted["queue"]:
        try:
            found = await asked.get("/explain", **wanted)
            found["keys"].sort(key=lambda one: one["set_by"] == "default")  # what somebody wrote comes first
        except ApiError as error:
            if error.status not in _SAID:
                raise
            said = "; ".join((error.error, *error.problems))
    listed = asked.listing("explain", KEYS, found["keys"] if found else [])
    told = command(
        "policy",
        "explain",
        operand=wanted["queue"] or "QUEUE",
        vhost=wanted["vhost"] if wanted["vhost"] != "/" else None,
        reason=wanted["reason"],
    )
    return listed or asked.page("explain.html", wanted=wanted, found=found, said=said, reasons=REASONS, command=told)


async def audit(asked: Asked) -> Response:
    """Who did what, the newest first."""
    limit, cursor = _MANY if asked.query("format") else _FEW, asked.query("cursor")
    found = await asked.get("/audits", limit=limit, cursor=cursor)
    listed = asked.listing("audit", AUDITS, found["audits"])
    older = None if found.get("next") is None else asked.again(cursor=found["next"])
    return listed or asked.page(
        "audit.html",
        audits=[{**one, "what": _what(one)} for one in found["audits"]],
        older=older,
        is_first=not cursor,
        missing=missing(found),
        command=command("audits"),
    )


def _what(one: dict[str, Any]) -> dict[str, str]:
    return {
        name.removesuffix("_ms"): when(value) if name.endswith("_ms") and isinstance(value, int) else plain(value)
        for name, value in audit_details(one).items()
    }
