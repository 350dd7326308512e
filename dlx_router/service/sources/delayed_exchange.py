"""A delayed exchange: what its queue brings goes to the ladder, and from there on to an exchange of consumers."""

import asyncio
from typing import Final

from dlx_router.broker.consumer import Consumer
from dlx_router.broker.management import Management, ManagementError
from dlx_router.config.policy_files.delayed_exchanges import Delayed
from dlx_router.service.dispatch.owner import Owner
from dlx_router.service.dispatch.serial_publisher import SerialPublisher
from dlx_router.service.dispatch.worker import Worker
from dlx_router.service.inflight.job import Job
from dlx_router.telemetry.logs import log
from dlx_router.telemetry.readiness import Readiness
from dlx_router.wire import frames

LOOK_S: Final = 30.0


class DelayedExchange(Worker):
    """The way of one delayed exchange's messages, up to their first rung."""

    in_runs = False

    def __init__(self, owner: Owner, probe: SerialPublisher, entry: Delayed, queue: str) -> None:
        super().__init__(owner, probe)
        self._entry, self._queue = entry, queue

    def take(self, delivery: frames.Delivery, consumer: Consumer) -> None:
        """A message was published to the exchange."""
        owner, place = self._owner, self._places[consumer]
        owner.metrics.deliveries[owner.vhost, place.source] += 1
        owner.weigh(len(delivery.body) + len(delivery.header))
        job = Job(consumer, delivery, owner.read_s(), owner.decider.in_force)
        owner.decider.delayed(job, place, self._entry)
        self._submit(job)

    async def watch(self, consumer: Consumer, management: Management, readiness: Readiness) -> None:
        """Say, as long as the consumer is there, who else is bound to the exchange: that one waits for nothing."""
        noted, key = "", f"delayed {self._owner.vhost}/{self._entry.exchange}"
        while consumer.is_open:
            try:
                problem = await self._besides(management)
            except ManagementError:
                problem = noted  # what is not known has not changed
            if problem != noted and problem:
                readiness.note(key, problem)
                log.warning("delayed.bound_besides", problem=problem, fate="those get each message at once")
            elif not problem:
                readiness.drop_note(key)
            noted = problem
            await asyncio.sleep(LOOK_S)
        readiness.drop_note(key)

    async def _besides(self, management: Management) -> str:
        entry, vhost = self._entry, self._owner.vhost
        others = [queue for queue in await management.bound_to(vhost, entry.exchange) if queue != self._queue]
        if not others:
            return ""
        return (
            f"exchange {entry.exchange!r} in vhost {vhost!r} is delayed, and {', '.join(map(repr, others[:5]))} bound "
            f"to it get each message at once; bind them to {entry.to!r} instead"
        )
