"""Who a request is of: the session of a cookie, a pass that any replica takes, or a person whom a proxy named.

What a pass says is believed by the router alone, which sealed it: here it is shown to it with each question.
"""

import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from jinja2 import Environment
from starlette.requests import Request

from dlx_router.config.api_access.allowed_hosts import Hosts, authority, is_loopback
from dlx_router.config.api_access.passes import IDLE_MS, contents, is_pass
from dlx_router.config.api_access.trusted_proxies import TrustedProxies
from dlx_router.console.remembered import Remembered
from dlx_router.console.router_api import UNREACHABLE, ApiError, RouterApi
from dlx_router.console.sessions import LoginLimit, Session, Sessions

CLIENT: Final = "x-dlx-router-client"
PERSON: Final = "x-dlx-router-person"
KNOWN_S: Final = 30.0  # who a pass stands for is shown from memory so long; what it may do is asked each time
RENEWED_MS: Final = 5 * 60_000
MOST: Final = 1_000
ELSEWHERE: Final = frozenset({"cross-site", "same-site"})  # Sec-Fetch-Site: a page of another origin led here
_WORD: Final = re.compile(r"[A-Za-z0-9_-]{43}")
_AWAY: Final = frozenset({UNREACHABLE, 429, 500, 503})
Callers = dict[str, dict[str, Any]]


@dataclass(slots=True)
class Console:
    """What all requests share. `secure`: people come by https, so cookies go by nothing else.

    `carried`: requests come by the router that started us, which names their sender. `sealed`: that router seals
    sessions, so that any replica knows them; else they are kept here. `proxies`: before this console, if not `carried`.
    """

    routers: Mapping[str, RouterApi]
    templates: Environment
    assets: Mapping[str, str]  # file → its address, which changes with its content
    hosts: Hosts = field(default_factory=Hosts)
    is_loopback: bool = True
    secure: bool = False
    carried: bool = False
    sealed: bool = False
    proxies: TrustedProxies = field(default_factory=TrustedProxies)
    sessions: Sessions = field(default_factory=Sessions)
    logins: LoginLimit = field(default_factory=LoginLimit)
    remembered: Remembered = field(default_factory=Remembered)
    known: OrderedDict[str, tuple[float, Callers]] = field(default_factory=OrderedDict)

    @property
    def cookie(self) -> str:
        """Its name; behind https one that only this very host can set."""
        return "__Host-dlx_console" if self.secure else "dlx_console"

    def client(self, request: Request) -> str:
        """Whose tries to log in are counted together."""
        if self.carried:
            return request.headers.get(CLIENT, "?")
        return self.proxies.client(request.client.host if request.client is not None else "?", request.headers.raw)

    async def callers(self, token: str) -> tuple[dict[str, dict[str, Any]], list[ApiError]]:
        """Who this token is, by router that knows it; what the others said."""
        known: dict[str, dict[str, Any]] = {}
        refused: list[ApiError] = []
        for router in self.routers.values():
            try:
                known[router.name] = (await router.get("/status", token)).get("who") or {}
            except ApiError as error:
                refused.append(error)
        return known, refused

    async def renewed(self, word: str) -> str:
        """A pass for another while; the same one where nobody gives it."""
        try:
            return await self.begin(word)
        except ApiError:
            return word

    async def begin(self, token: str) -> str:
        """A pass in place of a token. Raises ApiError."""
        router = next(iter(self.routers.values()))
        return str((await router.ask("POST", "/sessions", token))["word"])


async def session_of(console: Console, request: Request) -> tuple[str, Session | None]:
    """The cookie's value as it shall be, and whose request it is; None: nobody's that is known."""
    key = request.cookies.get(console.cookie, "")
    is_use = "hx-request" not in request.headers
    if console.carried and (word := request.headers.get(PERSON, "")):
        return await _of_person(console, key, word)
    if is_pass(key):
        return await _of_pass(console, key, is_use=is_use)
    session = console.sessions.find(key, is_use=is_use)
    return (key, session) if session is not None else await _of_nobody(console, request)


async def _of_nobody(console: Console, request: Request) -> tuple[str, Session | None]:
    """Where the router asks nobody for a token and this is the same machine, a new session.

    Not for what a page of elsewhere leads to: that comes without the cookie of the session that there may be.
    """
    host, _ = authority(request.headers.get("host", "")) or ("", "")
    is_led = request.headers.get("sec-fetch-site") in ELSEWHERE
    if is_led or not (console.is_loopback and is_loopback(host) and request.method == "GET"):
        return "", None
    callers, _ = await console.callers("")
    return console.sessions.begin("", callers) if callers else ("", None)


async def _of_person(console: Console, key: str, word: str) -> tuple[str, Session | None]:
    """The cookie is only what forms have to repeat: a form of ours, and no page of anybody else's, has it too."""
    claims = contents(word)
    name, role = str(claims.get("n", "")), str(claims.get("r", ""))
    csrf = key if _WORD.fullmatch(key) else secrets.token_urlsafe(32)
    session = Session(word, csrf, 0.0, 0.0, {}, person=f"{role} {name}")
    callers = await _known(console, session)
    if callers is None:
        return "", None
    session.callers = callers
    return csrf, session


async def _of_pass(console: Console, key: str, *, is_use: bool) -> tuple[str, Session | None]:
    claims, now_ms = contents(key), time.time() * 1000
    csrf, until_ms = claims.get("c"), claims.get("u")
    if not isinstance(csrf, str) or len(csrf) < 16 or not isinstance(until_ms, int) or now_ms >= until_ms:  # noqa: PLR2004 - no guess
        return "", None
    if is_use and until_ms - now_ms < IDLE_MS - RENEWED_MS:
        key = await console.renewed(key)
    session = Session(key, csrf, 0.0, 0.0, {})
    callers = await _known(console, session)
    if callers is None:
        return "", None
    session.callers = callers
    return key, session


async def _known(console: Console, session: Session) -> Callers | None:
    """Who that is, by router; None: no router knows them. {}: nobody can say just now."""
    now = time.monotonic()
    at, callers = console.known.pop(session.account, (0.0, {}))
    if not callers or now - at > KNOWN_S:
        at = now
        callers, refused = await console.callers(session.token)
        if not callers:
            return {} if refused and all(error.status in _AWAY for error in refused) else None
    console.known[session.account] = (at, callers)
    while len(console.known) > MOST:
        console.known.popitem(last=False)
    return callers
