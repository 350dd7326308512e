"""Observing: copies of dead letters are judged and journalled, and nothing else is done.

`run --observe` consumes its own queue `<prefix>.observe` and no other, so that no letter is taken, held or counted as
delivered. What it is given are copies: of exchanges that users bind to the exchange of that name, and of our inbox.
"""

from dataclasses import replace
from typing import Any

from dlx_router.broker.consumer import Consumer
from dlx_router.service.dispatch import events
from dlx_router.service.dispatch.resources import Refusal
from dlx_router.service.dispatch.worker import Worker
from dlx_router.service.inflight.encoder import Encoder
from dlx_router.service.inflight.job import Job
from dlx_router.service.inflight.routes import Resource, called
from dlx_router.wire import frames


class ObserverWorker(Worker):
    """A worker that publishes nothing: a copy is settled once the journal has its event."""

    def take(self, delivery: frames.Delivery, consumer: Consumer) -> None:
        """A copy arrives: decided, told, and done with."""
        owner, place = self._owner, self._places[consumer]
        owner.metrics.deliveries[owner.vhost, place.source] += 1
        owner.weigh(len(delivery.body) + len(delivery.header))
        known = ObservedResources(owner.provision.known)
        job = owner.decider.judge(delivery, consumer, place, owner.read_s(), known)
        if job.untold is None or job.resource is None:
            self._settling.carried_out(job)
        else:
            owner.provision.later(called(job.resource), job, self._named)

    def _named(self, job: Job, resolved: str | Refusal) -> None:
        """It is known under which name its dead-letter queue would be made; where nobody says, under its own."""
        copy = job.copy
        if copy is not None and isinstance(resolved, str):
            job.copy = replace(copy, needs_queue=resolved, routing_key=resolved)
        events.tell_late(job)
        self._settling.carried_out(job)


class ObservedResources(dict[Resource, str]):
    """What would be there, as if letters were sent: of dead-letter queues only those that were looked for."""

    def __init__(self, known: "dict[Resource, str]") -> None:
        super().__init__()
        self._known = known

    def get(self, resource: Resource, default: Any = None) -> Any:  # noqa: ANN401 - as a dictionary's
        """Under which name; all but a dead-letter queue has its own."""
        return self._known.get(called(resource), default) if resource[0] == "dlq" else resource[1]


class ObserverEncoder(Encoder):
    """Tells the fate of no letter: it had none."""

    def tell(self, job: Job) -> None:
        """Nothing was done."""
