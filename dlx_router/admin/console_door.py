"""The door to the console: its process is started by the first page that somebody asks for, and never before.

Here a page is only carried to and fro; it is made beside the letters. The socket that the process serves is ours, so a
request that comes while it starts, or starts again, waits in its queue.
"""

import asyncio
import contextlib
import json
import re
import socket
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Set as AbstractSet
from ipaddress import ip_address
from typing import Any, Final

import h11

from dlx_router.admin.connections import listener
from dlx_router.admin.held_bodies import BodyRefused, HeldBodies
from dlx_router.admin.own_process import ask
from dlx_router.admin.server import Message, Receive, Send
from dlx_router.config.api_access.passes import Passes
from dlx_router.config.api_access.single_sign_on import SingleSignOn
from dlx_router.config.api_access.trusted_proxies import TrustedProxies
from dlx_router.config.environment.settings import Settings
from dlx_router.telemetry.logs import Once, log
from dlx_router.telemetry.wall_clock import wall_ms

PATHS: Final = re.compile(r"/|/(login|logout|theme|groups|letters|redrive|tasks|policies|explain|audit|static)(/.*)?")
MAX_BODY_BYTES: Final = 1_500_000
MAX_BODIES_BYTES: Final = 24_000_000  # of all together
AT_ONCE: Final = 16
# A connection of the port ends after 10, and so does what the console asks of the router: to wait longer gains nothing.
TIMEOUT_S: Final = 9.0
_BUSY: Final = 503
END_S: Final = 2.0
CLIENT: Final = "x-dlx-router-client"
PERSON: Final = "x-dlx-router-person"
_SAFE: Final = frozenset({"GET", "HEAD"})  # RFC 9110: they change nothing
_ONCE: Final = "console"
_OURS: Final = frozenset({CLIENT.encode(), PERSON.encode()})  # which nobody else may say
_OF_ONE_LEG: Final = frozenset(
    {b"connection", b"keep-alive", b"transfer-encoding", b"te", b"upgrade", b"expect", b"trailer"}
)
_OF_THE_PORT: Final = frozenset({b"date", b"x-content-type-options"})  # which it adds to every answer


class ConsoleDoor:
    """An ASGI app. `port`: of this router's HTTP, once it is known."""

    def __init__(self, settings: Settings, passes: Passes) -> None:
        self.port = settings.http_port
        self._settings, self._passes = settings, passes
        self._sso = SingleSignOn(
            settings.sso_proxies, settings.sso_roles, settings.sso_headers, settings.sso_group_separator
        )
        self._proxies = TrustedProxies(settings.http_trusted_proxies, settings.sso_proxies)
        self._process: Process | None = None
        self._socket: socket.socket | None = None
        self._starting = asyncio.Lock()
        self._bodies = HeldBodies(MAX_BODY_BYTES, MAX_BODIES_BYTES)
        self._inside = 0
        self._once = Once()

    def serves(self, path: str) -> bool:
        """Whether this path is a page's."""
        return PATHS.fullmatch(path) is not None

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        try:
            async with self._bodies.whole(receive) as body:
                if self._inside >= AT_ONCE:
                    raise BodyRefused(503, f"{AT_ONCE} pages are being made; ask again")  # noqa: TRY301 - told as the others are
                self._inside += 1
                try:
                    await self._carry(scope, body, send)
                finally:
                    self._inside -= 1
        except BodyRefused as error:
            if error.status:
                await _send_error(send, error.status, str(error), is_again=error.status == _BUSY)

    async def stop(self) -> None:
        """The process has ended when this returns; safe to repeat."""
        process, self._process = self._process, None
        if process is not None:
            await _end(process)
        if self._socket is not None:
            self._socket.close()

    async def _carry(self, scope: Message, body: bytes, send: Send) -> None:
        peer = str((scope.get("client") or ("?",))[0])
        person = self._sso.person(peer, scope["headers"])
        if person is not None and person.role is None:
            await _send_error(send, 403, f"{person.name!r} is in no group of DLX_ROUTER_SSO_ROLES")
            return
        if all(name != b"host" for name, _ in scope["headers"]):  # of HTTP/1.0; to the process it would go by 1.1
            await _send_error(send, 400, "the request names no host; name it in a Host header")
            return
        try:
            listening = await self._reach()
        except OSError as error:
            self._warn(error)
            await _send_error(send, 503, "the console's process cannot be started; ask again", is_again=True)
            return
        headers = [(name, value) for name, value in scope["headers"] if name not in _OF_ONE_LEG]
        headers = [header for header in headers if header[0] not in _OURS | self._sso.headers]
        headers.append((CLIENT.encode(), self._proxies.client(peer, scope["headers"]).encode()))
        if person is not None and person.role is not None:
            headers.append((PERSON.encode(), self._passes.vouch(person.name, person.role, wall_ms()).encode()))
        await self._pass_on(listening, scope, headers, body, send)

    async def _pass_on(
        self, listening: int, scope: Message, headers: list[tuple[bytes, bytes]], body: bytes, send: Send
    ) -> None:
        """The process's answer; where there is none, that, and whether it may have done what it was asked."""
        try:
            target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
            answer = ask(listening, scope["method"].encode(), target, headers, body, within_s=TIMEOUT_S)
            async with contextlib.aclosing(answer) as parts:
                async for part in parts:
                    await send(_without(part, _OF_ONE_LEG | _OF_THE_PORT))
        except (h11.ProtocolError, OSError) as error:  # OSError: TimeoutError, too
            self._warn(error)
            is_again = scope["method"] in _SAFE
            what_now = "ask again" if is_again else "it may have been done, so look before you do it again"
            await _send_error(send, 503, f"the console's process does not answer; {what_now}", is_again=is_again)
        else:
            self._once.healed(_ONCE, "console.answers")

    def _warn(self, error: Exception) -> None:
        """Once, however many pages are asked for meanwhile."""
        why = str(error) or type(error).__name__
        self._once.warn(_ONCE, "console.failed", error=why, fate="letters go on; pages are asked for again")

    async def _reach(self) -> int:
        """The port that the process serves, or will in a moment."""
        async with self._starting:
            if self._socket is None:
                self._socket = listener("127.0.0.1", 0)
            if self._process is None or self._process.returncode is not None:
                self._process = await self._started(self._socket.fileno())
            port: int = self._socket.getsockname()[1]
            return port

    async def _started(self, number: int) -> Process:
        of = self._settings
        setup: dict[str, Any] = {
            "socket": number,
            "router": f"http://{_near(of.http_host)}:{self.port}",
            "host": of.http_host,
            "names": of.http_allowed_hosts or "",
            "secure": of.console == "https",
            "sealed": self._passes.has_sessions,
            "log": [of.log_format, of.log_level],
        }
        argv = (sys.executable, "-m", "dlx_router.console", json.dumps(setup))
        log.info("console.started", fate="it was asked for; letters go on")
        return await asyncio.create_subprocess_exec(*argv, stdin=PIPE, pass_fds=(number,))


def _without(message: Message, names: AbstractSet[bytes]) -> Message:
    if "headers" in message:
        message["headers"] = [header for header in message["headers"] if header[0] not in names]
    return message


def _near(host: str) -> str:
    """Where this very machine reaches what listens there."""
    try:
        address = ip_address(host)
    except ValueError:
        return host or "127.0.0.1"
    if address.is_unspecified:
        return "127.0.0.1" if address.version == 4 else "[::1]"  # noqa: PLR2004 - IPv4
    return f"[{address}]" if address.version == 6 else str(address)  # noqa: PLR2004 - IPv6


async def _send_error(send: Send, status: int, why: str, *, is_again: bool = False) -> None:
    """`is_again`: nothing was done, so whoever asked may do so again by itself."""
    body = json.dumps({"error": why}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers += [(b"cache-control", b"no-store"), *([(b"retry-after", b"2")] if is_again else ())]
    with contextlib.suppress(RuntimeError):  # the answer had begun
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


async def _end(process: Process) -> None:
    """It ends with its stdin; if it does not, it is killed."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        async with asyncio.timeout(END_S):
            await process.wait()
    except (TimeoutError, asyncio.CancelledError):
        with contextlib.suppress(ProcessLookupError):
            process.kill()
