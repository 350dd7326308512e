"""/policies: what is in force. /explain: what of it holds for a queue."""

from collections.abc import Iterable
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from starlette.responses import Response

from dlx_router.admin.api import models
from dlx_router.admin.api.answers import Answer, refuse
from dlx_router.admin.api.context import Given, Viewer
from dlx_router.config.keys import DEFINITION, REASONS
from dlx_router.core.policy import Effective, Policy, Rewrite, Selector
from dlx_router.core.template import Template

router = APIRouter(tags=["policies"])
_REASON: Final = rf"^({'|'.join(REASONS)}|application:.+)$"


@router.get("/policies", response_model=models.Policies)
async def policies(given: Given, who: Viewer) -> Response:
    """The policies in force, of the vhosts that may be seen."""
    found = next(iter(given.attendants.values()), None)
    if found is None:
        raise refuse(503, "no vhost is served yet", retry_after_s=2)
    shown = [_policy(one) for one in found.policies.policies if one.vhost is None or who.may_see(one.vhost)]
    return Answer({"revision": found.policies.revision, "policies": shown})


@router.get("/explain", response_model=models.Explanation)
async def explain(
    given: Given,
    who: Viewer,
    queue: Annotated[str, Query(min_length=1, max_length=255)],
    vhost: Annotated[str, Query(max_length=255)] = "/",
    reason: Annotated[str, Query(max_length=255, pattern=_REASON)] = REASONS[0],
) -> Response:
    """Every key in force for letters that fail in this queue, for this reason, and the line that set it."""
    attendant = given.attendant(vhost, who)
    if not who.may_see(vhost, queue):
        raise refuse(404, f"queue {queue!r} is not in the scope of token {who.name!r}")
    effective = attendant.policies.resolve(vhost=vhost, queue=queue, reason=reason, own=given.names.is_own(queue))
    revision = attendant.policies.revision
    told: dict[str, Any] = {"vhost": vhost, "queue": queue, "revision": revision, "policies": [], "keys": []}
    if effective is not None:
        told |= {"policies": list(effective.names), "keys": list(_keys(effective))}
    return Answer(told)


def _keys(effective: Effective) -> Iterable[dict[str, str]]:
    for key in DEFINITION.values():
        setting = effective.settings.get(key.name)
        by = "default" if setting is None else f"{setting.source} ({setting.source.policy})"
        value = key.says or _text(key.default) if setting is None else _text(setting.value)
        yield {"key": key.name, "value": value, "set_by": by}


def _policy(one: Policy) -> dict[str, Any]:
    return {
        "name": one.name,
        "vhost": one.vhost,
        "selects": f"{one.selector.kind}: {one.selector.text}",
        "priority": one.priority,
        "file": str(one.source),
        "keys": {name: _text(setting.value) for name, setting in one.definition.items()},
    }


def _text(value: Any) -> str:  # noqa: ANN401 - each key has a type of its own
    match value:
        case bool():
            return str(value).lower()
        case Template() | Selector():
            return value.text
        case Rewrite():
            return f"{value.match} → {value.replace}"
        case tuple() | list() | frozenset():
            return ", ".join(map(_text, value))
        case _:
            return "" if value is None else str(value)
