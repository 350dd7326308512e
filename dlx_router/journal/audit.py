"""Audit events: who did what to letters, groups or tasks. What an operator sets is true because it stands here."""

import json
from collections.abc import Mapping
from secrets import token_hex
from typing import Any, Final

from dlx_router.journal.fields import VERSION

COMMENT: Final = "letter.comment"  # a note on a letter
MAX_DETAILS_BYTES: Final = 131_072  # an event has to fit into a batch with room for others
_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode


class AuditError(ValueError):
    """The details do not fit into an event, or are no JSON."""


def audit(router_id: str, vhost: str, *, actor: str, action: str, details: Mapping[str, Any], ts_ms: int) -> bytes:
    """One whole line, its end included. `action`: noun.verb, `group.set` say. Raises AuditError.

    Each call makes an event of its own: the same thing done twice was done twice.
    """
    event = {
        "v": VERSION,
        "event_id": f"audit-{token_hex(16)}",
        "kind": "audit",
        "router_id": router_id,
        "vhost": vhost,
        "actor": actor,
        "action": action,
        "details": dict(details),
        "ts_ms": ts_ms,
    }
    try:
        line = f"{_encode(event)}\n".encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise AuditError(f"the details of {action} are no JSON: {error}") from None
    if len(line) > MAX_DETAILS_BYTES:
        raise AuditError(f"the details of {action} have {len(line)} bytes; at most {MAX_DETAILS_BYTES}")
    return line
