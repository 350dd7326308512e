"""One request of a person: who it is, which router it is about, what the router says, and the page that comes of it."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from dlx_router import __version__
from dlx_router.config.api_access.allowed_hosts import foreign_page
from dlx_router.console import forms
from dlx_router.console.auth import ELSEWHERE, Console, Session, session_of
from dlx_router.console.exports import exported
from dlx_router.console.rendering import query, quoted
from dlx_router.console.router_api import UNREACHABLE, ApiError, RouterApi

THEMES: Final = ("auto", "light", "dark")
THEME: Final = "dlx_theme"
VHOSTS_S: Final = 10.0  # they are few, and seldom others
A_YEAR_S: Final = 365 * 86_400
_OF_A_PAGE: Final = frozenset({"cursor", "offset", "format", "list"})
_NAMES: Final = frozenset({"queue", "vhost"})  # of the broker, where a space at either end makes another name
_ROLES: Final = ("viewer", "operator", "admin")


@dataclass(slots=True)
class Asked:
    """A request whose sender is known."""

    console: Console
    request: Request
    session: Session
    key: str
    router: RouterApi
    form: forms.Form = field(default_factory=lambda: forms.Form({}))

    @property
    def word(self) -> str:
        """What the router is shown."""
        return self.session.words[self.router.name]

    async def get(self, path: str, **wanted: Any) -> dict[str, Any]:  # noqa: ANN401 - values of a query
        """The router's answer. Raises ApiError."""
        return await self.router.get(path, self.word, **wanted)

    async def recent(self, question: str, within_s: float, answer: Callable[[], Awaitable[Any]]) -> dict[str, Any]:
        """What the router answered to this account within these seconds; else `answer`, which is kept as `question`."""
        return await self.console.remembered.get(self.router.name, self.session.account, question, within_s, answer)

    async def vhosts(self) -> list[str]:
        """Which vhosts the router serves, sorted; some seconds old. Raises ApiError."""

        async def served() -> dict[str, Any]:
            return {"vhosts": sorted((await self.get("/status")).get("vhosts") or {})}

        return list((await self.recent("vhosts", VHOSTS_S, served))["vhosts"])

    async def change(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        **wanted: Any,  # noqa: ANN401 - as a form gives them
    ) -> dict[str, Any]:
        """The router's answer to a change. Raises ApiError."""
        try:
            return await self.router.ask(method, path, self.word, query=wanted or None, body=body)
        finally:
            self.console.remembered.forget(self.router.name)

    def query(self, name: str, default: str = "", most: int = 2000) -> str:
        """A field of the address without space around it; a queue's or vhost's name as it came."""
        value = self.request.query_params.get(name, default)
        return (value if name in _NAMES else value.strip())[:most]

    def path(self, path: str, *parts: str, **given: object) -> str:
        """The address of a page about the same router; `parts` are names, in which anything may stand."""
        named = "".join(f"/{quoted(part)}" for part in parts)
        return query(f"{self.at(self.router.name)}{path}{named}", given)

    def again(self, **changed: object) -> str:
        """This page's address with some of its fields changed, from its first row on."""
        given = {name: value for name, value in self.request.query_params.items() if name not in _OF_A_PAGE}
        return query(self.request.url.path, given | changed)

    def at(self, router: str) -> str:
        """What stands before the paths of a router; nothing where there is only one."""
        return "" if len(self.console.routers) == 1 else f"/at/{quoted(router)}".replace("%3A", ":")

    def may(self, role: str) -> bool:
        """Whether the token has this role; where the router does not say, it is asked and may refuse."""
        has = (self.session.callers.get(self.router.name) or {}).get("role")
        return has not in _ROLES or _ROLES.index(has) >= _ROLES.index(role)

    def page(self, template: str, **values: object) -> HTMLResponse:
        """The page."""
        return page(self.console, self.request, template, 200, asked=self, **values)

    def go(self, path: str) -> RedirectResponse:
        """To another page of ours, after a change."""
        return RedirectResponse(path, 303)

    def listing(self, name: str, columns: list[str], rows: list[dict[str, Any]]) -> Response | None:
        """The list as a file where the address asks for one."""
        form = self.query("format")
        return exported(form, name, columns, rows) if form in {"csv", "json"} else None


Page = Callable[[Asked], Awaitable[Response]]


def page(console: Console, request: Request, template: str, code: int = 200, **values: object) -> HTMLResponse:
    """A page for anybody."""
    theme = request.cookies.get(THEME, "auto")
    context: dict[str, object] = {
        "asked": None,
        "console": console,
        "assets": console.assets,
        "theme": theme if theme in THEMES else "auto",
        "version": __version__,
        "here": query(request.url.path, dict(request.query_params)),
    }
    return HTMLResponse(console.templates.get_template(template).render(context | values), code)


def endpoint(console: Console, shows: Page) -> Callable[[Request], Awaitable[Response]]:
    """What Starlette calls: the page for those who are logged in, changes only by our own forms."""

    async def answer(request: Request) -> Response:
        router = _router(console, request)
        if router is None:
            return trouble(console, request, ApiError(404, "the console shows no router of that name"))
        try:
            key, session = await session_of(console, request)
        except ApiError as error:
            return trouble(console, request, error)
        if session is None:
            return _to_login(console, request)
        asked = Asked(console, request, session, key, router)
        try:
            refusal = await _refused(asked) if request.method == "POST" else None
            shown = refusal or await shows(asked)
        except ApiError as error:
            shown = _failed(asked, error)
        except forms.FormError as error:
            shown = trouble(console, request, ApiError(error.status, str(error)), asked)
        if key != request.cookies.get(console.cookie) and not session.is_over:
            set_cookie(console, shown, key)
        return shown

    return answer


def set_cookie(console: Console, answer: Response, key: str) -> None:
    """The session's cookie: no script reads it, no other site's page sends it, it ends with the browser."""
    answer.set_cookie(console.cookie, key, path="/", secure=console.secure, httponly=True, samesite="strict")


def remembered(console: Console, name: str, value: str, back: str) -> Response:
    """The page `back`, after a choice of this browser that its next pages keep to for a year."""
    answer = RedirectResponse(local_path(back) or "/", 303)
    answer.set_cookie(name, value, max_age=A_YEAR_S, secure=console.secure, httponly=True, samesite="lax")
    return answer


def local_path(path: str) -> str:
    """A path of ours, or nothing: a link to the login must lead nowhere else."""
    is_ours = path.startswith("/") and not path.startswith("//") and "\\" not in path and path.isprintable()
    return path if is_ours and path.isascii() else ""


def trouble(console: Console, request: Request, error: ApiError, asked: Asked | None = None) -> Response:
    """A page that says what went wrong, and goes on by itself where that makes sense."""
    status = 502 if error.status == UNREACHABLE else error.status
    if request.query_params.get("format") in {"csv", "json"}:  # a script asks
        return JSONResponse({"error": error.error, "problems": error.problems}, status)
    answer = page(console, request, "trouble.html", status, asked=asked, error=error, status=status)
    if error.retry_after_s is not None and request.method == "GET":
        answer.headers["refresh"] = str(max(error.retry_after_s, 3))
    return answer


def foreign(console: Console, request: Request) -> str | None:
    """Why a change is asked for by somebody else's page; None where it is not."""
    headers = request.headers
    return foreign_page(
        console.hosts, headers.get("host"), headers.getlist("origin"), headers.getlist("sec-fetch-site")
    )


def _router(console: Console, request: Request) -> RouterApi | None:
    named = request.path_params.get("router")
    return console.routers.get(named) if named is not None else next(iter(console.routers.values()))


def _to_login(console: Console, request: Request) -> Response:
    """To the login and back. A link of a chat brings no cookie (SameSite=Strict): our own page asks again, with it."""
    if request.method != "GET":
        error = ApiError(401, "the session is over, and nothing was changed; log in and do it again")
        return trouble(console, request, error)
    if request.headers.get("sec-fetch-site") in ELSEWHERE:
        return page(console, request, "arrival.html")
    wanted = query(request.url.path, dict(request.query_params))
    to = query("/login", {"next": wanted if wanted != "/" else ""})
    if "hx-request" in request.headers:
        return Response(status_code=401, headers={"hx-redirect": query("/login")})
    return RedirectResponse(to, 303)


async def _refused(asked: Asked) -> Response | None:
    """Why this change is none of our forms'; else the form is read."""
    why = foreign(asked.console, asked.request)
    if why is None:
        asked.form = await forms.read(asked.request)
        if not asked.session.allows(asked.form.text("csrf")):
            why = "the form is not of this session, and nothing was changed; open the page anew and do it again"
    return None if why is None else trouble(asked.console, asked.request, ApiError(403, why), asked)


def _failed(asked: Asked, error: ApiError) -> Response:
    if error.status == 401 and len(asked.console.routers) == 1:  # noqa: PLR2004 - the token was taken back
        asked.session.is_over = True
        if asked.request.method == "GET":
            return _to_login(asked.console, asked.request)
    return trouble(asked.console, asked.request, error, asked)
