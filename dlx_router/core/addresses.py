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
_GLOBAL: Final = IPv6Network("2000::/3")  # all that was ever given to networks of the internet
# What no version of Python calls private, or not every one: clouds answer machines of theirs there.
_CLOUD: Final = (IPv4Network("192.0.0.0/24"), IPv4Network("168.63.129.16/32"))


def refusal(address: Address, allowed: Iterable[Network]) -> str:
    """Why nothing is sent there; "" where it may be.

    What is allowed is the address as it stands, or each that it carries and that would be refused: one of two that are
    allowed says nothing of the other.
    """
    networks = [*allowed]
    if _is_in(address, networks):
        return ""
    return next((why for face in _faces(address) if (why := _kind(face)) and not _is_in(face, networks)), "")


def _is_in(address: Address, networks: Iterable[Network]) -> bool:
    return any(address in network for network in networks if network.version == address.version)


def _faces(address: Address) -> Iterator[Address]:
    """The address, and what it carries."""
    yield address
    if isinstance(address, IPv4Address):
        return
    yield from (carried for carried in (address.ipv4_mapped, address.sixtofour) if carried is not None)
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
    if isinstance(address, IPv6Address) and (address.ipv4_mapped or address.sixtofour or address in _NAT64):
        return ""  # what it carries says it, and versions of Python differ in what they say of 6to4
    is_local = isinstance(address, IPv6Address) and (address not in _GLOBAL or address in _NAT64_LOCAL)
    if is_local or address.is_private or not address.is_global or address.is_reserved or _is_in(address, _CLOUD):
        return "a private address"
    return ""
