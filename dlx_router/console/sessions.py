"""Who is logged in. Sessions live in this process only: what is not here is not valid, so each can be ended at once.

The cookie holds chance and nothing else, and what is kept here is its digest. Bounded in number and in time.
"""

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from hmac import compare_digest
from typing import Any, Final

IDLE_S: Final = 30 * 60.0
LONGEST_S: Final = 8 * 3600.0
MOST: Final = 1_000
MAX_TOKEN: Final = 1_024
LOGINS: Final = 5.0
LOGINS_PER_S: Final = 0.5
BEYOND_AT_ONCE: Final = 4  # of the 16 pages that are made at once
MAX_CLIENTS: Final = 1_000


@dataclass(slots=True)
class Session:
    """One login. `callers`: who its token is, by router, as far as the routers say so."""

    token: str = field(repr=False)
    csrf: str = field(repr=False)
    began: float
    used: float
    callers: dict[str, dict[str, Any]]
    person: str = ""  # whom a proxy named: there is nothing to log out of
    is_over: bool = False

    @property
    def account(self) -> str:
        """What answers are kept under: tokens differ, and a person's word is another one each time."""
        return f"person {self.person}" if self.person else self.token

    def allows(self, csrf: str) -> bool:
        """Whether this is the word that our own forms carry."""
        return compare_digest(self.csrf.encode(), csrf.encode(errors="replace"))


class Sessions:
    """Those that are open, the one that was used last at the end. `now` in seconds, of a clock that only goes on."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._open: OrderedDict[str, Session] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, token: str, callers: dict[str, dict[str, Any]]) -> tuple[str, Session]:
        """A new session, and the cookie's value that opens it. Where there are too many the one unused longest ends."""
        key, now = secrets.token_urlsafe(32), self._now()
        made = Session(token, secrets.token_urlsafe(32), now, now, callers)
        self._open[_digest(key)] = made
        while len(self._open) > MOST:
            self._open.popitem(last=False)
        return key, made

    def find(self, key: str, *, is_use: bool = True) -> Session | None:
        """The session that this opens; None where it is none, or over. What a page asks by itself is no use of it."""
        digest, now = _digest(key), self._now()
        session = self._open.get(digest)
        if session is None:
            return None
        if now - session.used > IDLE_S or now - session.began > LONGEST_S:
            del self._open[digest]
            return None
        if is_use:
            session.used = now
            self._open.move_to_end(digest)
        return session

    def end(self, key: str) -> None:
        """It opens nothing any more; safe to repeat."""
        self._open.pop(_digest(key), None)


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


def _digest(key: str) -> str:
    return sha256(key.encode(errors="replace")).hexdigest()
