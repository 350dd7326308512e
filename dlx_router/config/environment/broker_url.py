"""Where the broker is, as settings. No message of this module repeats a URL: it holds a password."""

from dataclasses import dataclass, field

from pydantic import SecretStr

from dlx_router.wire import address


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """Nodes of one cluster in the order of the URL, who we are, and which vhost is ours by default."""

    hosts: tuple[tuple[str, int], ...]
    user: str
    password: SecretStr = field(repr=False)
    vhost: str = "/"
    tls: bool = False


def broker_address(url: str) -> BrokerAddress:
    """Parse an AMQP URL as `wire.address.parse`, the password kept from every repr; ValueError says what is wrong."""
    parsed = address.parse(url)
    return BrokerAddress(parsed.hosts, parsed.user, SecretStr(parsed.password), parsed.vhost, parsed.tls)


def management_url(url: str) -> str:
    """The URL of a management API, checked; ValueError says what is wrong without repeating it."""
    address.places(url)
    return url.strip()
