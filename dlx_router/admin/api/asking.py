"""Asking the index, off the event loop, and saying clearly why there is no answer."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from dlx_router.admin.api.answers import refuse
from dlx_router.admin.api.context import Context
from dlx_router.config.api_access.tokens import Caller
from dlx_router.core.recovered import longest_wait_ms, window_ms
from dlx_router.index.queries import Sees
from dlx_router.index.reader import IndexAway, Reader, TooLong
from dlx_router.index.shown import outcome
from dlx_router.telemetry.wall_clock import wall_ms

T = TypeVar("T")
AT_ONCE = 4


def sees_of(context: Context, who: Caller) -> Sees:
    """What this caller may see of the vhosts that this router serves."""
    return lambda vhost, queue: vhost in context.attendants and who.may_see(vhost, queue)


def as_of(context: Context, who: Caller) -> dict[str, int | None]:
    """Until when the index has the journal of each vhost, in ms; None: it does not read it now."""
    now_ms = wall_ms()
    return {vhost: (context.index and context.index.as_of_ms(vhost, now_ms)) or None for vhost in context.visible(who)}


async def asked(context: Context, question: Callable[[Reader], T]) -> T:
    """The index's answer; 503 where there is none, 422 where the question is too large."""
    index = context.index
    if index is None:
        raise refuse(503, "there is no index: set DLX_ROUTER_INDEX_PATH to a file, and leave JOURNAL on")
    gate = context.extras.setdefault("index_gate", asyncio.Semaphore(AT_ONCE))
    async with gate:
        try:
            return await asyncio.to_thread(question, index.reader)
        except TooLong as error:
            raise refuse(422, str(error)) from None
        except IndexAway as error:
            index.verify()
            raise refuse(503, str(error), retry_after_s=2) from None


def judge(context: Context, letters: Iterable[dict[str, Any]]) -> None:
    """Say of each letter of the index what became of it, by the policies in force and as far as the index has read."""
    now_ms = wall_ms()
    for letter in letters:
        vhost = letter["vhost"]
        attendant = context.attendants.get(vhost)
        policy = None if attendant is None else attendant.policy_for(letter["failed_queue"], letter["reason"])
        as_of_ms = 0 if context.index is None else context.index.as_of_ms(vhost, now_ms)
        letter["outcome"] = outcome(letter, as_of_ms=as_of_ms, window_ms=window_ms(longest_wait_ms(policy)))
        del letter["newest"]
