"""Where a broker is, read from its URLs. No message of this module repeats one: it holds a password."""

from dataclasses import dataclass, field
from typing import Final
from urllib.parse import unquote, urlsplit

_PORTS: Final = {"amqp": 5672, "amqps": 5671}
_API: Final = "write http://USER:PASSWORD@HOST:15672 (or https://; several as HOST1:15672,HOST2:15672)"
_FORM: Final = "write amqp://USER:PASSWORD@HOST:PORT/VHOST (amqps:// for TLS; several as HOST1:PORT,HOST2:PORT)"
_ENCODE: Final = "percent-encode / (as %2F), ?, #, @, : and , in user, password and vhost"


@dataclass(frozen=True, slots=True)
class Address:
    """Nodes of one cluster in the order of the URL, who we are, and our vhost."""

    hosts: tuple[tuple[str, int], ...]
    user: str
    password: str = field(repr=False)
    vhost: str
    tls: bool


def parse(url: str) -> Address:
    """Parse an AMQP URL, or raise ValueError that says what is wrong without repeating it.

    No path and `/` both mean vhost `/`, as in other clients; no user means guest, as in the broker.
    """
    scheme, separator, rest = url.strip().partition("://")
    if scheme[:1] in {"'", '"'}:
        raise ValueError("begins with a quote; write it without quotes, which only a shell needs")
    if scheme not in _PORTS or not separator:
        raise ValueError(f"not an AMQP URL; {_FORM}")
    if "?" in rest or "#" in rest:
        raise ValueError(f"has a query or fragment; heartbeat and TLS have settings of their own, and {_ENCODE}")
    authority, _, vhost = rest.partition("/")
    if "@" in vhost and "@" not in authority:
        raise ValueError(f"has a / in user or password; {_ENCODE}")
    if "/" in vhost:
        raise ValueError(f"has a second / after the hosts; {_ENCODE}")
    login, _, hosts = authority.rpartition("@")
    user, colon, password = login.partition(":")
    return Address(
        hosts=tuple(_host(host, _PORTS[scheme]) for host in hosts.split(",")),
        user=_decoded(user) or "guest",
        password=_decoded(password) if colon else "guest",
        vhost=_decoded(vhost) or "/",
        tls=scheme == "amqps",
    )


@dataclass(frozen=True, slots=True)
class Places:
    """Where a management API is, by the nodes of one cluster, and who asks; `where` begin the address of any path."""

    where: tuple[str, ...]
    user: str
    password: str = field(repr=False)


def places(url: str) -> Places:
    """Parse the URL of a management API, or raise ValueError that says what is wrong without repeating it."""
    scheme, separator, rest = url.strip().partition("://")
    if scheme not in {"http", "https"} or not separator or "?" in rest or "#" in rest:
        raise ValueError(f"not the URL of a management API; {_API}")
    authority, slash, path = rest.partition("/")
    login, _, hosts = authority.rpartition("@")
    user, _, password = login.partition(":")
    base = (slash + path).rstrip("/").removesuffix("/api")
    where = tuple(f"{scheme}://{_written(host)}{base}" for host in hosts.split(","))
    return Places(where, unquote(user) or "guest", unquote(password) or "guest")


def _written(host: str) -> str:
    try:
        name, port = _host(host, 0)
    except ValueError:
        raise ValueError(f"has an empty or unreadable host; {_API}") from None
    return f"{f'[{name}]' if ':' in name else name}{f':{port}' if port else ''}"


def _decoded(text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise ValueError(f"is not UTF-8 after percent-decoding; {_ENCODE}") from None


def _host(written: str, default_port: int) -> tuple[str, int]:
    try:
        parts = urlsplit(f"//{written}")
        name, port = parts.hostname, parts.port
    except ValueError:
        raise ValueError(f"has a host or port that cannot be read; {_FORM}") from None
    if not name or parts.path or "@" in written or written.endswith(":") or port == 0:
        raise ValueError(f"has an empty or unreadable host; {_FORM}")
    return name, port or default_port
