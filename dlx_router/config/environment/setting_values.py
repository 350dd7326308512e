"""What a setting's value is read as, and what it has to be. Each raises ValueError, which says what to write."""

import re
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import BeforeValidator, SecretStr

from dlx_router.config.api_access import allowed_hosts, replica_address, single_sign_on, trusted_proxies
from dlx_router.config.environment import broker_url
from dlx_router.config.units import duration_ms, size_bytes


def number_or_text(value: object) -> str | int:
    """Digits are a number."""
    text = str(value).strip()
    return int(text) if re.fullmatch(r"[0-9]{1,18}", text, re.ASCII) else text


def duration(value: object) -> int:
    """Milliseconds."""
    return duration_ms(number_or_text(value))


def size(value: object) -> int:
    """Bytes."""
    return size_bytes(number_or_text(value))


def lower(value: object) -> object:
    """Whatever its case."""
    return value.lower() if isinstance(value, str) else value


def broker(value: SecretStr) -> SecretStr:
    """The URL of a broker."""
    broker_url.broker_address(value.get_secret_value())
    return value


def management(value: SecretStr) -> SecretStr:
    """The URL of a management API."""
    broker_url.management_url(value.get_secret_value())
    return value


def hosts(value: str) -> str:
    """Names of hosts."""
    allowed_hosts.split(value)
    return value


def http_url(value: str) -> str:
    """A URL as people type it."""
    parts = urlsplit(value)
    if (
        parts.scheme not in {"http", "https"}
        or not parts.hostname
        or parts.query
        or parts.fragment
        or "@" in parts.netloc
    ):
        raise ValueError("not https://HOST/PATH; write it as people type it, without user, ? and #")
    return value


def advertised(value: str) -> str:
    """Where other replicas find this one."""
    return value if value == replica_address.OFF else replica_address.checked(value)


def proxies(value: str) -> str:
    """Addresses of proxies."""
    trusted_proxies.networks(value)
    return value


def headers(value: str) -> str:
    """Names of headers."""
    single_sign_on.header_names(value)
    return value


DurationMs = Annotated[int, BeforeValidator(duration)]
SizeBytes = Annotated[int, BeforeValidator(size)]
OptionalPath = str | None
