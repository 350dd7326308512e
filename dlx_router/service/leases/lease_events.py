"""Events of leases: what the journal says of them, and what another leader reads of it. Pure."""

import json
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from dlx_router.core.leases import REMOVED, Ended, Lease
from dlx_router.journal.events import NO_BODY, Ruling
from dlx_router.journal.privacy import rule_of
from dlx_router.journal.strict_json import decoded
from dlx_router.service.dispatch.events import letter_line
from dlx_router.service.leases.held_letter import HeldLetter

ENDED: Final = b'"kind":"lease_ended"'  # in each line that `removals` looks at
_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=True).encode


class Removal(NamedTuple):
    """A letter that a lease took out of its queue."""

    key: str
    lease_id: str
    how: Ended


def begun_line(lease: Lease[HeldLetter], router_id: str, *, now_ms: int, due_ms: int) -> bytes:
    """`leased`: until when."""
    return _line("leased", lease, {"receives": lease.receives}, router_id, now_ms=now_ms, due_ms=due_ms)


def ended_line(lease: Lease[HeldLetter], how: Ended, router_id: str, now_ms: int) -> bytes:
    """`lease_ended`: how. Where the letter is gone, with its key: what the broker brings back is known by it."""
    more = {"key": lease.key} if how in REMOVED else {}
    return _line("lease_ended", lease, {"receives": lease.receives, "ended": how, **more}, router_id, now_ms=now_ms)


def removals(batch: bytes) -> Iterator[Removal]:
    """What a batch of the journal tells of removed letters. Nothing is fatal."""
    if ENDED not in batch:
        return
    for line in batch.splitlines():
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
    *,
    now_ms: int,
    due_ms: int | None = None,
) -> bytes:
    held, letter, job = lease.held, lease.held.letter, lease.held.job
    ruling = Ruling(
        kind,
        0,
        router_id,
        policy=job.policy.policy if job.policy is not None else "",
        revision=job.in_force.policies.revision,
        redrive_id=lease.id,
    )
    document = _encode({"id": lease.id, "by": lease.by, **details})
    extra = f'"lease":{document},{NO_BODY}'
    return letter_line(letter, held.envelope, ruling, rule_of(job.policy), ts_ms=now_ms, due_ms=due_ms, extra=extra)
