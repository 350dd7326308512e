"""HTTP_ALLOWED_HOSTS, and who a request came from by its own words: Host, Origin, Sec-Fetch-Site.

A page in somebody's browser can send requests to any address that the browser reaches. What stops it from reading the
answers is the name: the browser compares names. So whoever makes a name of his lead here (DNS rebinding) can read, and
only an address, or a name that nobody outside can make lead here, is trusted. docs/decisions/0057.
"""

import re
from collections.abc import Iterable
from ipaddress import ip_address
from typing import Final

ANY: Final = "*"
_BRACKETED: Final = re.compile(r"\[([0-9a-f:.]{2,45})\](?::([0-9]{0,5}))?")
_NAMED: Final = re.compile(r"([a-z0-9_-][a-z0-9._-]{0,253})(?::([0-9]{0,5}))?")
_ORIGIN: Final = re.compile(r"(https?)://(.+)")
_PORTS: Final = {"http": "80", "https": "443"}
_LOCAL: Final = frozenset({"localhost", "localhost.localdomain"})
# Kubernetes' services, mDNS, and what ICANN and RFC 8375 keep for private use: no public zone ends so.
_PRIVATE: Final = re.compile(r"[^.]+|.+\.(svc|local|internal|home\.arpa)")


def authority(header: str) -> tuple[str, str] | None:
    """Host and port ("" if it is not told) of a header; None where it is neither a name nor an address."""
    match = _BRACKETED.fullmatch(header.lower()) or _NAMED.fullmatch(header.lower())
    if match is None or (header.startswith("[") and not _is_address(match[1])):
        return None
    return match[1].removesuffix("."), match[2] or ""


def is_loopback(host: str) -> bool:
    """An address or a name of this very machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() in _LOCAL


class Hosts:
    """The names that are this router's own, where it listens at `bound`; `listed` as HTTP_ALLOWED_HOSTS says."""

    def __init__(self, bound: str = "127.0.0.1", listed: str | None = None) -> None:
        self._listed = frozenset(split(listed))
        self._own = self._listed | {bound.lower()}
        self._is_private = is_loopback(bound)

    def allow(self, host: str | None) -> bool:
        """Whether Host is no name of somebody else's. None: HTTP/1.0 may leave it out, and no browser does."""
        if host is None or ANY in self._listed:
            return True
        if (parts := authority(host)) is None:
            return False
        name, _ = parts
        if name in self._own or _is_address(name) or is_loopback(name):
            return True
        return not self._is_private and _PRIVATE.fullmatch(name) is not None

    def is_foreign(self, origin: str, host: str | None) -> bool:
        """Whether a page of this Origin is somebody else's: neither of this Host nor of a listed name."""
        match = _ORIGIN.fullmatch(origin)
        theirs = authority(match[2]) if match is not None else None
        if match is None or theirs is None:
            return True
        ours = authority(host) if host is not None else None
        port = _PORTS[match[1]]
        same = ours is not None and (theirs[0], theirs[1] or port) == (ours[0], ours[1] or port)
        return not same and theirs[0] not in self._listed


def split(listed: str | None) -> list[str]:
    """The names of HTTP_ALLOWED_HOSTS. ValueError says which is none."""
    names = [name.strip().lower().removesuffix(".") for name in (listed or "").split(",") if name.strip()]
    for name in names:
        parts = authority(name)
        if name != ANY and (parts is None or parts[1] or ":" in name):
            raise ValueError(f"{name!r} is no host name; write names without scheme and port, a,b, or {ANY} for any")
    return names


def not_ours(host: str | None) -> str:
    """What is said to who came by such a name."""
    named = repr((host or "")[:255])
    return f"{named} is no name of this router; ask by its address, or list the name in DLX_ROUTER_HTTP_ALLOWED_HOSTS"


def foreign_page(hosts: Hosts, host: str | None, origins: Iterable[str], sites: Iterable[str]) -> str | None:
    """Why a request that changes something is a foreign page's; None where it is not. Each header may come repeatedly.

    Programs send neither header. `Sec-Fetch-Site: same-site` is foreign too: another port of this machine, or another
    name under the same domain.
    """
    for origin in origins:
        if hosts.is_foreign(origin, host):
            return f"a page of {origin[:255]!r} may not change anything here; see DLX_ROUTER_HTTP_ALLOWED_HOSTS"
    for site in sites:
        if site.strip().lower() not in {"same-origin", "none"}:
            return f"a page of another origin (Sec-Fetch-Site: {site[:32]!r}) may not change anything here"
    return None


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
