"""`dlx-router console`: the same pages in a process of their own."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final, cast

import uvicorn

from dlx_router.admin.connections import BACKLOG, Connections, OneRequest, listener
from dlx_router.config.api_access.allowed_hosts import Hosts, is_loopback
from dlx_router.config.api_access.trusted_proxies import TrustedProxies
from dlx_router.console.app import create_app
from dlx_router.console.auth import MAX_ROUTERS
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
    if len(routers) > MAX_ROUTERS:
        raise ConsoleError(f"a console shows at most {MAX_ROUTERS} routers, not {len(routers)}; start another one")
    app = create_app(
        [RouterApi(name, url) for name, url in routers],
        Hosts(host, names or None),
        is_loopback=is_loopback(host),
        secure=secure,
        proxies=TrustedProxies(proxies),
    )
    try:
        sock = listener(host, port)
    except OSError as error:
        raise ConsoleError(f"cannot serve at {host}:{port}: {error.strerror or error}; name another port") from None
    log.info("console.serves", url=f"http://{host}:{sock.getsockname()[1]}/", routers=[name for name, _ in routers])
    config = uvicorn.Config(
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
    uvicorn.Server(config).run(sockets=[sock])
