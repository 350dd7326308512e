"""Status pages: an operator shares a group by a link, and whoever has it reads one page without logging in."""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from dlx_router.console.asking import Asked
from dlx_router.console.command_lines import command
from dlx_router.console.pages.overview import missing
from dlx_router.console.rendering import quoted
from dlx_router.console.router_api import ApiError, RouterApi
from dlx_router.console.who import Console
from dlx_router.core.status_pages import MAX_NOTE, TOKEN, digest_of

COLUMNS: Final = ["group", "vhost", "queue", "by", "shared_ms", "shows_error", "note"]
KEPT_S: Final = 5.0
MOST_KEPT: Final = 200
AT_ONCE: Final = 8  # of the 16 pages that are made at once
_NOT_FOUND: Final = 404
_LATER: Final = 503
_KNOWN_NOT: Final = frozenset({401, 403, 404, 405, 422})  # 401: a router that has no such pages asks for a token
_HEADERS: Final = {"referrer-policy": "no-referrer", "x-robots-tag": "noindex, nofollow"}
Kept = OrderedDict[tuple[str, str], tuple[float, bytes]]


async def shared_of(asked: Asked, group: str) -> dict[str, Any] | None:
    """Whether a group has a status page; None: the router has none to tell. The group's page never fails by it."""
    try:
        return await asked.router.ask("GET", _path(group), asked.session.token)
    except ApiError:
        return None


async def status_pages(asked: Asked) -> Response:
    """All groups that are shared; never a link."""
    answer = await asked.get("/status-pages")
    listed = asked.listing("status-pages", COLUMNS, answer["pages"])
    values = {"pages": answer["pages"], "missing": missing(answer), "command": command("groups", "shared")}
    return listed or asked.page("status_pages.html", **values)


async def share(asked: Asked) -> Response:
    """Make a link, and show it: this once."""
    group, form = asked.request.path_params["group_id"], asked.form
    wanted = {"note": form.text("note").replace("\r\n", "\n")[:MAX_NOTE], "shows_error": form.ticked("shows_error")}
    made = await asked.change("POST", _path(group), wanted)
    return asked.page("shared.html", shared=made, link=_link(asked, made))


async def revoke(asked: Asked) -> Response:
    """The link shows nothing any more."""
    group = asked.request.path_params["group_id"]
    await asked.change("DELETE", _path(group))
    return asked.go(asked.path("/groups", group))


def _path(group: str) -> str:
    return f"/groups/{quoted(group[:64])}/status-page"


def _link(asked: Asked, made: dict[str, Any]) -> str:
    """As people open it: where the router says that the console is, else by the name by which it was asked now."""
    if made["url"] != made["path"] and len(asked.console.routers) == 1:
        return str(made["url"])
    scheme = "https" if asked.console.secure else asked.request.url.scheme
    return f"{scheme}://{asked.request.headers.get('host', '')}{asked.path('/status', made['token'])}"


def public_page(console: Console) -> Callable[[Request], Awaitable[Response]]:
    """The page of a link: for anybody, the same for all, and from memory for some seconds."""
    pages = _PublicPages(console)

    async def answer(request: Request) -> Response:
        router, token = _router(console, request), request.path_params["token"]
        if router is None or TOKEN.fullmatch(token) is None:
            return pages.without(_NOT_FOUND)
        return await pages.shown(router, token)

    return answer


def _router(console: Console, request: Request) -> RouterApi | None:
    named = request.path_params.get("router")
    return console.routers.get(named) if named is not None else next(iter(console.routers.values()))


class _PublicPages:
    """Made once for all who ask at the same time; so few wait at once that others have room."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._kept: Kept = OrderedDict()
        self._making: dict[tuple[str, str], asyncio.Task[bytes]] = {}
        self._waiting = 0

    async def shown(self, router: RouterApi, token: str) -> Response:
        key = (router.name, digest_of(token))
        at, body = self._kept.get(key, (0.0, b""))
        if body and time.monotonic() - at <= KEPT_S:
            return self._page(body)
        if self._waiting >= AT_ONCE:
            return self.without(_LATER)
        self._waiting += 1
        try:
            return self._page(await asyncio.shield(self._made(key, router, token)))
        except ApiError as error:
            return self.without(_NOT_FOUND if error.status in _KNOWN_NOT else _LATER)
        finally:
            self._waiting -= 1

    def without(self, status: int) -> Response:
        """That there is no such page, or none now; not why."""
        later = {"retry-after": "5"} if status == _LATER else {}
        body = self._rendered(None, is_later=status == _LATER)
        return HTMLResponse(body, status, {**_HEADERS, **later, "cache-control": "no-store"})

    def _made(self, key: tuple[str, str], router: RouterApi, token: str) -> "asyncio.Task[bytes]":
        making = self._making.get(key)
        if making is None:
            making = self._making[key] = asyncio.create_task(self._make(key, router, token))
            making.add_done_callback(lambda _: self._making.pop(key, None))
        return making

    async def _make(self, key: tuple[str, str], router: RouterApi, token: str) -> bytes:
        self._kept.pop(key, None)
        body = self._rendered(await router.ask("GET", f"/status/{token}", ""), is_later=False)
        self._kept[key] = (time.monotonic(), body)
        while len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        return body

    def _rendered(self, status: dict[str, Any] | None, *, is_later: bool) -> bytes:
        template = self._console.templates.get_template("status.html")
        text = template.render(status=status, is_later=is_later, assets=self._console.assets)
        return text.encode(errors="replace")

    def _page(self, body: bytes) -> Response:
        return HTMLResponse(body, 200, {**_HEADERS, "cache-control": f"public, max-age={KEPT_S:.0f}"})
