"""Leases: who holds which letter until when, how each lease ended, and which letters are gone for good.

Pure: no clock, no chance, no I/O, so that a law can drive it through every order of events, kills included. A letter is
held by one lease at a time because the broker delivers it once; what is kept here is whose that is. Times are
milliseconds of one clock that only goes forward.

`Removed` is about what the broker forgets: a basic.ack has no confirm, and a node that is killed may bring back what
was acked. What a lease removed is told by the journal before it is acked, so a copy that comes back can be known.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Generic, TypeVar

from dlx_router.core.bounded import MIB, Bounded

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


REMOVED: Final = frozenset({Ended.DONE, Ended.REDRIVEN, Ended.PARKED, Ended.EDITED})
"""The letter is in its queue no more."""


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
    """What was asked of a lease cannot be done; says why."""


class LeaseOver(LeaseError):
    """It has ended. `how` None: nobody remembers."""

    def __init__(self, how: Ended | None) -> None:
        super().__init__(WHY[how])
        self.how = how


class LeaseBusy(LeaseError):
    """Somebody is just ending it."""


class NoRoom(LeaseError):
    """No more can be held."""


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
    """One letter in somebody's hands. `key`: it with all that tells it from others; `held`: the caller's own."""

    id: str
    by: str
    key: str
    size: int
    until_ms: int
    held: T
    receives: int = 1
    is_busy: bool = False  # it is being ended: it cannot run out meanwhile


class Leases(Generic[T]):
    """Those that are held now, and how the last ones ended."""

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
        """Why no letter of this size may be held for them; "" where it may. One that is alone may have any size."""
        if len(self._held) >= self._most:
            return f"{self._most} letters are leased, and no more can be; end some leases, or wait for their ends"
        if self._of.get(by, 0) >= self._most_of_one:
            return f"{by!r} holds {self._most_of_one} letters, and no more can be; end some leases"
        if self._held and self.held_bytes + size > self._most_bytes:
            return f"the letters that are leased have {self.held_bytes} bytes, and no more fit; end some leases"
        return ""

    def hold(self, lease: Lease[T]) -> None:
        """It begins. NoRoom."""
        if why := self.why_full(lease.by, lease.size):
            raise NoRoom(why)
        self._held[lease.id] = lease
        self._of[lease.by] = self._of.get(lease.by, 0) + 1
        self.held_bytes += lease.size

    def find(self, lease_id: str) -> Lease[T]:
        """The lease. LeaseOver, LeaseBusy."""
        lease = self._held.get(lease_id)
        if lease is None:
            raise LeaseOver(self._ended.get(lease_id))
        if lease.is_busy:
            raise LeaseBusy("the lease is just being ended by another request; ask again")
        return lease

    def extend(self, lease_id: str, until_ms: int) -> None:
        """It ends then instead. LeaseOver, LeaseBusy."""
        self.find(lease_id).until_ms = until_ms

    def begin_end(self, lease_id: str) -> Lease[T]:
        """Nobody else ends it, and it does not run out, until `end` or `keep`. LeaseOver, LeaseBusy."""
        lease = self.find(lease_id)
        lease.is_busy = True
        return lease

    def keep(self, lease: Lease[T]) -> None:
        """It could not be ended as was asked: it goes on, or runs out now."""
        lease.is_busy = False

    def end(self, lease: Lease[T], how: Ended) -> bool:
        """It has ended; False where it had before, and then that stays true."""
        if self._held.pop(lease.id, None) is None:
            return False
        self.held_bytes -= lease.size
        left = self._of.pop(lease.by) - 1
        if left:
            self._of[lease.by] = left
        self._ended[lease.id] = how
        return True

    def due(self, now_ms: int) -> list[Lease[T]]:
        """Those whose time has run out."""
        return [lease for lease in self._held.values() if lease.until_ms <= now_ms and not lease.is_busy]

    def how_ended(self, lease_id: str) -> Ended | None:
        """As far as is remembered."""
        return self._ended.get(lease_id)

    def learn(self, lease_id: str, how: Ended) -> None:
        """How a lease of another leader ended."""
        if lease_id not in self._held and lease_id not in self._ended:
            self._ended[lease_id] = how


class Removed:
    """Letters that leases removed. A copy that the broker brings back is told from a letter that is only equal.

    Known by `key`, which a letter and a twin of it share: equal in every byte, dead in the same millisecond. Only where
    an ack can have been lost does a key count, and once for each removal: the connection on which it was acked
    (`epoch`) is over, or the delivery was delivered before.
    """

    def __init__(self, *, most: int = ENDED) -> None:
        self._keys: Bounded[str, tuple[_Removal, ...]] = Bounded(most=most, most_bytes=64 * MIB)
        self._leases: Bounded[str, bool] = Bounded(most=most, most_bytes=64 * MIB)

    def __len__(self) -> int:
        return len(self._keys)

    def add(self, key: str, lease_id: str, epoch: int) -> None:
        """This lease removed that letter; safe to repeat."""
        if lease_id not in self._leases:
            self._leases[lease_id] = True
            self._keys[key] = (*self._keys.get(key, ()), (epoch, False, lease_id))

    def came_back(self, key: str, epoch: int, *, redelivered: bool) -> str | None:
        """The lease that removed this very letter, as far as can be told, and whoever asks removes it again; or None.

        In the same epoch it is told once: what comes then is a twin. That ack may be lost too: later it counts again.
        """
        removals = self._keys.get(key, ())
        for at, (since, was_back, lease_id) in enumerate(removals):
            if since < epoch or (redelivered and not was_back):
                self._keys[key] = (*removals[:at], *removals[at + 1 :], (epoch, True, lease_id))
                return lease_id
        return None

    def not_again(self, key: str, lease_id: str) -> None:
        """It could not be removed again, and comes once more."""
        removals = self._keys.get(key, ())
        self._keys[key] = tuple((since, was and name != lease_id, name) for since, was, name in removals)


_Removal = tuple[int, bool, str]  # epoch of its last ack, whether it came back in it, lease
