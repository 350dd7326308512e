"""/policies: what is in force. /explain: what of it holds for a queue."""

import asyncio
from collections.abc import Iterable
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from starlette.responses import Response

from dlx_router.admin.api import models
from dlx_router.admin.api.answers import Answer, refuse
from dlx_router.admin.api.asking import asked, sees_of
from dlx_router.admin.api.context import Context, Given, Viewer
from dlx_router.config.api_access.tokens import Caller
from dlx_router.config.language.keys import REASONS
from dlx_router.config.language.value_text import definition_texts, explained, left_out_text
from dlx_router.core.policy import Policy

router = APIRouter(tags=["policies"])
_REASON: Final = rf"^({'|'.join(REASONS)}|application:.+)$"


@router.get("/policies", response_model=models.Policies)
async def policies(given: Given, who: Viewer) -> Response:
    """The policies in force, of the vhosts that may be seen.

    To a token for some queues only those behind the queues of its scope where letters failed: others name queues that
    it does not see.
    """
    attendant = next(iter(given.attendants.values()), None)
    if attendant is None:
        raise refuse(503, "no vhost is served yet", retry_after_s=2)
    shown = [
        _policy(policy) for policy in attendant.policies.policies if policy.vhost is None or who.may_see(policy.vhost)
    ]
    if who.match is not None:
        behind = await _behind(given, who)
        shown = [policy for policy in shown if (policy["vhost"], policy["name"]) in behind]
    return Answer({"revision": attendant.policies.revision, "policies": shown})


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
    policies, queue_type = attendant.policies, attendant.queue_type(queue)
    explanation = explained(policies, vhost=vhost, queue=queue, reason=reason, queue_type=queue_type)
    document: dict[str, Any] = {"vhost": vhost, "queue": queue, "revision": policies.revision}
    document |= {"policies": explanation.policies, "keys": [row._asdict() for row in explanation.keys]}
    return Answer(document | {"queue_type": queue_type, "left_out": [*map(left_out_text, explanation.left_out)]})


async def _behind(given: Context, who: Caller) -> set[tuple[str | None, str]]:
    """The policies by vhost and name that contribute to what holds for failed queues that the caller sees."""
    if given.index is None:
        raise refuse(
            403, f"token {who.name!r} sees some queues only, and without an index none are known; ask /explain of each"
        )
    sees = sees_of(given, who)
    rows = await asked(given, lambda reader: reader.failed_queues(sees))
    queues = [(row["vhost"], row["failed_queue"]) for row in rows]
    return await asyncio.to_thread(_contributing, given, queues)


def _contributing(given: Context, queues: Iterable[tuple[str, str]]) -> set[tuple[str | None, str]]:
    names: set[tuple[str | None, str]] = set()
    for vhost, queue in queues:
        if (attendant := given.attendants.get(vhost)) is None:
            continue  # it was left meanwhile
        chain = attendant.policies.chain(vhost=vhost, queue=queue, queue_type=attendant.queue_type(queue))
        names.update((policy.vhost, policy.name) for policy in chain)
    return names


def _policy(policy: Policy) -> dict[str, Any]:
    return {
        "name": policy.name,
        "vhost": policy.vhost,
        "selects": f"{policy.selector.kind}: {policy.selector.text}",
        "priority": policy.priority,
        "file": str(policy.source),
        "keys": definition_texts(policy),
    }
