"""Own queues that refuse: which took no letter just now, and how much may be taken from attached queues meanwhile.

An attached queue may delete what is returned too often, and whatever ends a session returns all that is here of it. So
while the way to an own queue is not known to be open nothing more is taken there; and where sessions end again and
again, one letter at a time. Any letter may come to parking or quarantine; to a rung come those of some policies, so it
stops only the attached queues whose letters it refused. It is known for as long as the router runs: a new session does
not forget it.
"""

import time
from collections.abc import Callable
from typing import Final, Protocol

from dlx_router.core.letter import Arrival
from dlx_router.core.refusal import SourceKind
from dlx_router.service.dispatch.cooldown import Cooldown
from dlx_router.service.inflight.decoder import Place
from dlx_router.telemetry.logs import log
from dlx_router.telemetry.readiness import Readiness

STEADY_S: Final = 30.0
FORBIDDEN_S: Final = 120.0
DEFERRED_S: Final = 600.0
COSTLY: Final = 2  # sessions in a row that ended soon, and returned letters of attached queues
Heard = Callable[[], None]


class HeldBytes(Protocol):
    """Who holds letters for own queues."""

    @property
    def held_bytes(self) -> int:
        """How many bytes they have."""


class RefusingQueues:
    """Of one vhost. Whoever listens is told of each change, as long as the session lasts."""

    def __init__(self, vhost: str, readiness: Readiness) -> None:
        self._vhost, self._readiness = vhost, readiness
        self.queues: dict[str, str] = {}  # those that refused a letter and have confirmed none since → why
        self.catching: frozenset[str] = frozenset()  # own queues whose rejected letters surely go to quarantine
        self.alone: dict[str, str] = {}  # attached queues that are not touched before the router starts anew → why
        self._spent: set[str] = set()  # attached queues with a letter that has no returns left to prove anything
        self._refused: dict[str, set[str]] = {}  # rungs that refuse → the queues whose letters
        self._held: dict[HeldBytes, frozenset[str]] = {}  # who holds letters → for which own queues
        self.forbidden = Cooldown[str](FORBIDDEN_S)  # exchanges of others that closed a channel; publishes go alone
        self.deferred: dict[str, tuple[int, float]] = {}  # targets that refuse → how many wait for it, and since when
        self._costly = 0
        self._listeners: dict[Heard, None] = {}
        self._key, self._note, self._crash = f"refused {vhost}", f"careful {vhost}", f"crashed {vhost}"

    def catch(self, queues: frozenset[str]) -> None:
        """From these what is rejected surely falls into quarantine."""
        self.catching = queues

    def begin(self) -> None:
        """A session begins, and holds nothing."""
        self._held.clear()
        self._listeners.clear()
        if self.is_careful:
            self._readiness.note(
                self._note,
                f"vhost {self._vhost!r}: the last {self._costly} sessions ended soon, which returned letters of "
                f"attached queues; of these one letter at a time is taken, until a session lasts {STEADY_S:.0f} s",
            )

    def ended(self, lasted_s: float, returned: int) -> None:
        """A session ended; `returned`: letters of attached queues that went back with it."""
        if lasted_s >= STEADY_S:
            self.steady()
        elif returned:
            self._costly += 1

    def steady(self) -> None:
        """This session has lasted."""
        self._costly = 0
        self._readiness.drop_note(self._note)
        self._readiness.drop_note(self._crash)
        self._notify()

    @property
    def is_careful(self) -> bool:
        """Whether one letter of each attached queue is taken at a time."""
        return self._costly >= COSTLY

    def be_careful(self) -> None:
        """From the next session on, until one has lasted."""
        self._costly = max(self._costly, COSTLY)

    def crashed(self, why: str) -> None:
        """The broker crashed as it served a session; said until one has lasted."""
        self._readiness.note(self._crash, why)

    def listen(self, listener: Heard) -> None:
        """Call it after each change, until the session ends; it must not raise."""
        self._listeners[listener] = None

    def unlisten(self, listener: Heard) -> None:
        """Not any more."""
        self._listeners.pop(listener, None)

    def kind_of(self, place: Place) -> SourceKind:
        """What rejecting a letter does in the queue that it was taken from."""
        if not place.names.is_own(place.source):
            return SourceKind.ATTACHED
        if place.arrival is Arrival.RETIRED:
            return SourceKind.RETIRED
        return SourceKind.CAUGHT if place.source in self.catching else SourceKind.UNCAUGHT

    # -- what workers tell ----------------------------------------------------------------------------------------

    def refused(self, queue: str, why: str, source: str, *, is_rung: bool, spent: bool) -> None:
        """The own queue did not take a letter of `source`, which is held; `spent`: its next returns delete it."""
        if spent:
            self._spent.add(source)
        if is_rung:
            self._refused.setdefault(queue, set()).add(source)
        if queue not in self.queues:
            log.warning("own_queue.refused", vhost=self._vhost, queue=queue, error=why, fate="its letters are held")
        self.queues[queue] = why
        self._update_readiness()
        self._notify()

    def holds(self, worker: HeldBytes, queues: frozenset[str]) -> None:
        """Letters for these own queues are held there, those that are being tried among them."""
        before = self._held.pop(worker, frozenset[str]())
        if queues:
            self._held[worker] = queues
        if before - queues:
            self._notify()

    @property
    def held_bytes(self) -> int:
        """Of the bytes in flight, those of letters that are held for own queues."""
        return sum(waits.held_bytes for waits in self._held)

    def took(self, queue: str) -> None:
        """The own queue confirmed a letter."""
        if self.queues.pop(queue, None) is None:
            return
        self._refused.pop(queue, None)
        log.info("own_queue.confirmed", vhost=self._vhost, queue=queue, fate="what was held for it is sent")
        if not self.queues:
            self._spent.clear()
        self._update_readiness()
        self._notify()

    def stuck(self, queue: str, why: str) -> None:
        """A letter in an internal queue can neither be published nor rejected: it might not be caught."""
        self._readiness.set(
            f"stuck {self._vhost}/{queue}",
            f"queue {queue!r} in vhost {self._vhost!r}: a letter cannot be published ({why}), and is not rejected "
            "because the queue's dead-letter exchange is not verified; set MANAGEMENT_URL, or take the letter out by "
            "hand, and restart the router",
        )

    # -- what sources ask ---------------------------------------------------------------------------------------

    def room(self, queue: str, prefetch: int) -> int:
        """How many letters of this attached queue may be here at once.

        Where a refusal outlived its session nothing is held that could prove the way open: then one letter is taken,
        and kept until it has.
        """
        if refusing := self._that_stop(queue):
            return 0 if queue in self._spent or set().union(*self._held.values()).issuperset(refusing) else 1
        return 1 if self.is_careful else prefetch

    def why_not(self, queue: str) -> str:
        """Why no more is taken from this attached queue; "" where nothing is in its way."""
        refusing = ", ".join(self._that_stop(queue))
        if not refusing:
            return ""
        if queue in self._spent:
            return (
                f"left alone: its next returns delete a letter, which {refusing} refused; once there is room and no "
                "other letter has proved it, restart the router"
            )
        return f"not consumed until {refusing} confirms a letter"

    # -- targets of others --------------------------------------------------------------------------------------

    def forbids(self, exchange: str, why: str) -> None:
        """The broker closed a channel, because the router may not publish there."""
        self.forbidden.rest(exchange)
        self._readiness.note(
            f"forbidden {self._vhost}/{exchange}",
            f"vhost {self._vhost!r}: no right to publish to exchange {exchange!r} ({why}); its messages are held, then "
            "parked; give the router's user the right to write to it",
        )

    def defers(self, target: str, count: int) -> None:
        """So many more messages wait, because the target refuses; less than 0: it took them, or they are parked."""
        self.deferred[target] = self.deferred.get(target, (0, 0.0))[0] + count, time.monotonic()

    def check(self) -> None:
        """Called each second by each worker."""
        now_s = time.monotonic()
        for exchange in [exchange for exchange in self.forbidden if not self.forbidden.has(exchange)]:
            del self.forbidden[exchange]
            self._readiness.drop_note(f"forbidden {self._vhost}/{exchange}")
        for target, (count, last_s) in [*self.deferred.items()]:
            key = f"deferred {self._vhost}/{target}"
            if count <= 0 or now_s - last_s > DEFERRED_S:
                del self.deferred[target]
                self._readiness.drop_note(key)
            else:
                text = f"vhost {self._vhost!r}: {count} messages are deferred, because {target} refuses them; they are "
                self._readiness.note(key, f"{text}sent as fast as it takes them; look at its limits and its consumers")

    def _that_stop(self, queue: str) -> list[str]:
        """The own queues that must confirm before this attached queue is consumed."""
        return [own for own in self.queues if queue in self._refused.get(own, (queue,))]

    def _update_readiness(self) -> None:
        if not self.queues:
            self._readiness.clear(self._key)
            return
        refusals = "; ".join(f"own queue {queue} refused a letter ({why})" for queue, why in self.queues.items())
        which = "attached queues" if self.queues.keys() - self._refused else "attached queues whose letters it refused"
        self._readiness.set(
            self._key,
            f"vhost {self._vhost!r}: {refusals}; what is here is held and tried again, and {which} are not "
            "consumed until it is confirmed; look at its length, its policies and its nodes",
        )

    def _notify(self) -> None:
        for listener in [*self._listeners]:
            listener()
