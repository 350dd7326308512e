"""Events of leases: written to the journal, and read again by another leader. Pure."""

import json
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from dlx_router.core.leases import REMOVED, Ended, Lease
from dlx_router.journal.events import NO_BODY, Ruling
from dlx_router.journal.privacy import rule_of
from dlx_router.journal.strict_json import decoded
from dlx_router.service.dispatch.events import letter_line
from dlx_router.service.leases.holder import HeldLetter

ENDED: Final = b'"kind":"lease_ended"'  # in each line that `removals` parses
_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=True).encode


class Removal(NamedTuple):
    """A letter that a lease removed from its queue."""

    key: str
    lease_id: str
    how: Ended


def leased_line(lease: Lease[HeldLetter], router_id: str, *, now_ms: int, due_ms: int) -> bytes:
    """Return the event `leased`."""
    return _line("leased", lease, {}, router_id, now_ms, due_ms)


def ended_line(lease: Lease[HeldLetter], how: Ended, router_id: str, now_ms: int) -> bytes:
    """Return the event `lease_ended`, with the letter's key if it was removed: a redelivery is recognised by it."""
    key = {"key": lease.key} if how in REMOVED else {}
    return _line("lease_ended", lease, {"ended": how, **key}, router_id, now_ms)


def removals(batch: bytes) -> Iterator[Removal]:
    """Yield what a batch of the journal says of removed letters; ignore lines that are malformed."""
    for line in batch.splitlines() if ENDED in batch else ():
        if ENDED in line and (removal := _removal(line)) is not None:
            yield removal


def _removal(line: bytes) -> Removal | None:
    try:
        lease = decoded(line.decode())["lease"]
        key, lease_id, how = lease["key"], lease["id"], Ended(lease["ended"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return Removal(key, lease_id, how) if isinstance(key, str) and isinstance(lease_id, str) else None


def _line(
    kind: str,
    lease: Lease[HeldLetter],
    details: dict[str, Any],
    router_id: str,
    now_ms: int,
    due_ms: int | None = None,
) -> bytes:
    held = lease.held
    policy = held.policy.policy if held.policy is not None else ""
    ruling = Ruling(kind, 0, router_id, policy=policy, revision=held.revision, redrive_id=lease.id)
    document = _encode({"id": lease.id, "by": lease.by, "receives": lease.receives, **details})
    extra = f'"lease":{document},{NO_BODY}'
    rule = rule_of(held.policy)
    return letter_line(held.letter, held.envelope, ruling, rule, ts_ms=now_ms, due_ms=due_ms, extra=extra)
