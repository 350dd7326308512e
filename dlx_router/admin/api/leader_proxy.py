"""Around the API: a request about tasks, leases or a queue goes to the router that leads its vhost.

The router's own paths are called first. Where they raise `answers.NotLed`, before anything was changed, the request is
sent to the leader, once, signed (envelope.py). Its address comes with its claim in the state queue, from a router that
has the shared key, and its answer is believed only with that key. No token and no header of the caller is sent.

What was not sent is tried again for a moment, because a takeover takes seconds. A change that the leader may have made
is never sent twice.
"""

import asyncio
import secrets
import time
from dataclasses import replace
from typing import Any, Final

import httpx
from starlette.types import ASGIApp, Receive, Scope, Send

from dlx_router.admin.api import envelope
from dlx_router.admin.api.answers import ELSEWHERE, PLAIN, NotLed, Takes, refused
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
from dlx_router.admin.api.context import Context
from dlx_router.admin.api.envelope import Answered, Request, TooLarge, Unsealed
from dlx_router.config.api_access.allowed_hosts import is_loopback
from dlx_router.config.api_access.replica_address import checked
from dlx_router.core.statemessage import Claim
from dlx_router.service.vhost.runner import VhostRunner
from dlx_router.telemetry.logs import Once
from dlx_router.telemetry.wall_clock import wall_ms

WAIT_S: Final = 4.0  # for a leader; then the answer says why there is none
PAUSE_S: Final = 0.2
CONNECT_S: Final = 1.0
ANSWER_S: Final = 8.0  # a connection of the port ends after 10
LATER_S: Final = 10.0  # beyond what a request is to wait, here and there
AT_ONCE: Final = 16
WAITING_AT_ONCE: Final = 200  # requests that may take long have connections of their own


class Unsent(Exception):
    """The leader does not have the request, so it can be sent again; says why."""


class Doubtful(Exception):
    """The request was sent, and whether it was carried out is not known; says why."""


class LeaderProxy:
    """An ASGI app around another. `transport`: how other replicas are reached, if not by their addresses."""

    def __init__(self, app: ASGIApp, context: Context, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._app, self._context, self._transport = app, context, transport
        self._http: dict[int, httpx.AsyncClient] = {}  # by how many requests it sends at once
        self._once = Once()

    @property
    def keys(self) -> set[bytes]:
        """What may have signed a request to us; none where replicas share no key."""
        return {runner.shared_key for runner in self._context.attendants.values() if runner.shared_key}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        runners = self._context.attendants.values()
        if not self.keys or all(runner.leadership.is_ours for runner in runners):
            await self._app(scope, receive, send)
            return
        body: bytes = (await receive())["body"]  # whole: the gate has read it
        try:
            answered = await self._answer(scope, request_of(scope, scope[CALLER], body), receive)
        except TooLarge:
            answered = _refusal(414, "the address is too long to be handed to the router that leads")
        except Gone:
            return
        await send_answer(answered, send)

    async def handed(self, scope: Scope, request: Request, receive: Receive) -> Answered:
        """Answer a request that another replica sent to us. It is not sent on."""
        return await self._local(scope_of(scope, request), request.body, receive)

    async def _answer(self, scope: Scope, request: Request, receive: Receive) -> Answered:
        """Answer here, or by the leader of the vhost that the request is about."""
        ends = time.monotonic() + WAIT_S
        while True:
            local = {**scope}
            answered = await self._local(local, request.body, receive)
            not_led: NotLed | None = local.get(ELSEWHERE)
            runner = None if not_led is None else self._context.attendants.get(not_led.vhost)
            if not_led is None or runner is None or self._is_hopeless(runner):
                return answered
            claim, why = runner.leadership.leader, runner.not_leading()
            if claim is not None:
                try:
                    return await self._of_leader(scope, request, not_led, claim, receive)
                except Unsent as error:
                    why = str(error)
                except Doubtful as error:
                    if request.method != "GET":  # no Retry-After: the caller has to look before it is sent again
                        return _refusal(503, f"{error}; it may have been done, so look before you ask again")
                    why = str(error)
            if time.monotonic() >= ends:
                return _refusal(503, why, retry_after_s=2)
            await asyncio.sleep(PAUSE_S)

    async def _local(self, scope: Scope, body: bytes, receive: Receive) -> Answered:
        """Answer by our own paths; `scope` then has NotLed, if another router leads."""
        taken = Taken()
        await self._app(scope, replayed(body, receive), taken)
        return replace(taken.answered(), is_elsewhere=scope.get(ELSEWHERE) is not None)

    async def _of_leader(
        self, scope: Scope, request: Request, not_led: NotLed, claim: Claim, receive: Receive
    ) -> Answered:
        """Answer by the leader. What may take long is waited for as long as the caller is there: Gone."""
        asking, takes = self._ask(not_led.vhost, claim, request, not_led.takes), not_led.takes
        if takes is PLAIN:
            return await asking
        with scope[WAITING].until(asyncio.get_running_loop().time() + takes.waits_s + LATER_S):
            return await unless_gone(receive, asking)

    def _is_hopeless(self, runner: VhostRunner) -> bool:
        """Whether no leader can be asked within moments: there is none, no shared key, or no connection."""
        return runner.topology is None or not runner.shared_key or runner.leadership.leaderless_s is not None

    async def _ask(self, vhost: str, claim: Claim, request: Request, takes: Takes) -> Answered:
        """Send the request to the leader. Raises Unsent, Doubtful, TooLarge."""
        runner, who = self._context.attendants.get(vhost), f"router {claim.router_id!r}"
        if runner is None:
            raise Unsent(f"vhost {vhost!r} is not served here any more")
        if not (key := runner.shared_key):  # without a key anybody could sign
            raise Unsent(f"vhost {vhost!r}: no key is shared any more")
        nonce = secrets.token_hex(16)
        headers = envelope.seal(key, request, to=claim.router_id, now_ms=wall_ms(), nonce=nonce)
        url = f"{self._address(vhost, claim)}{envelope.PATH}"
        status, answer_headers, body = await self._exchange(url, headers, request.body, takes)
        try:
            head, mac = answer_headers.get(envelope.HEAD, ""), answer_headers.get(envelope.MAC, "")
            answered = envelope.unseal_answer(key, head, mac, body, nonce=nonce)
        except Unsealed as error:
            self._once.warn(claim.url, "api.forward_refused", url=claim.url, status=status, error=str(error))
            why = f"{who} at {claim.url} does not answer as a router with the same key does (HTTP {status})"
            raise (Unsent if status in _NOT_TAKEN else Doubtful)(why) from None
        self._once.healed(claim.url, "api.forwarded", url=claim.url)
        if answered.is_elsewhere:
            raise Unsent(f"{who} does not lead vhost {vhost!r} any more")
        return answered

    def _address(self, vhost: str, claim: Claim) -> str:
        """Where the leader listens. Unsent: not where we reach it; a loopback address of another machine is ours."""
        leads = f"vhost {vhost!r} is led by router {claim.router_id!r}, which"
        if not claim.url:
            raise Unsent(f"{leads} does not say where it can be asked")
        try:
            url = checked(claim.url)
        except ValueError as error:
            raise Unsent(f"the leader's address: {error}") from None
        if is_loopback(httpx.URL(url).host) and _machine(claim.router_id) != _machine(self._context.router_id):
            where = "set DLX_ROUTER_HTTP_HOST, or DLX_ROUTER_ADVERTISED_URL, there"
            raise Unsent(f"{leads} listens on its own machine only; {where}")
        return url

    async def _exchange(
        self, url: str, headers: envelope.Headers, body: bytes, takes: Takes
    ) -> tuple[int, httpx.Headers, bytes]:
        how = {**headers, "content-type": "application/octet-stream", "accept-encoding": "identity"}
        within = httpx.Timeout(ANSWER_S, connect=CONNECT_S, read=ANSWER_S + takes.waits_s)
        http = self._client(AT_ONCE if takes is PLAIN else WAITING_AT_ONCE)
        try:
            async with http.stream("POST", url, content=body, headers=how, timeout=within) as answer:
                read = bytearray()
                async for piece in answer.aiter_raw():
                    read += piece
                    if len(read) > takes.most_bytes:
                        raise Doubtful(f"the leader's answer is over {takes.most_bytes} bytes; ask for fewer")
                return answer.status_code, answer.headers, bytes(read)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.InvalidURL) as error:
            raise Unsent(f"the leader at {url} cannot be reached: {str(error) or type(error).__name__}") from None
        except httpx.TransportError as error:
            raise Doubtful(f"the leader at {url} did not answer: {str(error) or type(error).__name__}") from None

    def _client(self, most: int) -> httpx.AsyncClient:
        if most not in self._http:
            self._http[most] = httpx.AsyncClient(
                transport=self._transport,
                trust_env=False,  # no proxy of the environment sees the requests
                follow_redirects=False,
                limits=httpx.Limits(max_connections=most, max_keepalive_connections=0),
            )
        return self._http[most]


# What our own gate answers to what it cannot verify. A 503 may be a proxy's, which has sent the request on.
_NOT_TAKEN: Final = frozenset({401, 403, 404, 405, 413})


def _machine(router_id: str) -> str:
    """A router's id is its machine's name and chance."""
    return router_id.rpartition("-")[0]


def _refusal(status: int, error: str, **how: Any) -> Answered:  # noqa: ANN401 - as `refused` has them
    answer = refused(status, error, **how)
    return Answered(status, "application/json", bytes(answer.body), answer.headers.get("retry-after", ""))
