"""Hand-made retry loops, found in a vhost and written as policies.

A loop: a work queue whose dead letters go to a queue with a TTL and no consumer, whose dead letters go back to the work
queue. Its wait becomes redelivery-delay. How often such a loop goes round is decided in consumers, so it is not known.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from dlx_router.broker.management import Snapshot, Standing
from dlx_router.config.dialects.import_result import Carried
from dlx_router.core.names import Names
from dlx_router.provisioning.broker_rules import merged
from dlx_router.provisioning.routing import Routes


class Loop(NamedTuple):
    """A work queue, and the queue in which its dead letters wait before they come back."""

    work: Standing
    delay: Standing
    wait_ms: int


class Waiting(NamedTuple):
    """A queue with a TTL that leads to work queues, and nothing but publishers leads to it."""

    queue: Standing
    wait_ms: int
    leads_to: list[str]


def adopted(snapshot: Snapshot, names: Names) -> Carried:
    """A policy for each work queue with a loop, and what a person has to do or to know."""
    out = Carried()
    loops, waiting = detected(snapshot, names)
    for loop in loops:
        _write(loop, out, snapshot.vhost)
    for waits in waiting:
        out.leave(
            f"queue {waits.queue.name}",
            f"waits {waits.wait_ms} ms and leads to {', '.join(waits.leads_to)}, and no queue's dead letters go there: "
            f"consumers publish into it by themselves; let them reject instead, and write redelivery-delay",
        )
    return out


def detected(snapshot: Snapshot, names: Names) -> tuple[list[Loop], list[Waiting]]:
    """The loops, and the queues in which letters wait that somebody publishes there. Nothing of ours is one."""
    reader = _Reader(snapshot)
    foreign = [queue for queue in snapshot.queues if not names.is_own(queue.name)]
    # A queue has one dead-letter exchange, so one wait; further queues that it reaches wait as well.
    first = ((queue, next(reader.delays(queue), None)) for queue in foreign)
    loops = [Loop(queue, delay, reader.ttl(delay)) for queue, delay in first if delay is not None]
    known = {loop.delay.name for loop in loops}
    others = [queue for queue in foreign if queue.name not in known and reader.is_delay(queue)]
    return loops, [Waiting(queue, reader.ttl(queue), work) for queue in others if (work := reader.leads_to(queue))]


class _Reader:
    """What holds for each queue, and where its dead letters go."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._routes = Routes(snapshot)
        self._queues = {queue.name: queue for queue in snapshot.queues}
        self._holds: dict[str, Mapping[str, Any]] = {queue.name: merged(queue, snapshot) for queue in snapshot.queues}

    def ttl(self, queue: Standing) -> int:
        """Its message-ttl in ms, 0 without one."""
        ttl = self._holds[queue.name].get("message-ttl")
        return ttl if isinstance(ttl, int) and ttl is not True and ttl > 0 else 0

    def is_delay(self, queue: Standing) -> bool:
        """Whether messages only wait in it."""
        return bool(self.ttl(queue)) and not queue.consumers

    def leads_to(self, queue: Standing) -> list[str]:
        """Where its dead letters go, as far as keys tell."""
        holds = self._holds[queue.name]
        exchange, key = holds.get("dead-letter-exchange"), holds.get("dead-letter-routing-key")
        if not isinstance(exchange, str):
            return []
        # without a key of its own the original one is kept, which for a queue of one purpose is mostly its name
        keys = [key] if isinstance(key, str) else [queue.name]
        return sorted(
            {target for candidate in keys for target in self._routes.queues(exchange, candidate)} - {queue.name}
        )

    def delays(self, queue: Standing) -> Iterator[Standing]:
        """The queues in which its dead letters wait before they come back."""
        for name in self.leads_to(queue):
            delay = self._queues.get(name)
            if delay is not None and self.is_delay(delay) and self._back(delay, queue):
                yield delay

    def _back(self, delay: Standing, work: Standing) -> bool:
        holds = self._holds[delay.name]
        exchange, key = holds.get("dead-letter-exchange"), holds.get("dead-letter-routing-key")
        if not isinstance(exchange, str):
            return False
        sent = self._holds[work.name].get("dead-letter-routing-key")
        keys = [key] if isinstance(key, str) else [sent if isinstance(sent, str) else work.name, work.name]
        return any(work.name in self._routes.queues(exchange, candidate) for candidate in keys)


def _write(loop: Loop, out: Carried, vhost: str) -> None:
    work, delay, wait_ms = loop
    definition = {"max-delivery-attempts": -1, "redelivery-delay": wait_ms, "max-redelivery-delay": wait_ms}
    out.add(f"adopted-{work.name}", {"queue": work.name}, definition, vhost=vhost)
    out.leave(
        f"queue {work.name}",
        f"its letters wait {wait_ms} ms in {delay.name} and come back for ever, unless a consumer counts x-death; "
        f"write max-delivery-attempts: with its number, and take the counting out",
    )
    if "x-dead-letter-exchange" in work.arguments:
        out.leave(
            f"queue {work.name}",
            "the loop is in its arguments, and no policy changes them (DLX201): declare it anew without them",
        )
    out.leave(
        f"queue {delay.name}", "is not needed any more once it is empty and the work queue has lost the way to it"
    )
