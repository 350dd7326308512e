"""Who a request is from: a session cookie, a person named by a trusted proxy, or somebody on this machine.

The cookie holds one signed pass for each router (config/api_access/passes.py), in the order of the routers. The console
believes none of it: it shows each pass to the router that signed it. So it keeps no sessions, and a router ends them.
"""

import asyncio
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hmac import compare_digest
from typing import Any, Final

from jinja2 import Environment
from starlette.requests import Request

from dlx_router.config.api_access.allowed_hosts import Hosts, authority, is_loopback
from dlx_router.config.api_access.passes import IDLE_MS, Passes, contents
from dlx_router.config.api_access.single_sign_on import Person, SingleSignOn
from dlx_router.config.api_access.trusted_proxies import TrustedProxies
from dlx_router.console.remembered import Remembered
from dlx_router.console.router_api import UNREACHABLE, ApiError, RouterApi
from dlx_router.telemetry.wall_clock import wall_ms

MAX_TOKEN: Final = 1_024
MAX_ROUTERS: Final = 12  # a browser keeps 4,096 bytes of a cookie; a pass has some 280
KNOWN_S: Final = 30.0  # the name and role are shown from memory so long; the router checks them each time
RENEWED_MS: Final = 5 * 60_000
LOGINS: Final = 5.0
LOGINS_PER_S: Final = 0.5
BEYOND_AT_ONCE: Final = 4  # of the 16 pages that are made at once
MAX_CLIENTS: Final = 1_000
ELSEWHERE: Final = frozenset({"cross-site", "same-site"})  # Sec-Fetch-Site: a page of another origin led here
_BETWEEN: Final = "~"  # of passes in a cookie
_WORD: Final = re.compile(r"[A-Za-z0-9_-]{43}")
_AWAY: Final = frozenset({UNREACHABLE, 429, 500, 503})


@dataclass(slots=True)
class Session:
    """One login. `words`: what each router is shown instead of a token; `callers`: who that is there, by router."""

    words: Mapping[str, str] = field(repr=False)
    csrf: str = field(repr=False)
    account: str = field(repr=False)
    callers: dict[str, dict[str, Any]] = field(default_factory=dict)
    has_login: bool = False
    is_over: bool = False

    def allows(self, csrf: str) -> bool:
        """Whether this is the word that our own forms carry."""
        return compare_digest(self.csrf.encode(), csrf.encode(errors="replace"))


class LoginLimit:
    """How often one address may try in vain: some at once, then one each two seconds.

    What an address tries beyond that is looked at where there is a place for it, few at once: a right token is not kept
    out by the wrong ones of others behind the same proxy, and they take little from those who have other addresses.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._beyond = 0
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def allows(self, client: str) -> bool:
        """Whether this one may try now, and is not beyond its limit; counts it."""
        now = self._now()
        left, since = self._left.pop(client, (LOGINS, now))
        left = min(LOGINS, left + (now - since) * LOGINS_PER_S)
        self._left[client] = (left - 1 if left >= 1 else left, now)
        if len(self._left) > MAX_CLIENTS:
            self._left.popitem(last=False)
        return left >= 1

    @contextmanager
    def place(self, *, is_beyond: bool) -> Iterator[bool]:
        """Whether a try may be looked at inside the block: those that are allowed, and a few of those beyond."""
        has_place = not is_beyond or self._beyond < BEYOND_AT_ONCE
        taken = int(is_beyond and has_place)
        self._beyond += taken
        try:
            yield has_place
        finally:
            self._beyond -= taken

    def give_back(self, client: str) -> None:
        """Its last try was allowed and a right one, and does not count: behind a proxy all people have one address."""
        if client in self._left:
            left, since = self._left[client]
            self._left[client] = (min(LOGINS, left + 1), since)


@dataclass(slots=True)
class Console:
    """What all requests share. `secure`: people come by https, so cookies go by nothing else.

    `proxies` and `sso`: the proxies before this console. `passes` signs for people whom `sso` names, so these are known
    only in the process of their router.
    """

    routers: Mapping[str, RouterApi]
    templates: Environment
    assets: Mapping[str, str]  # file → its address, which changes with its content
    hosts: Hosts = field(default_factory=Hosts)
    is_loopback: bool = True
    secure: bool = False
    proxies: TrustedProxies = field(default_factory=TrustedProxies)
    sso: SingleSignOn | None = None
    passes: Passes = field(default_factory=Passes)
    logins: LoginLimit = field(default_factory=LoginLimit)
    remembered: Remembered = field(default_factory=Remembered)

    @property
    def cookie(self) -> str:
        """Its name; behind https one that only this very host can set."""
        return "__Host-dlx_console" if self.secure else "dlx_console"

    def client(self, request: Request) -> str:
        """Whose tries to log in are counted together."""
        return self.proxies.client(_peer(request), request.headers.raw)

    async def begin(self, token: str) -> tuple[str, list[ApiError]]:
        """The cookie of a session that stands for this token, "" where no router knows it; what the others said."""
        passes, refused = await self._passes([token] * len(self.routers))
        return _BETWEEN.join(passes) if any(passes) else "", refused

    async def renew(self, key: str) -> str:
        """The cookie of the same session for another while; of a router that does not answer with the pass before."""
        words = key.split(_BETWEEN)
        passes, _ = await self._passes(words)
        return _BETWEEN.join(new or old for new, old in zip(passes, words, strict=False))

    async def _passes(self, words: Sequence[str]) -> tuple[list[str], list[ApiError]]:
        """A pass of each router in place of the word that it is shown, "" where it gives none or has no word."""

        async def begun(router: RouterApi, word: str) -> str | ApiError:
            try:
                return str((await router.ask("POST", "/sessions", word))["word"]) if word else ""
            except ApiError as error:
                return error

        made = await asyncio.gather(*map(begun, self.routers.values(), words))
        refused = [error for error in made if isinstance(error, ApiError)]
        return [word if isinstance(word, str) else "" for word in made], refused

    async def end(self, key: str) -> None:
        """End the session at its routers, as far as they can be reached."""
        for router, word in zip(self.routers.values(), key.split(_BETWEEN), strict=False):
            if contents(word):
                with suppress(ApiError):  # the browser forgets it anyway
                    await router.ask("DELETE", "/sessions", word)

    async def know(self, session: Session) -> bool:
        """Ask the routers who this is, some seconds ago or now; whether any knows, or may know later."""
        refused: list[ApiError] = []

        async def who(router: RouterApi) -> dict[str, Any] | None:
            try:
                return (await router.get("/status", session.words[router.name])).get("who") or {}
            except ApiError as error:
                refused.append(error)
                return None

        async def known() -> dict[str, Any]:
            answers = await asyncio.gather(*map(who, self.routers.values()))
            callers = {name: answer for name, answer in zip(self.routers, answers, strict=True) if answer is not None}
            if not callers:
                raise refused[0]
            return callers

        try:
            session.callers = await self.remembered.get("", session.account, "who", KNOWN_S, known)
        except ApiError:
            return all(error.status in _AWAY for error in refused)
        return True


async def session_of(console: Console, request: Request) -> tuple[str, Session | None]:
    """The cookie as it shall be, and whose request it is; None: nobody's that is known. ApiError: it may not come."""
    key = request.cookies.get(console.cookie, "")
    session: Session | None
    if console.sso is not None and (person := console.sso.person(_peer(request), request.headers.raw)) is not None:
        key, session = _of_person(console, key, person)
        return (key, session) if await console.know(session) else ("", None)
    if any(map(contents, key.split(_BETWEEN))):
        key, session = await _of_passes(console, key, is_use="hx-request" not in request.headers)
        if session is not None and await console.know(session):
            return key, session
    return await _of_this_machine(console, key, request)


def _of_person(console: Console, key: str, person: Person) -> tuple[str, Session]:
    """The cookie is only what forms have to repeat: a form of ours, and no page of anybody else's, has it too."""
    if person.role is None:
        raise ApiError(403, f"{person.name!r} is in no group of DLX_ROUTER_SSO_ROLES")
    csrf = key if _WORD.fullmatch(key) else secrets.token_urlsafe(32)
    word = console.passes.vouch(person.name, person.role, wall_ms())
    account = f"person {person.role.name} {person.name}"
    return csrf, Session(dict.fromkeys(console.routers, word), csrf, account)


async def _of_passes(console: Console, key: str, *, is_use: bool) -> tuple[str, Session | None]:
    """Until the first of them is over."""
    claims = [claims for word in key.split(_BETWEEN) if (claims := contents(word))]
    csrf, until_ms = claims[0].get("c"), [claim["u"] for claim in claims if isinstance(claim.get("u"), int)]
    if not isinstance(csrf, str) or len(csrf) < 16 or len(until_ms) < len(claims):  # noqa: PLR2004 - no guess
        return "", None
    left_ms = min(until_ms) - wall_ms()
    if left_ms <= 0:
        return "", None
    if is_use and left_ms < IDLE_MS - RENEWED_MS:
        key = await console.renew(key)
    words = dict.fromkeys(console.routers, "") | dict(zip(console.routers, key.split(_BETWEEN), strict=False))
    return key, Session(words, csrf, key, has_login=True)


async def _of_this_machine(console: Console, key: str, request: Request) -> tuple[str, Session | None]:
    """Where routers ask nobody for a token and this is the same machine.

    It does not begin with what a page of elsewhere leads to: that comes without the cookie that there may be.
    """
    host, _ = authority(request.headers.get("host", "")) or ("", "")
    if not (console.is_loopback and is_loopback(host)):
        return "", None
    if not _WORD.fullmatch(key):
        if request.method != "GET" or request.headers.get("sec-fetch-site") in ELSEWHERE:
            return "", None
        key = secrets.token_urlsafe(32)
    session = Session(dict.fromkeys(console.routers, ""), key, "")
    return (key, session) if await console.know(session) and session.callers else ("", None)


def _peer(request: Request) -> str:
    return request.client.host if request.client is not None else "?"
