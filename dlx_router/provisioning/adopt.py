"""Hand-made retry loops, read from the broker and written as policies.

A loop: a work queue whose dead letters go to a queue with a TTL and no consumer, whose dead letters go back to the work
queue. Its wait becomes redelivery-delay. How often such a loop goes round is decided in consumers, so it is not known.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from dlx_router.broker.administration import Snapshot, Standing
from dlx_router.config.dialects.carried import Carried
from dlx_router.core.names import Names
from dlx_router.provisioning.broker_rules import merged
from dlx_router.provisioning.routes import Routes


def adopted(snapshot: Snapshot, names: Names) -> Carried:
    """A policy for each work queue with a loop, and what a person has to do or to know."""
    out = Carried()
    reader = _Reader(snapshot)
    looped: set[str] = set()
    for queue in snapshot.queues:
        if names.is_own(queue.name):
            continue
        for delay in reader.delays(queue):
            looped.add(delay.name)
            _write(queue, delay, reader, out, snapshot.vhost)
            break  # a queue has one dead-letter exchange, so one wait; further queues that it reaches wait as well
    for queue in snapshot.queues:
        work = reader.leads_to(queue)
        if queue.name not in looped and not names.is_own(queue.name) and reader.is_delay(queue) and work:
            out.leave(
                f"queue {queue.name}",
                f"waits {reader.ttl(queue)} ms and leads to {', '.join(work)}, and no queue's dead letters go there: "
                f"consumers publish into it by themselves; let them reject instead, and write redelivery-delay",
            )
    return out


class _Reader:
    """What holds for each queue, and where its dead letters go."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._routes = Routes(snapshot)
        self._queues = {one.name: one for one in snapshot.queues}
        self._holds: dict[str, Mapping[str, Any]] = {
            one.name: merged(one, snapshot.policies, snapshot.operator_policies) for one in snapshot.queues
        }

    def ttl(self, queue: Standing) -> int | None:
        """Its message-ttl in ms."""
        found = self._holds[queue.name].get("message-ttl")
        return found if isinstance(found, int) else None

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
        return sorted({found for one in keys for found in self._routes.queues(exchange, one)} - {queue.name})

    def delays(self, queue: Standing) -> Iterator[Standing]:
        """The queues in which its dead letters wait before they come back."""
        for name in self.leads_to(queue):
            one = self._queues.get(name)
            if one is not None and self.is_delay(one) and self._back(one, queue):
                yield one

    def _back(self, delay: Standing, work: Standing) -> bool:
        holds = self._holds[delay.name]
        exchange, key = holds.get("dead-letter-exchange"), holds.get("dead-letter-routing-key")
        if not isinstance(exchange, str):
            return False
        sent = self._holds[work.name].get("dead-letter-routing-key")
        keys = [key] if isinstance(key, str) else [sent if isinstance(sent, str) else work.name, work.name]
        return any(work.name in self._routes.queues(exchange, one) for one in keys)


def _write(work: Standing, delay: Standing, reader: _Reader, out: Carried, vhost: str) -> None:
    wait = reader.ttl(delay)
    out.add(
        f"adopted-{work.name}",
        {"queue": work.name},
        {"max-delivery-attempts": -1, "redelivery-delay": wait, "max-redelivery-delay": wait},
        vhost=vhost,
    )
    out.leave(
        f"queue {work.name}",
        f"its letters wait {wait} ms in {delay.name} and come back for ever, unless a consumer counts x-death; write "
        f"max-delivery-attempts: with its number, and take the counting out",
    )
    if "x-dead-letter-exchange" in work.arguments:
        out.leave(
            f"queue {work.name}",
            "the loop is in its arguments, and no policy changes them (DLX201): declare it anew without them",
        )
    out.leave(
        f"queue {delay.name}", "is not needed any more once it is empty and the work queue has lost the way to it"
    )
