"""API_TOKENS_FILE: who may do what.

The file is YAML, made of tokens:

    tokens:
      - name: ann                 # what the audit says
        token: 9f0c…              # at least 16 characters; or token-sha256: 64 hex digits
        role: operator            # viewer, operator (changes things) or admin
        vhost: /                  # without it all
        match: "orders.#"         # failed queues, as in policies; without it all

Tokens are kept as digests only, and appear in no repr, log or error.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from hashlib import sha256
from hmac import compare_digest
from pathlib import Path
from typing import Any, Final

import yaml

from dlx_router.core.selection import Index

MIN_TOKEN: Final = 16
MAX_BYTES: Final = 1 << 20
_KEYS: Final = frozenset({"name", "token", "token-sha256", "role", "vhost", "match"})
_HEX: Final = re.compile(r"[0-9a-f]{64}")


class Role(IntEnum):
    """Each may do what the ones before it may."""

    VIEWER = 1  # looks
    OPERATOR = 2  # changes groups and letters
    ADMIN = 3  # changes the router's own things too


class TokensError(ValueError):
    """The file cannot be used; says where and what, never a token."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks, and what they may see and do. `match` None: every failed queue; `vhost` None: every vhost."""

    name: str
    role: Role
    vhost: str | None = None
    match: str | None = None
    _selector: Index | None = field(default=None, repr=False, compare=False)

    def may_see(self, vhost: str, queue: str | None = None) -> bool:
        """Whether this vhost, and this queue where one is named, are in the caller's scope."""
        if self.vhost not in {None, vhost}:
            return False
        return queue is None or self._selector is None or bool(self._selector.fitting(queue))

    @property
    def is_limited(self) -> bool:
        """Whether there is anything that the caller may not see."""
        return self.vhost is not None or self.match is not None


LOCAL: Final = Caller("local", Role.ADMIN)


def caller(name: str, role: Role, vhost: str | None = None, match: str | None = None) -> Caller:
    """A caller with this scope."""
    selector = None if match is None else Index((), ((0, match),), lambda _queue: ())
    return Caller(name, role, vhost, match, selector)


class Tokens:
    """The tokens of a file, read again when it changes; a file that became wrong changes nothing, and is told."""

    def __init__(self, path: Path) -> None:
        """Raises TokensError."""
        self._path = path
        self._stamp: _Stamp | None = _stamp(path)
        self._known = read(path)
        self.trouble: str | None = None

    def __repr__(self) -> str:
        return f"Tokens({str(self._path)!r})"

    def find(self, token: str) -> Caller | None:
        """Who has this token. Takes as long for a wrong one as for a right one."""
        self._renew()
        digest, holder = _digest(token), None
        for known, who in self._known.items():
            if compare_digest(known, digest):
                holder = who
        return holder

    def find_by(self, fits: Callable[[str], bool]) -> Caller | None:
        """Who has the token whose digest fits. Looks at all of them."""
        self._renew()
        holder = None
        for known, who in self._known.items():
            if fits(known):
                holder = who
        return holder

    @staticmethod
    def digest(token: str) -> str:
        """What is kept of a token."""
        return _digest(token)

    def look(self) -> str | None:
        """Why the file cannot be used now; None where it can."""
        self._renew()
        return self.trouble

    def _renew(self) -> None:
        """A file that cannot be used is not read again before it changes: whoever asks would stop letters by asking."""
        before, self._stamp = self._stamp, None
        try:
            self._stamp = _stamp(self._path)
            if self._stamp != before:
                self._known, self.trouble = read(self._path), None
        except TokensError as error:
            self.trouble = str(error)


def read(path: Path) -> dict[str, Caller]:
    """Digest of each token → its caller. Raises TokensError."""
    try:
        with path.open("rb") as opened:
            document = yaml.safe_load(opened.read(MAX_BYTES))
    except OSError as error:
        raise TokensError(f"API_TOKENS_FILE {path}: {error.strerror}; name a readable file") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark is not None else ""
        raise TokensError(
            f"API_TOKENS_FILE {path}{where}: no YAML; look at quotes, brackets and indentation there"
        ) from None  # its text may be a token
    entries = document.get("tokens") if isinstance(document, dict) else None
    if not isinstance(entries, list) or not entries:
        raise TokensError(f"API_TOKENS_FILE {path}: has no list `tokens`; write at least one")
    callers: dict[str, Caller] = {}
    for number, entry in enumerate(entries, 1):
        digest, who = _entry(entry, f"API_TOKENS_FILE {path}, token {number}")
        if digest in callers:
            raise TokensError(f"API_TOKENS_FILE {path}, token {number}: the same token stands there twice")
        callers[digest] = who
    return callers


def _entry(entry: Any, where: str) -> tuple[str, Caller]:
    if not isinstance(entry, Mapping):
        raise TokensError(f"{where}: not a mapping; write name, token and role")
    if strange := sorted(map(str, {*entry} - _KEYS)):
        raise TokensError(f"{where}: unknown keys ({len(strange)}); known: {', '.join(sorted(_KEYS))}")
    name, role = entry.get("name"), str(entry.get("role", "")).upper()
    if not isinstance(name, str) or not name:
        raise TokensError(f"{where}: has no name; the audit needs one")
    if role not in Role.__members__:
        raise TokensError(f"{where}: role is none of viewer, operator, admin")
    for key in ("vhost", "match"):
        if key in entry and not isinstance(entry[key], str):
            raise TokensError(f"{where}: {key} is no text; leave it out where the token is for all")
    return _secret(entry, where), caller(name, Role[role], entry.get("vhost"), entry.get("match"))


def _secret(entry: Mapping[str, Any], where: str) -> str:
    token, digest = entry.get("token"), entry.get("token-sha256")
    if (token is None) == (digest is None):
        raise TokensError(f"{where}: needs one of token and token-sha256")
    if token is None:
        if not isinstance(digest, str) or not _HEX.fullmatch(digest):
            raise TokensError(f"{where}: token-sha256 is not 64 hex digits in lower case")
        return digest
    if not isinstance(token, str) or len(token) < MIN_TOKEN:
        raise TokensError(f"{where}: token is no text of at least {MIN_TOKEN} characters; quote it")
    return _digest(token)


def _digest(token: str) -> str:
    return sha256(token.encode(errors="surrogateescape")).hexdigest()


def _stamp(path: Path) -> "_Stamp":
    try:
        status = path.stat()
    except OSError as error:
        raise TokensError(f"API_TOKENS_FILE {path}: {error.strerror}; name a readable file") from None
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino  # ctime: rights that were given


_Stamp = tuple[int, int, int, int]
