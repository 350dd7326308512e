"""ADVERTISED_URL: where another replica may hand requests to this one; told over the broker while this one leads."""

import re
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

OFF: Final = "off"
MOST: Final = 300
_NAME: Final = re.compile(r"[a-z0-9_-]([a-z0-9._-]{0,252})")
_NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
_SCHEMES: Final = frozenset({"http", "https"})


def checked(url: str) -> str:
    """The address of a router's port, http(s)://HOST:PORT and nothing else. ValueError says what is wrong.

    Link-local, multicast and unspecified addresses are nobody's: what answers there is a cloud's metadata, say.
    """
    example = "write http://HOST:9719"
    if len(url) > MOST or not url.isascii() or not url.isprintable() or {*url} & {*" %\\"}:
        raise ValueError(f"{url[:60]!r} is no address; {example}")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise ValueError(f"{url!r}: {error}; {example}") from None
    host = parts.hostname or ""
    if parts.scheme not in _SCHEMES or not host or port == 0:
        raise ValueError(f"{url!r} is no address; {example}")
    if parts.username is not None or parts.path not in {"", "/"} or parts.query or parts.fragment or "#" in url:
        raise ValueError(f"{url!r}: host and port only, without user, path and query; {example}")
    if (why := _nobodys(host)) is not None:
        raise ValueError(f"{url!r}: {why}; {example}")
    named = f"[{host}]" if ":" in host else host
    return f"{parts.scheme}://{named}" + ("" if port is None else f":{port}")


def advertised(address: str | None, bound: str, port: int, local: str) -> str:
    """Where this router can be asked; "" where it is not to be, or nobody can say.

    `address`: ADVERTISED_URL; `bound`: HTTP_HOST. Where it listens on all addresses, `local` is the one that the broker
    sees, which replicas reach as the broker does.
    """
    if address is not None:
        return "" if address == OFF else checked(address)
    host = local if _is_unspecified(bound) else bound
    try:
        return checked(f"http://{f'[{host}]' if ':' in host else host}:{port}")
    except ValueError:
        return ""


def _nobodys(host: str) -> str | None:
    """Why no router listens there; None where one may."""
    try:
        address = ip_address(host)
    except ValueError:
        is_name = _NAME.fullmatch(host) and not _NUMBER.fullmatch(host.removesuffix(".").rpartition(".")[2])
        return None if is_name else "no name of a host"  # 127.1 and 2852039166 are addresses by another spelling
    mapped = getattr(address, "ipv4_mapped", None)
    address = address if mapped is None else mapped
    strange = (
        address.is_link_local or address.is_multicast or address.is_unspecified or str(address) == "255.255.255.255"
    )
    return "no address of one host that others reach" if strange else None


def _is_unspecified(host: str) -> bool:
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return not host
