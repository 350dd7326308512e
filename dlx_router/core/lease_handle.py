"""Handles: what names a lease to who may end it, and to nobody else. Pure.

Signed with the key that signs records, so nobody can guess one or make one of another's; it tells vhost, term of the
leader, lease and holder, so that any later leader can say what became of it.
"""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hmac import compare_digest
from typing import Final, NamedTuple

from dlx_router.core.record import mac

MAX_CHARS: Final = 4096
_PURPOSE: Final = b"lease\0"


class Claims(NamedTuple):
    """What a handle says."""

    vhost: str
    term: int
    lease_id: str
    by: str


def handle_of(claims: Claims, key: bytes) -> str:
    """The handle, fit for a path."""
    data = json.dumps(claims, separators=(",", ":")).encode()
    return f"{_text(data)}.{mac(_PURPOSE + data, key)}"


def vhost_of(handle: str) -> str | None:
    """Whose key can verify it; None where it is no handle."""
    claims = _claims(handle)
    return None if claims is None else claims.vhost


def verified(handle: str, key: bytes) -> Claims | None:
    """What it says; None where this key did not sign it."""
    claims, digest = _claims(handle), handle.partition(".")[2]
    if claims is None or not digest.isascii() or not compare_digest(digest, mac(_PURPOSE + _data(handle), key)):
        return None
    return claims


def _claims(handle: str) -> Claims | None:
    if len(handle) > MAX_CHARS:
        return None
    try:
        vhost, term, lease_id, by = json.loads(_data(handle))
    except (ValueError, TypeError, RecursionError):
        return None
    is_sound = isinstance(term, int) and all(isinstance(member, str) for member in (vhost, lease_id, by))
    return Claims(vhost, term, lease_id, by) if is_sound else None


def _data(handle: str) -> bytes:
    text = handle.partition(".")[0]
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _text(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()
