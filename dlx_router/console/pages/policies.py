"""What is in force, what of it holds for a queue, and who did what."""

from typing import Any, Final

from starlette.responses import Response

from dlx_router.console.asking import Asked
from dlx_router.console.command_lines import command
from dlx_router.console.router_api import ApiError

REASONS: Final = ("rejected", "expired", "maxlen", "delivery_limit", "application")
COLUMNS: Final = ["name", "vhost", "selects", "priority", "file", "keys"]
KEYS: Final = ["key", "value", "set_by"]
AUDITS: Final = ["ts_ms", "actor", "action", "vhost", "details", "signature", "event_id"]
_FEW, _MANY = 100, 500
_SAID: Final = frozenset({404, 422})


async def policies(asked: Asked) -> Response:
    """The policies in force, as the router has them now."""
    found = await asked.get("/policies")
    listed = asked.listing("policies", COLUMNS, found["policies"])
    return listed or asked.page("policies.html", found=found, command=command("policy", "lint"))


async def explain(asked: Asked) -> Response:
    """Every key for a queue, and the line that set it."""
    wanted = {name: asked.query(name) for name in ("queue", "vhost", "reason")}
    vhosts = sorted((await asked.get("/status"))["vhosts"])
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
    is_all = bool(asked.query("all")) or bool(asked.query("format"))
    found = (await asked.get("/audits", limit=_MANY if is_all else _FEW))["audits"]
    listed = asked.listing("audit", AUDITS, found)
    return listed or asked.page("audit.html", audits=found, more=not is_all and len(found) == _FEW)
