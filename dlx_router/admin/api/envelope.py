"""What a replica hands to the leader, and the answer: sealed with the key that replicas share.

    POST /api/forwarded    dlx-router-forwarded: HEAD   dlx-router-mac: DIGEST of it    body: what the person sent
    200                    dlx-router-forwarded: HEAD   dlx-router-mac: DIGEST of it    body: what the API answered

HEAD is JSON in base64; it has the body's digest, so who has no key is known before a body is read. The person's token
stays where it was shown: the leader is told who asks, by a router that has the key. All of a request is under the
digest: method, path and query, content type, body, who asks with which role, which router is meant, when, and a number
that is used once. So whoever can listen can change nothing, send nothing again, and turn it to no other router; an
answer belongs to one request. Headers of the person are not handed on. docs/decisions/0076 has the reasons.
"""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from hmac import compare_digest
from typing import Any, Final

from dlx_router.config.api_access.tokens import LOCAL, Caller, Role, caller

PATH: Final = "/api/forwarded"
HEAD: Final = "dlx-router-forwarded"
MAC: Final = "dlx-router-mac"
VERSION: Final = 1
LASTS_MS: Final = 60_000  # so far may two routers' clocks be apart, the way included
MAX_HEAD: Final = 12_000  # the port reads 16 KiB of headers
MOST_SEEN: Final = 100_000
METHODS: Final = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE"})
_ASKED, _ANSWERED = b"dlx-forward", b"dlx-forwarded"


Headers = dict[str, str]


class TooLarge(Exception):
    """What was asked has a longer address than can be handed on."""


class Unsealed(Exception):
    """It is not what a router with this key says now; says why, and never what it holds."""


@dataclass(frozen=True, slots=True)
class Request:
    """What somebody asked. `target`: path and query as they came; `kind`: the body's content type, "" for none."""

    method: str
    target: str
    who: Caller
    kind: str = ""
    body: bytes = field(default=b"", repr=False)


@dataclass(frozen=True, slots=True)
class Answered:
    """What the API answered. `is_elsewhere`: nothing, because that router does not lead any more."""

    status: int
    kind: str = "application/json"
    body: bytes = field(default=b"", repr=False)
    retry_after: str = ""
    is_elsewhere: bool = False


class Seen:
    """Numbers that were used, for as long as a request with one would be believed."""

    def __init__(self) -> None:
        self._since: OrderedDict[str, int] = OrderedDict()

    def use(self, nonce: str, now_ms: int) -> None:
        """Unsealed: it was used, or there are so many that nobody could know."""
        while self._since and next(iter(self._since.values())) < now_ms - 2 * LASTS_MS:
            self._since.popitem(last=False)
        if nonce in self._since:
            raise Unsealed("it was sent before")
        if len(self._since) >= MOST_SEEN:
            raise Unsealed("too many requests within a minute")
        self._since[nonce] = now_ms


def seal(key: bytes, request: Request, *, to: str, now_ms: int, nonce: str) -> Headers:
    """The headers that go with its body. TooLarge: no router would read them."""
    who = request.who
    by = {"name": who.name, "role": who.role.name.lower(), "vhost": who.vhost, "match": who.match}
    head = {"to": to, "at_ms": now_ms, "nonce": nonce, "who": by | {"by_token": who is not LOCAL}}
    head |= {"method": request.method, "target": request.target, "kind": request.kind}
    return _sealed(key, _ASKED, head, request.body)


@dataclass(frozen=True, slots=True)
class Opened:
    """A request whose head is true; its body is still to come."""

    request: Request
    _body: str
    _nonce: str
    _key: bytes = field(repr=False)

    def with_body(self, body: bytes) -> Request:
        """The request, whole. Unsealed: that is another body."""
        if not compare_digest(_digest_of(body).encode(), self._body.encode(errors="replace")):
            raise Unsealed("its body was changed")
        return replace(self.request, body=body)

    def answer(self, answered: Answered) -> Headers:
        """The headers of the answer."""
        head: dict[str, Any] = {"nonce": self._nonce, "status": answered.status, "kind": answered.kind}
        head |= {"retry_after": answered.retry_after, "elsewhere": answered.is_elsewhere}
        return _sealed(self._key, _ANSWERED, head, answered.body)


def unseal(  # noqa: PLR0913 - what is told, and what it is held against
    keys: Iterable[bytes], head: str, mac: str, *, to: str, now_ms: int, seen: Seen, is_open: bool
) -> Opened:
    """The request, once. `is_open`: this router asks nobody for a token. Unsealed."""
    key, document = _unsealed(keys, _ASKED, head, mac)
    if document.get("to") != to:
        raise Unsealed("it is for another router")
    at_ms, nonce = document.get("at_ms"), document.get("nonce")
    if not isinstance(at_ms, int) or not isinstance(nonce, str):
        raise Unsealed("it has no time and number")
    if abs(now_ms - at_ms) > LASTS_MS:
        raise Unsealed(f"the clocks of the two routers are {abs(now_ms - at_ms) // 1000} s apart, or it is old")
    seen.use(nonce, now_ms)
    return Opened(_request(document, is_open=is_open), str(document.get("body")), nonce, key)


def unseal_answer(key: bytes, head: str, mac: str, body: bytes, *, nonce: str) -> Answered:
    """The answer to the request with this number. Unsealed."""
    _, document = _unsealed([key], _ANSWERED, head, mac)
    status, kind, after = document.get("status"), document.get("kind"), document.get("retry_after")
    if document.get("nonce") != nonce or not isinstance(status, int) or not 200 <= status < 600:  # noqa: PLR2004 - of HTTP
        raise Unsealed("it answers something else")
    if not isinstance(kind, str) or not isinstance(after, str) or document.get("body") != _digest_of(body):
        raise Unsealed("its body was changed")
    after = after if after.isascii() and after.isdigit() else ""
    return Answered(status, printable(kind), body, after, document.get("elsewhere") is True)


def printable(text: str) -> str:
    """What may stand in a header; JSON where that is nothing."""
    return text if text.isascii() and text.isprintable() else "application/json"


def _request(head: dict[str, Any], *, is_open: bool) -> Request:
    method, target, kind = head.get("method"), head.get("target"), head.get("kind")
    if method not in METHODS or not isinstance(target, str) or not isinstance(kind, str):
        raise Unsealed("it has no method and target")
    if not target.startswith("/api/v1/") or not target.isascii() or not target.isprintable() or "#" in target:
        raise Unsealed("its target is none of the API")
    return Request(method, target, _who(head.get("who"), is_open=is_open), kind)


def _who(asker: Any, *, is_open: bool) -> Caller:  # noqa: ANN401 - what JSON can hold
    """Who asks, with the role and scope that they have where they asked: neither more nor less."""
    if not isinstance(asker, dict):
        raise Unsealed("it does not say who asks")
    name, role, vhost, match = (asker.get(key) for key in ("name", "role", "vhost", "match"))
    if asker.get("by_token") is not True and not is_open:
        raise Unsealed("who asks has shown no token, and this router asks for one")
    if not isinstance(name, str) or not name or str(role).upper() not in Role.__members__:
        raise Unsealed("it does not say who asks")
    if not isinstance(vhost, str | None) or not isinstance(match, str | None):
        raise Unsealed("it does not say what who asks may see")
    return caller(name, Role[str(role).upper()], vhost, match)


def _sealed(key: bytes, person: bytes, head: dict[str, Any], body: bytes) -> Headers:
    data = urlsafe_b64encode(json.dumps({"v": VERSION, "body": _digest_of(body), **head}).encode())
    if len(data) > MAX_HEAD:
        raise TooLarge
    return {HEAD: data.decode(), MAC: _mac(key, person, data)}


def _unsealed(keys: Iterable[bytes], person: bytes, head: str, mac: str) -> tuple[bytes, dict[str, Any]]:
    data, digest = head.encode(errors="replace"), mac.encode(errors="replace")
    key = next(
        (
            candidate
            for candidate in keys
            if candidate and compare_digest(_mac(candidate, person, data).encode(), digest)
        ),
        None,
    )
    if key is None:
        raise Unsealed("it is not sealed with the key of this router; see DLX_ROUTER_PROVENANCE_KEY_FILE")
    try:
        document = json.loads(urlsafe_b64decode(data))
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict) or document.get("v") != VERSION:
        raise Unsealed("it is of another version")
    return key, document


def _mac(key: bytes, person: bytes, data: bytes) -> str:
    return blake2b(data, digest_size=32, key=key, person=person).hexdigest()


def _digest_of(body: bytes) -> str:
    return blake2b(body, digest_size=32).hexdigest()
