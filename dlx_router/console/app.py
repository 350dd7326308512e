"""The console as an ASGI app: which page has which path."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import ASGIApp

from dlx_router.config.api_access.allowed_hosts import Hosts
from dlx_router.config.api_access.passes import Passes
from dlx_router.config.api_access.single_sign_on import SingleSignOn
from dlx_router.config.api_access.trusted_proxies import TrustedProxies
from dlx_router.console.asking import Page, endpoint, trouble
from dlx_router.console.assets import Assets
from dlx_router.console.auth import Console
from dlx_router.console.guard import Guard
from dlx_router.console.pages import (
    groups,
    letters,
    login,
    overview,
    policies,
    tasks,
)
from dlx_router.console.rendering import environment
from dlx_router.console.router_api import ApiError, RouterApi
from dlx_router.telemetry.logs import log

PAGES: Final[tuple[tuple[str, str, Page], ...]] = (
    ("GET", "/", overview.overview),
    ("GET", "/groups", groups.groups),
    ("GET", "/groups/{group_id}", groups.group),
    ("POST", "/groups/{group_id}", groups.change_group),
    ("GET", "/letters", letters.letters),
    ("GET", "/letters/{letter_id}", letters.letter),
    ("POST", "/letters/{letter_id}/send-back", letters.send_back),
    ("POST", "/letters/{letter_id}/discard", letters.discard),
    ("POST", "/letters/{letter_id}/comment", letters.comment),
    ("GET", "/letters/{letter_id}/edit", letters.edit),
    ("POST", "/letters/{letter_id}/edit", letters.send_edited),
    ("GET", "/redrive", tasks.redrive),
    ("POST", "/redrive", tasks.count_letters),
    ("GET", "/tasks", tasks.tasks),
    ("GET", "/tasks/{task_id}", tasks.task),
    ("POST", "/tasks/{task_id}/start", tasks.start),
    ("POST", "/tasks/{task_id}/{verb}", tasks.change_task),
    ("GET", "/policies", policies.policies),
    ("GET", "/explain", policies.explain),
    ("GET", "/audit", policies.audit),
)


def create_app(  # noqa: PLR0913 - as Console has them
    routers: Iterable[RouterApi],
    hosts: Hosts,
    *,
    is_loopback: bool = True,
    secure: bool = False,
    proxies: TrustedProxies | None = None,
    sso: SingleSignOn | None = None,
    passes: Passes | None = None,
) -> ASGIApp:
    """The console over these routers, the first one first. The rest: see Console."""
    known = {router.name: router for router in routers}
    assets = Assets()
    console = Console(
        known,
        environment(),
        assets.addresses,
        hosts,
        is_loopback,
        secure,
        proxies=proxies or TrustedProxies(),
        sso=sso,
        passes=passes or Passes(),
    )
    pages = [Route(path, endpoint(console, shows), methods=[method]) for method, path, shows in PAGES]
    routes: list[BaseRoute] = [
        Route("/static/{name}", assets.serve),
        Route("/login", login.login(console), methods=["GET", "POST"]),
        Route("/logout", endpoint(console, login.logout), methods=["POST"]),
        Route("/theme", endpoint(console, login.theme), methods=["POST"]),
        Mount("/at/{router}", routes=pages),
        *pages,
    ]
    app = Starlette(routes=routes, lifespan=_closing(known.values()))
    app.state.console = console
    app.add_exception_handler(HTTPException, _missing(console))
    app.add_exception_handler(Exception, _broken(console))
    return Guard(app, hosts)


def _closing(routers: Iterable[RouterApi]) -> Callable[[Starlette], AbstractAsyncContextManager[None]]:
    @asynccontextmanager
    async def lasting(_app: Starlette) -> AsyncIterator[None]:
        yield
        for router in routers:
            await router.close()

    return lasting


def _missing(console: Console) -> Callable[[Request, Exception], Awaitable[Response]]:
    async def answer(request: Request, error: Exception) -> Response:
        status = error.status_code if isinstance(error, HTTPException) else 404
        return trouble(console, request, ApiError(status, "there is no such page"))

    return answer


def _broken(console: Console) -> Callable[[Request, Exception], Awaitable[Response]]:
    async def answer(request: Request, error: Exception) -> Response:
        """A fault of ours: the log has it, the page does not."""
        path = request.url.path
        log.error("console.failed", method=request.method, path=path, error=repr(error), exc_info=error)
        return trouble(console, request, ApiError(500, "a fault of the console; its log says more"))

    return answer
