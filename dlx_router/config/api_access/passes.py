"""Passes: words that stand for somebody for a while, sealed by the router, so that nobody has to remember them.

    dlxs.JSON.DIGEST    a session of the console: stands for a token, without having it in it
    dlxp.JSON.DIGEST    a person whom a trusted proxy named, for one request

A session's pass says which token it stands for by a digest that only routers with the key can make. So the token is
looked up again each time: what it may do is what it may now, and one that was taken back ends its sessions everywhere.
"""

import json
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import OrderedDict
from dataclasses import dataclass
from hashlib import blake2b
from hmac import compare_digest
from typing import Any, Final

from dlx_router.config.api_access.tokens import Caller, Role, Tokens

SESSION: Final = "dlxs"
PERSON: Final = "dlxp"
IDLE_MS: Final = 30 * 60_000
LONGEST_MS: Final = 8 * 3_600_000
PERSON_MS: Final = 30_000
MOST: Final = 2_000  # characters
MOST_ENDED: Final = 10_000
MAX_NAME: Final = 255


@dataclass(frozen=True, slots=True)
class Session:
    """What a session's pass says. `token`: the digest of which token it stands for."""

    id: str
    csrf: str
    token: str
    began_ms: int
    until_ms: int


class Passes:
    """`shared`: the key of sessions, the same in all replicas; None: one of this process, which ends them with it."""

    def __init__(self, shared: bytes | None = None) -> None:
        self._own = secrets.token_bytes(32)
        self._shared = shared or secrets.token_bytes(32)
        self._ended: OrderedDict[str, None] = OrderedDict()

    def caller(self, text: str, tokens: Tokens | None, now_ms: int) -> Caller | None:
        """Whom a pass stands for; None: it is none, over, or its token was taken back."""
        if text.startswith(f"{PERSON}."):
            return self._person(text, now_ms)
        session = self.session(text, now_ms)
        return None if session is None or tokens is None else tokens.find_by(lambda digest: self._is(session, digest))

    # -- sessions -----------------------------------------------------------------------------------------------

    def begin(self, token_digest: str, now_ms: int) -> tuple[str, Session]:
        """A new session's pass for this token (`Tokens.digest`)."""
        return self._made(secrets.token_hex(8), secrets.token_urlsafe(24), self._named(token_digest), now_ms, now_ms)

    def renewed(self, old: Session, now_ms: int) -> tuple[str, Session]:
        """The same session for another while; never longer than LONGEST_MS in all."""
        return self._made(old.id, old.csrf, old.token, old.began_ms, now_ms)

    def session(self, text: str, now_ms: int) -> Session | None:
        """What the pass says; None: it is none of ours, or over."""
        claims = _opened(self._shared, SESSION, text)
        if claims is None:
            return None
        try:
            session = Session(claims["i"], claims["c"], claims["t"], claims["b"], claims["u"])
        except KeyError:
            return None
        return session if now_ms < session.until_ms and session.id not in self._ended else None

    def end(self, session: Session) -> None:
        """It is none any more, here: other replicas believe a copy of it until it is over by itself."""
        self._ended[session.id] = None
        while len(self._ended) > MOST_ENDED:
            self._ended.popitem(last=False)

    def _made(self, name: str, csrf: str, token: str, began_ms: int, now_ms: int) -> tuple[str, Session]:
        until_ms = min(now_ms + IDLE_MS, began_ms + LONGEST_MS)
        made = {"i": name, "c": csrf, "t": token, "b": began_ms, "u": until_ms}
        return _sealed(self._shared, SESSION, made), Session(name, csrf, token, began_ms, until_ms)

    def _named(self, token_digest: str) -> str:
        """Says nothing of the token to whoever has no key."""
        return blake2b(token_digest.encode(), digest_size=16, key=self._shared, person=b"dlx-pass-token").hexdigest()

    def _is(self, session: Session, token_digest: str) -> bool:
        return compare_digest(self._named(token_digest).encode(), str(session.token).encode(errors="replace"))

    # -- people -------------------------------------------------------------------------------------------------

    def vouch(self, name: str, role: Role, now_ms: int) -> str:
        """A pass for this person, which this very process believes for some seconds."""
        return _sealed(self._own, PERSON, {"n": name, "r": role.name, "u": now_ms + PERSON_MS})

    def _person(self, text: str, now_ms: int) -> Caller | None:
        claims = _opened(self._own, PERSON, text)
        if claims is None or now_ms >= claims["u"]:
            return None
        return Caller(claims["n"], Role[claims["r"]])


def is_pass(text: str) -> bool:
    """Whether it says so: no token of a file begins as passes do and ends in a digest."""
    kind, _, rest = text.partition(".")
    return kind in {SESSION, PERSON} and rest.count(".") == 1


def contents(text: str) -> dict[str, Any]:
    """What a pass says, for who shows it and cannot judge it; {} where it says nothing."""
    try:
        claims = json.loads(urlsafe_b64decode(text.split(".")[1])) if is_pass(text) and len(text) <= MOST else None
    except (ValueError, RecursionError):
        claims = None
    return claims if isinstance(claims, dict) else {}


def _sealed(key: bytes, kind: str, claims: dict[str, Any]) -> str:
    data = urlsafe_b64encode(json.dumps(claims, separators=(",", ":")).encode()).decode()
    return f"{kind}.{data}.{_mac(key, kind, data)}"


def _opened(key: bytes, kind: str, text: str) -> dict[str, Any] | None:
    """What is said where the key has sealed it: then it is as we wrote it."""
    parts = text.split(".")
    if len(text) > MOST or len(parts) != 3 or parts[0] != kind:  # noqa: PLR2004 - kind, JSON, digest
        return None
    is_ours = compare_digest(_mac(key, kind, parts[1]).encode(), parts[2].encode(errors="replace"))
    return contents(text) if is_ours else None


def _mac(key: bytes, kind: str, data: str) -> str:
    text = f"{kind}.{data}".encode(errors="replace")
    return blake2b(text, digest_size=32, key=key, person=b"dlx-pass").hexdigest()
