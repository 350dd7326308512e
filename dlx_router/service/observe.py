"""Observing: copies of dead letters are judged and journalled, and nothing else is done.

`run --observe` consumes its own queue `<prefix>.observe` and no other, so that no letter is taken, held or counted as
delivered. What it is given are copies: of exchanges that users bind to the exchange of that name, and of our inbox.
"""

from dlx_router.broker.consumer import Consumer
from dlx_router.service.job import Job
from dlx_router.service.lane import Lane
from dlx_router.service.render import Stationery
from dlx_router.wire import frames


class Watch(Lane):
    """A lane that publishes nothing: a copy is settled once the journal has its event."""

    def take(self, delivery: frames.Delivery, consumer: Consumer) -> None:
        """A copy arrives: decided, told, and done with."""
        owner, place = self._owner, self._places[consumer]
        owner.metrics.deliveries[owner.vhost, place.source] += 1
        owner.weigh(len(delivery.body) + len(delivery.header))
        self._settling.carried_out(owner.desk.judge(delivery, consumer, place, owner.read_s()))


class Silence(Stationery):
    """Tells the fate of no letter: it had none."""

    def tell(self, job: Job) -> None:
        """Nothing was done."""
