"""The console's process: it listens, answers until a signal, and ends."""

import asyncio
import socket
import sys
from collections.abc import Sequence
from functools import partial
from typing import Final, cast

import uvicorn
from starlette.types import ASGIApp

from dlx_router.admin import event_loop
from dlx_router.admin.connections import BACKLOG, Connections, OneRequest, listener
from dlx_router.config.api_access.allowed_hosts import Hosts, is_loopback
from dlx_router.config.api_access.trusted_proxies import TrustedProxies
from dlx_router.console.app import create_app
from dlx_router.console.router_api import RouterApi
from dlx_router.telemetry.logs import log

DRAIN_S: Final = 2
MAX_HEAD_BYTES: Final = 32 * 1024


class ConsoleError(Exception):
    """The console cannot be served so; says why, and what now."""


def serve(
    routers: Sequence[tuple[str, str]],
    host: str,
    port: int,
    *,
    names: str = "",
    secure: bool = False,
    proxies: str = "",
) -> None:
    """Answer at host and port until a signal. `routers`: name and URL. ConsoleError: it cannot listen there."""
    hosts = Hosts(host, names or None)
    known = [RouterApi(name, url) for name, url in routers]
    trusted = TrustedProxies(proxies)
    app = create_app(known, hosts, is_loopback=is_loopback(host), secure=secure, proxies=trusted)
    try:
        sock = listener(host, port)
    except OSError as error:
        raise ConsoleError(f"cannot serve at {host}:{port}: {error.strerror or error}; name another port") from None
    log.info("console.serves", url=f"http://{host}:{sock.getsockname()[1]}/", routers=[name for name, _ in routers])
    uvicorn.Server(_config(app)).run(sockets=[sock])


def embedded(sock: socket.socket, router: str, host: str, *, names: str = "", secure: bool, sealed: bool) -> None:
    """Answer on this socket for the router that listens at `host`, until stdin ends. It names the clients."""
    hosts, routers = Hosts(host, names or None), [RouterApi("router", router)]
    app = create_app(routers, hosts, is_loopback=is_loopback(host), secure=secure, carried=True, sealed=sealed)
    server = uvicorn.Server(_config(app))
    event_loop.run(_until_stdin_ends(server, sock))


async def _until_stdin_ends(server: uvicorn.Server, sock: socket.socket) -> None:
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)

    async def watch() -> None:
        await reader.read()
        server.should_exit = True

    watching = asyncio.create_task(watch())
    try:
        await server.serve(sockets=[sock])
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


def _config(app: ASGIApp) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=cast(type[asyncio.Protocol], partial(OneRequest, connections=Connections())),  # it is only called
        ws="none",
        lifespan="on",
        interface="asgi3",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=BACKLOG,
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        timeout_graceful_shutdown=DRAIN_S,
    )
