"""An endpoint: one receiver of webhooks, and what its URL and secrets may be. Neither appears in a repr or an error."""

import base64
import binascii
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from dlx_router.core.addresses import Network
from dlx_router.core.notices import EVENTS
from dlx_router.core.selection import Index

FORMATS: Final = ("cloudevents", "slack", "teams")
ALL_EVENTS: Final = frozenset(EVENTS)
PREFIX: Final = "whsec_"
MIN_SECRET, MAX_SECRET = 24, 64  # bytes, as Standard Webhooks has them
MAX_URL_BYTES: Final = 2048
_HOST: Final = re.compile(rb"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?")
SECRET_ADVICE: Final = f"write {PREFIX} and the base64 of {MIN_SECRET} to {MAX_SECRET} random bytes"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One receiver. `host` may be shown, `url` may not. `secrets`: each signs, for whoever knows one of them."""

    name: str
    host: str
    url: str = field(repr=False)
    format: str
    events: frozenset[str]
    vhost: str | None = None
    match: tuple[str, ...] | None = None
    secrets: tuple[bytes, ...] = field(default=(), repr=False)
    allowed: tuple[Network, ...] = ()
    ca_file: str | None = None
    _selector: Index | None = field(default=None, repr=False, compare=False)

    def wants(self, kind: str, vhost: str, queues: Iterable[str]) -> bool:
        """Whether it is to be told this. What is about no queue and no vhost is told to all who ask for it."""
        if kind not in self.events or (vhost and self.vhost not in {None, vhost}):
            return False
        named = [*queues]
        return self._selector is None or not named or any(map(self._selector.fitting, named))


Endpoints = Mapping[str, Endpoint]


def url_fault(text: str) -> str:
    """What is wrong with a URL, without any of it; "" where nothing is."""
    try:
        parts = urlsplit(text)
        port = parts.port  # raises where it is no number
        host = (parts.hostname or "").encode("idna")
        is_literal = "[" in parts.netloc and bool(ip_address(parts.hostname or ""))
        host.decode("idna")  # raises where it cannot be a name in another script
    except ValueError:
        return "no URL; write https://host/path"
    if len(text) > MAX_URL_BYTES or not text.isascii() or not text.isprintable() or " " in text:
        return f"no URL: at most {MAX_URL_BYTES} ASCII characters without spaces; spell others as %XX"
    if parts.scheme not in {"http", "https"} or not host:
        return "no URL that can be posted to; write https://host/path"
    if not is_literal and not _HOST.fullmatch(host):
        return "no URL: its host is no name of letters, digits, - and .; write https://host/path"
    if "@" in parts.netloc or parts.fragment or port == 0:
        return "a URL with credentials, a # part or port 0; receivers know us by our signature (secret-file)"
    return ""


def made_name(url: str) -> str:
    """The host, and a mark of the whole URL: two of one host are told apart, and none is told."""
    mark = blake2b(url.encode(), digest_size=4, person=b"dlx-webhook").hexdigest()
    return f"{urlsplit(url).hostname}-{mark}"


def secret_bytes(text: str) -> bytes:
    """The key that a secret of Standard Webhooks means. Raises ValueError, without any of it."""
    try:
        key = base64.b64decode(text.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"not base64; {SECRET_ADVICE}") from None
    if not text.startswith(PREFIX) or not MIN_SECRET <= len(key) <= MAX_SECRET:
        raise ValueError(f"{len(key)} bytes{'' if text.startswith(PREFIX) else f' without {PREFIX}'}; {SECRET_ADVICE}")
    return key
