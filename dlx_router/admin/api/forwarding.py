"""Around the API: what another router leads is asked there, so that any replica may be asked.

A request goes to this router's own paths first. Where they say that another one leads (`answers.not_led`), before
anything was changed, it is handed on, once: what was handed to us is answered here or given back. Lists and searches
over several vhosts are asked of each router that leads one, and put together (merging.py).

What was not sent is tried again for a moment, a takeover being over in some seconds. A change that may have been done
is never sent twice.
"""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, Final

from starlette.datastructures import QueryParams
from starlette.types import ASGIApp, Receive, Scope, Send

from dlx_router.admin.api import merging
from dlx_router.admin.api.answers import ELSEWHERE, PLAIN, NotLed, refused
from dlx_router.admin.api.asgi import (
    CALLER,
    WAITING,
    Gone,
    Taken,
    replayed,
    request_of,
    scope_of,
    send_answer,
    unless_gone,
)
from dlx_router.admin.api.envelope import Answered, Request, TooLarge
from dlx_router.admin.api.leaders import Doubtful, Leaders, Unsent
from dlx_router.admin.api.merging import Merge, Part
from dlx_router.config.api_access.tokens import Caller
from dlx_router.core.statemessage import Claim

Asking = tuple[str, list[str], Callable[[Request], Awaitable[Answered]]]  # a router's id, its vhosts, and how
WAIT_S: Final = 4.0  # for somebody who leads; then the answer says for how long nobody did
PAUSE_S: Final = 0.2
TOGETHER_S: Final = 7.0
_UNKNOWN: Final = 404
LATER_S: Final = 10.0  # beyond what a request is to wait, here and there
_LETTER: Final = re.compile(r"/api/v1/letters/[^/]+")
_GROUP: Final = re.compile(r"/api/v1/groups/[^/]+")
_COMMENTS: Final = re.compile(r"/api/v1/letters/[^/]+/comments")


class Forwarding:
    """An ASGI app around another."""

    def __init__(self, app: ASGIApp, leaders: Leaders, vhosts: Callable[[Caller], Iterable[str]]) -> None:
        """`vhosts(caller)`: those that are served and may be seen."""
        self._app, self._leaders, self._vhosts = app, leaders, vhosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        who: Caller = scope[CALLER]
        if not self._leaders.keys or all(map(self._leaders.leads, self._vhosts(who))):
            await self._app(scope, receive, send)
            return
        body: bytes = (await receive())["body"]  # whole: the gate has read it
        request = request_of(scope, who, body)
        try:
            answered = await self._answer(scope, request, receive)
        except TooLarge:
            answered = _refusal(414, "the address is too long to be handed to the router that leads")
        except Gone:
            return
        await send_answer(answered, send)

    async def handed(self, scope: Scope, request: Request, receive: Receive) -> Answered:
        """What this router says to a request that another replica handed to it. It is not handed on again."""
        return await self._here(scope_of(scope, request), request.body, receive)

    async def _answer(self, scope: Scope, request: Request, receive: Receive) -> Answered:
        merge = _merge(scope["method"], scope["path"], request.who)
        vhosts = [] if merge is None else self._wanted(request)
        if merge is not None and not all(map(self._leaders.leads, vhosts)):
            return await self._of_all(scope, request, merge, vhosts, receive)
        return await self._of_one(scope, request, receive)

    # -- one router ---------------------------------------------------------------------------------------------

    async def _of_one(self, scope: Scope, request: Request, receive: Receive) -> Answered:
        """Here, or where the vhost is led that the request is about."""
        ends, why = time.monotonic() + WAIT_S, ""
        while True:
            here = {**scope}
            answered = await self._here(here, request.body, receive)
            elsewhere: NotLed | None = here.get(ELSEWHERE)
            if elsewhere is None or self._leaders.is_hopeless(elsewhere.vhost):
                return answered
            claim = self._leaders.of(elsewhere.vhost)
            if claim is None:
                why = self._leaders.why(elsewhere.vhost)
            else:
                try:
                    return await self._there(scope, request, claim, elsewhere, receive)
                except Unsent as error:
                    why = str(error)
                except Doubtful as error:
                    if request.method != "GET":
                        return _doubtful(error)
                    why = str(error)
            if time.monotonic() >= ends:
                return _nobody(why)
            await asyncio.sleep(PAUSE_S)

    async def _there(
        self, scope: Scope, request: Request, claim: Claim, elsewhere: NotLed, receive: Receive
    ) -> Answered:
        """What the leader says. What may take long is asked for as long as somebody waits here: Gone."""
        takes = elsewhere.takes
        asking = self._leaders.ask(elsewhere.vhost, claim, request, takes)
        if takes is PLAIN:
            return await asking
        until_s = asyncio.get_running_loop().time() + takes.waits_s + LATER_S
        with scope[WAITING].until(until_s):
            return await unless_gone(receive, asking)

    async def _here(self, scope: Scope, body: bytes, receive: Receive) -> Answered:
        """What our own paths say; `scope` then tells whether another router leads."""
        taken = Taken()
        await self._app(scope, replayed(body, receive), taken)
        return replace(taken.answered(), is_elsewhere=scope.get(ELSEWHERE) is not None)

    # -- several ------------------------------------------------------------------------------------------------

    def _wanted(self, request: Request) -> list[str]:
        """The vhosts that a list is about: the one that is named, or all that may be seen."""
        named = QueryParams(request.target.partition("?")[2]).get("vhost")
        visible = [*self._vhosts(request.who)]
        return visible if named is None else [vhost for vhost in visible if vhost == named]

    async def _of_all(
        self, scope: Scope, request: Request, merge: Merge, vhosts: list[str], receive: Receive
    ) -> Answered:
        """What each router says that leads one of them, put together. Where nobody leads one, the answer names it.

        What could not be had is asked for again for a moment, of whoever leads by then: this router, say.
        """
        if request.method != "GET":
            return await self._changed(scope, request, vhosts, receive)
        ends = time.monotonic() + WAIT_S
        while True:
            asks, missing = self._asks(scope, vhosts, receive)
            is_settled = all(map(self._leaders.is_hopeless, missing))
            answered, is_whole = await _together(merge, request, asks, missing)
            if (is_settled and is_whole) or time.monotonic() >= ends:
                return answered
            await asyncio.sleep(PAUSE_S)

    async def _changed(self, scope: Scope, request: Request, vhosts: list[str], receive: Receive) -> Answered:
        """What the router says that knows what is to be changed. Whoever did it, or may have, is never asked again.

        Where nobody knows it and a vhost has no leader, it may be known there.
        """
        ends = time.monotonic() + WAIT_S
        while True:
            asks, missing = self._asks(scope, vhosts, receive)
            of_letter = len(asks) > 1 and _COMMENTS.fullmatch(scope["path"])
            answered, is_whole = await (_of_one_copy if of_letter else _first)(request, asks)
            if is_whole and answered.status != _UNKNOWN:
                return answered
            is_settled = is_whole and all(map(self._leaders.is_hopeless, missing))
            if is_settled or time.monotonic() >= ends:
                return _nobody("; ".join(missing.values())) if missing else answered
            await asyncio.sleep(PAUSE_S)

    def _asks(self, scope: Scope, vhosts: list[str], receive: Receive) -> tuple[list[Asking], dict[str, str]]:
        """Who is to be asked, each with the vhosts that it leads; and vhosts that nobody leads, with the reason."""
        here = [vhost for vhost in vhosts if self._leaders.leads(vhost)]
        own = partial(self._own, scope, receive)
        asks: list[Asking] = [(self._leaders.router_id, here, own)] if here else []
        others: dict[Claim, list[str]] = {}
        missing: dict[str, str] = {}
        for vhost in vhosts:
            if vhost in here:
                continue
            if (claim := self._leaders.of(vhost)) is None:
                missing[vhost] = self._leaders.why(vhost)
            else:
                others.setdefault(claim, []).append(vhost)
        asks += [(claim.router_id, its, partial(self._leaders.ask, its[0], claim)) for claim, its in others.items()]
        return asks, missing

    async def _own(self, scope: Scope, receive: Receive, request: Request) -> Answered:
        answered = await self._here(scope_of(scope, request), request.body, receive)
        if answered.is_elsewhere:
            raise Unsent("this router does not lead any more")
        return answered


async def _together(
    merge: Merge, request: Request, asks: list[Asking], missing: dict[str, str]
) -> tuple[Answered, bool]:
    """The answer, and whether it is all that can be had: else it can be asked for again."""
    if not asks:
        return _nobody("; ".join(missing.values())), True
    if len(asks) == 1 and not missing:
        return await _first(request, asks)
    try:
        wanted = merge.split(request.target, [router for router, _, _ in asks])
    except merging.Unmergeable as error:
        return _refusal(409, str(error)), True
    answers = await asyncio.gather(*(_tried(ask, replace(request, target=wanted[router])) for router, _, ask in asks))
    parts, lacks = [], {**missing}
    for (router, vhosts, _), answer in zip(asks, answers, strict=True):
        if isinstance(answer, str):
            lacks |= dict.fromkeys(vhosts, answer)
        else:
            parts.append(Part(router, answer))
    if not parts:
        return _nobody("; ".join(dict.fromkeys(lacks.values()))), False
    return merge.join(request.target, parts, lacks), lacks == missing


async def _first(request: Request, asks: list[Asking]) -> tuple[Answered, bool]:
    """What only one of them knows: the first that knows it answers."""
    answered, is_whole = _refusal(404, "no router that leads knows it"), True
    for _, _, ask in asks:
        try:
            reply = await ask(request)
        except Unsent as error:
            answered, is_whole = _nobody(str(error)), False
            continue
        except Doubtful as error:
            if request.method != "GET":
                return _doubtful(error), True
            answered, is_whole = _nobody(str(error)), False
            continue
        if reply.status != _UNKNOWN:
            return reply, True
        answered = reply if is_whole else answered
    return answered, is_whole


async def _of_one_copy(request: Request, asks: list[Asking]) -> tuple[Answered, bool]:
    """As `_first`, of a letter: where several of them know a copy of it, whoever asks has to say which is meant."""
    path, _, query = request.target.partition("?")
    letter = replace(request, method="GET", target=f"{path.removesuffix('/comments')}?{query}", kind="", body=b"")
    knowing: list[tuple[Asking, Answered]] = []
    for asking in asks:
        answer = await _tried(asking[2], letter)
        if isinstance(answer, str):
            return _nobody(answer), False
        if answer.status not in {merging.OK, _UNKNOWN}:
            return answer, True
        knowing += [(asking, answer)] if answer.status == merging.OK else []
    if len(knowing) > 1:
        return _refusal(409, merging.which_copy(merging.copies_in([answer for _, answer in knowing]))), True
    return await _first(request, [asking for asking, _ in knowing] or asks)


async def _tried(ask: Callable[[Request], Awaitable[Answered]], request: Request) -> Answered | str:
    try:
        async with asyncio.timeout(TOGETHER_S):
            return await ask(request)
    except (Unsent, Doubtful) as error:
        return str(error)
    except TimeoutError:
        return f"who leads it did not answer within {TOGETHER_S:g} s"


def _merge(method: str, path: str, who: Caller) -> Merge | None:
    """How answers of several routers become one; None: one router knows all of it."""
    lists = merging.LISTS if who.match is None else merging.LISTS_OF_A_SCOPE
    if method == "GET" and (merge := lists.get(path)) is not None:
        return merge
    if method == "GET" and _LETTER.fullmatch(path):
        return merging.COPIES
    if method in {"GET", "PATCH"} and _GROUP.fullmatch(path):
        return merging.ANY
    if method == "POST" and _COMMENTS.fullmatch(path):
        return merging.ANY
    return None


def _refusal(status: int, error: str, **how: Any) -> Answered:  # noqa: ANN401 - as `refused` has them
    answer = refused(status, error, **how)
    return Answered(status, "application/json", bytes(answer.body), answer.headers.get("retry-after", ""))


def _nobody(why: str) -> Answered:
    return _refusal(503, why, retry_after_s=2)


def _doubtful(error: Doubtful) -> Answered:
    """No Retry-After: nobody is to send it again without looking."""
    return _refusal(503, f"{error}; it may have been done, so look before you ask again")
