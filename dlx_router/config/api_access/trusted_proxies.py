"""Proxies whose word is taken: that of HTTP_TRUSTED_PROXIES about addresses, that of SSO_PROXIES about people too.

Behind a proxy all people have its address. It says in X-Forwarded-For whose request it passes on, behind whatever the
client itself wrote there: so the header is read from its end, as far as those who wrote it are trusted. What comes of
it only says whose tries to log in are counted together; nobody is let in by it. docs/decisions/0106.
"""

import re
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

FORWARDED: Final = b"x-forwarded-for"
MAX_HOPS: Final = 32
_WITH_PORT: Final = re.compile(r"\[([^\]]+)\](?::[0-9]{1,5})?|([^:]+):[0-9]{1,5}")
Address = IPv4Address | IPv6Address


class TrustedProxies:
    """Those of all these lists, as the settings have them. ValueError says which entry is none."""

    def __init__(self, *lists: str | None) -> None:
        self._networks = [network for listed in lists for network in networks(listed)]

    def trusts(self, peer: str) -> bool:
        """Whether a request that comes from this address is a trusted proxy's."""
        address = _address(peer)
        return address is not None and self._has(address)

    def client(self, peer: str, headers: Iterable[tuple[bytes, bytes]]) -> str:
        """The last address on a request's way that is no trusted proxy's; of `peer` itself nothing is believed.

        Where a proxy names nothing that is an address, its own; where all are trusted, the first of them.
        """
        address = _address(peer)
        if address is None:
            return peer
        written = b",".join(value for name, value in headers if name == FORWARDED).decode("latin-1")
        for hop in reversed(written.rsplit(",", MAX_HOPS)[-MAX_HOPS:]):
            before = _address(hop.strip()) if self._has(address) else None
            if before is None:
                break
            address = before
        return str(address)

    def _has(self, address: Address) -> bool:
        return any(address in network for network in self._networks if network.version == address.version)


def networks(listed: str | None) -> list[IPv4Network | IPv6Network]:
    """The addresses of a list a,b. ValueError says which is none."""
    proxies = []
    for entry in filter(None, map(str.strip, (listed or "").split(","))):
        try:
            network = ip_network(entry)
        except ValueError:
            raise ValueError(f"{entry!r} is no address; write 10.0.0.5 or 10.0.0.0/24, and a,b for several") from None
        if network.prefixlen == 0:
            raise ValueError(f"{entry!r} is everybody, who could then be anybody; name the proxy's address")
        proxies.append(network)
    return proxies


def _address(text: str) -> Address | None:
    """None: it is none. Some proxies write a port behind it; an IPv4 address may be written as one of IPv6."""
    with_port = _WITH_PORT.fullmatch(text)
    bare = text if with_port is None else with_port[1] or with_port[2]
    try:
        address = ip_address(bare.partition("%")[0])
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
