"""Where the broker is, as settings. No message of this module repeats a URL: it holds a password."""

from dataclasses import dataclass, field
from urllib.parse import urlsplit

from pydantic import SecretStr

from dlx_router.wire import address


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """Nodes of one cluster in the order in which they are tried, who we are, and which vhost is ours by default."""

    hosts: tuple[tuple[str, int], ...]
    user: str
    password: SecretStr = field(repr=False)
    vhost: str = "/"
    tls: bool = False


def broker_address(url: str) -> BrokerAddress:
    """Parse an AMQP URL as `wire.address.parse`, the password kept from every repr; ValueError says what is wrong."""
    found = address.parse(url)
    return BrokerAddress(found.hosts, found.user, SecretStr(found.password), found.vhost, found.tls)


def management_url(url: str) -> str:
    """The URL of a management API, checked; ValueError says what is wrong without repeating it."""
    form = "write http://USER:PASSWORD@HOST:15672 (or https://)"
    try:
        parts = urlsplit(url.strip())
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or "?" in url or "#" in url:
        raise ValueError(f"not the URL of a management API; {form}")
    return url.strip()
