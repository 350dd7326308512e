"""Which addresses a request of ours may go to: public ones, and those that somebody allowed by name of a network.

A URL in a file is a way to reach what only this machine can reach: the cloud's metadata, the broker's management API,
the router itself. What an IPv6 address carries inside of it (mapped, 6to4, Teredo, NAT64) is judged too.
"""

from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network
_NAT64: Final = IPv6Network("64:ff9b::/96")
_NAT64_LOCAL: Final = IPv6Network("64:ff9b:1::/48")


def refusal(address: Address, allowed: Iterable[Network]) -> str:
    """Why nothing is sent there; "" where it may be."""
    faces = [*_faces(address)]
    if any(face in network for face in faces for network in allowed if network.version == face.version):
        return ""
    return next((why for face in faces if (why := _kind(face))), "")


def _faces(address: Address) -> Iterator[Address]:
    """The address, and what it carries."""
    yield address
    if isinstance(address, IPv4Address):
        return
    yield from (one for one in (address.ipv4_mapped, address.sixtofour) if one is not None)
    yield from address.teredo or ()
    if address in _NAT64:
        yield IPv4Address(int(address) & 0xFFFF_FFFF)


def _kind(address: Address) -> str:
    if address.is_loopback:
        return "a loopback address"
    if address.is_link_local:
        return "a link-local address"
    if address.is_multicast or address.is_unspecified:
        return "no address of one host"
    if isinstance(address, IPv6Address) and (address.ipv4_mapped is not None or address in _NAT64):
        return ""  # what it carries says it
    if address.is_private or not address.is_global or address.is_reserved or address in _NAT64_LOCAL:
        return "a private address"
    return ""
