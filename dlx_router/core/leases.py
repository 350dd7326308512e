"""Leases: which token holds which letter until when, how each lease ended, and which letters were removed.

Pure: no clock, no chance, no I/O, so that a law can drive it through every order of events, kills included. A letter is
held by one lease at a time because the broker delivers it once. Times are milliseconds of a monotonic clock.
"""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from hmac import compare_digest
from typing import Final, Generic, NamedTuple, TypeVar

from dlx_router.core.bounded import MIB, Bounded
from dlx_router.core.record import mac

T = TypeVar("T")
MAX_LEASES: Final = 1500  # of a vhost; each may have a channel of its own, and a connection has 2,047
MAX_OF_ONE: Final = 1000  # of one token
MAX_BYTES: Final = 128 * MIB  # bodies are kept while they are leased: what is sent back is sent from here
ENDED: Final = 100_000  # so many ends are remembered


class Ended(StrEnum):
    """How a lease ended. `lost`: connection, channel or leader were lost, and the broker has the letter again."""

    DONE = "done"
    REDRIVEN = "redriven"
    PARKED = "parked"
    EDITED = "edited"  # changed, and sent back
    RELEASED = "released"
    EXPIRED = "expired"
    LOST = "lost"


REMOVED: Final = frozenset({Ended.DONE, Ended.REDRIVEN, Ended.PARKED, Ended.EDITED})  # from its queue
LONGEST_S: Final = 12 * 3600
CONSUMER_TIMEOUT_MS: Final = 30 * 60 * 1000  # RabbitMQ's own, where nobody sets another
QUEUES_SET_IT_SINCE: Final = (3, 12)
CONSUMERS_SET_IT_SINCE: Final = (4, 3)  # of quorum queues; classic queues are exempt from then on


def longest_s(
    kind: str | None,
    version: tuple[int, ...],
    *,
    timeout_ms: int | None,
    expires_ms: int | None,
    broker_ms: int = CONSUMER_TIMEOUT_MS,
) -> int:
    """Return how long a letter can be held (s), with a margin, before the broker takes it back.

    `kind` None: not known. `timeout_ms`: consumer-timeout of the queue, `broker_ms`: of the broker. `expires_ms`: the
    queue goes where nobody uses it, and a lease is no use that the broker counts.
    """
    limits = [LONGEST_S]
    if kind != "classic" or version < CONSUMERS_SET_IT_SINCE:
        own_ms = timeout_ms if version >= QUEUES_SET_IT_SINCE else None
        limits.append((own_ms or broker_ms) * 5 // 6000)
    if expires_ms is not None:
        limits.append(expires_ms * 5 // 6000)
    return max(min(limits), 1)


class LeaseError(Exception):
    """The request cannot be carried out; says why."""


class LeaseOver(LeaseError):
    """The lease has ended. `how` None: it is not known any more."""

    def __init__(self, how: Ended | None) -> None:
        super().__init__(WHY[how])
        self.how = how


class LeaseBusy(LeaseError):
    """Another request is ending the lease."""


class NoRoom(LeaseError):
    """No more letters can be held."""


WHY: Final = {
    Ended.DONE: "the lease has ended: the letter is done, and gone from its queue",
    Ended.REDRIVEN: "the lease has ended: the letter was sent back",
    Ended.PARKED: "the lease has ended: the letter was parked",
    Ended.EDITED: "the lease has ended: the letter was changed and sent back",
    Ended.RELEASED: "the lease has ended: it was released, and the letter is back in its queue",
    Ended.EXPIRED: "the lease has ended: its time ran out, and the letter is back in its queue",
    Ended.LOST: "the lease has ended: the router that held it lost the broker or leads no more, and the letter is back",
    None: "the lease has ended; receive again",
}


@dataclass(slots=True, eq=False)
class Lease(Generic[T]):
    """A leased letter. `key`: what tells it from letters that are not equal; `held`: the caller's own."""

    id: str
    by: str
    key: str
    size: int
    until_ms: int
    held: T
    receives: int = 1
    is_busy: bool = False  # it is being ended: it cannot run out meanwhile


class Leases(Generic[T]):
    """The leases of one term, and how the last ones ended."""

    def __init__(self, *, most: int = MAX_LEASES, most_of_one: int = MAX_OF_ONE, most_bytes: int = MAX_BYTES) -> None:
        self._most, self._most_of_one, self._most_bytes = most, most_of_one, most_bytes
        self._held: dict[str, Lease[T]] = {}
        self._of: dict[str, int] = {}
        self._ended: Bounded[str, Ended] = Bounded(most=ENDED, most_bytes=64 * MIB)
        self.held_bytes = 0

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[Lease[T]]:
        return iter([*self._held.values()])

    def __contains__(self, lease_id: object) -> bool:
        return lease_id in self._held

    def why_full(self, by: str, size: int = 0) -> str:
        """Return why no letter of this size may be held for a token, or "". A single letter may have any size."""
        if len(self._held) >= self._most:
            return f"{self._most} letters are leased, and no more can be; end some leases, or wait for their ends"
        if self._of.get(by, 0) >= self._most_of_one:
            return f"{by!r} holds {self._most_of_one} letters, and no more can be; end some leases"
        if self._held and self.held_bytes + size > self._most_bytes:
            return f"the letters that are leased have {self.held_bytes} bytes, and no more fit; end some leases"
        return ""

    def hold(self, lease: Lease[T]) -> None:
        """Begin the lease. NoRoom."""
        if why := self.why_full(lease.by, lease.size):
            raise NoRoom(why)
        self._held[lease.id] = lease
        self._of[lease.by] = self._of.get(lease.by, 0) + 1
        self.held_bytes += lease.size

    def find(self, lease_id: str) -> Lease[T]:
        """Return the lease. LeaseOver, LeaseBusy."""
        lease = self._held.get(lease_id)
        if lease is None:
            raise LeaseOver(self._ended.get(lease_id))
        if lease.is_busy:
            raise LeaseBusy("the lease is just being ended by another request; ask again")
        return lease

    def extend(self, lease_id: str, until_ms: int) -> None:
        """Let the lease end then instead. LeaseOver, LeaseBusy."""
        self.find(lease_id).until_ms = until_ms

    def begin_end(self, lease_id: str) -> Lease[T]:
        """Reserve the lease until `end` or `keep`: it does not expire meanwhile. LeaseOver, LeaseBusy."""
        lease = self.find(lease_id)
        lease.is_busy = True
        return lease

    def keep(self, lease: Lease[T]) -> None:
        """Go on with a lease that could not be ended."""
        lease.is_busy = False

    def end(self, lease: Lease[T], how: Ended) -> bool:
        """End the lease; return False if it had ended before, which stays true."""
        if self._held.pop(lease.id, None) is None:
            return False
        self.held_bytes -= lease.size
        left = self._of.pop(lease.by) - 1
        if left:
            self._of[lease.by] = left
        self._ended[lease.id] = how
        return True

    def due(self, now_ms: int) -> list[Lease[T]]:
        """Return the leases whose time is over."""
        return [lease for lease in self._held.values() if lease.until_ms <= now_ms and not lease.is_busy]

    def how_ended(self, lease_id: str) -> Ended | None:
        """Return how a lease ended, as far as known."""
        return self._ended.get(lease_id)

    def learn(self, lease_id: str, how: Ended) -> None:
        """Remember how a lease of another leader ended."""
        if lease_id not in self._held and lease_id not in self._ended:
            self._ended[lease_id] = how


class Removed:
    """Letters that leases removed: a basic.ack has no confirm, so a node that is killed may redeliver them.

    Equal letters share a `key`. A key counts only where an ack can have been lost, and once for each removal: the
    `epoch` in which it was acked is over, or the delivery was delivered before.
    """

    def __init__(self, *, most: int = ENDED) -> None:
        self._keys: Bounded[str, tuple[_Removal, ...]] = Bounded(most=most, most_bytes=64 * MIB)
        self._leases: Bounded[str, bool] = Bounded(most=most, most_bytes=64 * MIB)

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, key: str, lease_id: str, epoch: int) -> None:
        """Remember that this lease removed that letter; safe to repeat."""
        if lease_id not in self._leases:
            self._leases[lease_id] = True
            self._keys[key] = (*self._keys.get(key, ()), (epoch, False, lease_id))

    def redelivered_by(self, key: str, epoch: int, *, redelivered: bool) -> str | None:
        """Return the lease that may have removed this very letter, or None; the caller parks it.

        In one epoch each removal counts once: what comes then is an equal letter. In a later epoch it counts again.
        """
        removals = self._keys.get(key, ())
        for at, (since, was_back, lease_id) in enumerate(removals):
            if since < epoch or (redelivered and not was_back):
                self._keys[key] = (*removals[:at], *removals[at + 1 :], (epoch, True, lease_id))
                return lease_id
        return None

    def not_again(self, key: str, lease_id: str) -> None:
        """Let the removal count once more, because the letter could not be parked."""
        removals = self._keys.get(key, ())
        self._keys[key] = tuple((since, was and name != lease_id, name) for since, was, name in removals)


_Removal = tuple[int, bool, str]  # epoch of its last ack, whether it came back in it, lease


MAX_CHARS: Final = 4096
_PURPOSE: Final = b"lease\0"


class Claims(NamedTuple):
    """What a handle says: it is signed, so that no token can make another one's, and names the leader's term."""

    vhost: str
    term: int
    lease_id: str
    by: str


def handle_of(claims: Claims, key: bytes) -> str:
    """Return the handle, fit for a path of a URL."""
    data = json.dumps(claims, separators=(",", ":")).encode()
    return f"{urlsafe_b64encode(data).rstrip(b'=').decode()}.{mac(_PURPOSE + data, key)}"


def vhost_of(handle: str) -> str | None:
    """Return the vhost whose key can verify the handle; None if it is no handle."""
    claims = _claims(handle)
    return None if claims is None else claims.vhost


def verified(handle: str, key: bytes) -> Claims | None:
    """Return what the handle says; None if this key did not sign it."""
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
