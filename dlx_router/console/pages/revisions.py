"""Two revisions of the policies beside each other: what changed in the words of policies, and what each decided."""

import shlex
from collections.abc import Iterator
from typing import Any, Final

from starlette.responses import Response

from dlx_router.console.asking import Asked
from dlx_router.console.command_lines import command
from dlx_router.console.router_api import ApiError

NOW: Final = "in-force"
COLUMNS: Final = ["of", "name", "queue_type", "change", "key", "was", "now", "was_by", "now_by"]
_REFUSALS: Final = frozenset({404, 409, 422})


async def diff(asked: Asked) -> Response:
    """What the address names two revisions for; without any, which there are."""
    wanted = {name: asked.query(name) for name in ("a", "b", "vhost")}
    wanted["vhost"] = wanted["vhost"] or next(iter(await asked.vhosts()), "/")
    known = (await asked.get("/policies/revisions", vhost=wanted["vhost"]))["revisions"]
    difference, reason = await _compared(asked, wanted) if wanted["a"] else (None, "")
    listed = asked.listing("policy-diff", COLUMNS, [*_rows(difference)] if difference else [])
    return listed or asked.page(
        "diff.html",
        wanted={**wanted, "a": wanted["a"] or _before(known), "b": wanted["b"] or NOW},
        known=known,
        found=difference,
        said=reason,
        decided=_decided(difference) if difference else [],
        command=_command(wanted),
    )


def _before(known: list[dict[str, Any]]) -> str:
    """The newest that is not in force: what one compares with first."""
    return next((str(revision["revision"]) for revision in known if not revision["is_in_force"]), "")


async def _compared(asked: Asked, wanted: dict[str, str]) -> tuple[dict[str, Any] | None, str]:
    """The difference, or why there is none."""
    try:
        return await asked.get("/policies/diff", **wanted), ""
    except ApiError as error:
        if error.status not in _REFUSALS:
            raise
        return None, "; ".join((error.error, *error.problems))


def _decided(difference: dict[str, Any]) -> list[tuple[str, int, int]]:
    """What became of letters under each of the two: event, and how often."""
    was, now = (difference[side]["decided"] for side in ("was", "now"))
    return [(kind, was.get(kind, 0), now.get(kind, 0)) for kind in dict.fromkeys([*was, *now])]


def _rows(difference: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """One row for each key, for a sheet."""
    for policy in difference["policies"]:
        yield from (
            {"of": "policy", "name": policy["name"], "change": policy["change"], **key} for key in policy["keys"]
        )
    for queue in difference["queues"]:
        row = {"of": "queue", "name": queue["queue"], "queue_type": queue["queue_type"]}
        yield from ({**row, **key} for key in queue["keys"])
    yield from ({"of": "source", **key} for key in difference["sources"] or ())


def _command(wanted: dict[str, str]) -> str:
    vhost = wanted["vhost"] if wanted["vhost"] != "/" else None
    command_line = command("policy", "diff", vhost=vhost, operand=wanted["a"] or "A")
    return f"{command_line} {shlex.quote(wanted['b'] or NOW)}"
