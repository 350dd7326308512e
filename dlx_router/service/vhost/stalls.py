"""Stalls: consumers to which the broker delivers nothing though messages are ready, and queues that do not answer.

Every two seconds the broker is asked how much is ready in our own queues, which is a metric, and in attached queues
that delivered nothing since. Who stands still is subscribed anew; where that does not help, the connection is made
anew, to the next node. Meanwhile readiness says so, and so it does of a node that does not answer.
See docs/decisions/0061.
"""

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Final, Protocol

from dlx_router.broker.consumer import Consumer, Getter
from dlx_router.broker.topology import Topology, TopologyError
from dlx_router.config.units import number_of
from dlx_router.core.names import Names
from dlx_router.core.stalled import Look, Stand, judged
from dlx_router.service.sources.consumers import Consumers
from dlx_router.telemetry.logs import log
from dlx_router.telemetry.metrics import Metrics
from dlx_router.telemetry.readiness import Readiness

LOOK_S: Final = 2.0
ANSWERS_S: Final = 5.0
SAYS_S: Final = 4.0
RENEWS_S: Final = 8.0
AGAIN_S: Final = 60.0  # between two connections that are given up for this: it costs the letters that are here a return
MOST: Final = 50  # attached queues that are asked about in one look
NOT_DELIVERED: Final = "not_delivered"
NO_CONSUMER: Final = "no_consumer"
CONNECTION: Final = "connection"


class Subscribed(Protocol):
    """What is asked of a session."""

    vhost: str
    consumers: Consumers

    def resubscribe(self, queue: str) -> None:
        """Consume the queue anew; what is here of it is still settled."""

    def trouble(self, why: str) -> None:
        """Give everything back and start anew."""


class Stalls:
    """Of one vhost, for as long as the router runs. `own`: the queues of ours that are consumed."""

    def __init__(
        self,
        vhost: str,
        names: Names,
        own: Sequence[str],
        metrics: Metrics,
        readiness: Readiness,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._vhost, self._names, self._clock = vhost, names, clock
        self._own = tuple(own)
        self._metrics, self._readiness = metrics, readiness
        self._given_up_s = float("-inf")
        self._begin()

    def _begin(self) -> None:
        self._stands: dict[str, tuple[Consumer, Stand]] = {}
        self._renewed: dict[str, float] = {}  # subscribed anew, and nothing was delivered since → when
        self._reported: set[str] = set()
        self._asked_last = 0
        self._was_silent = False

    async def watch(self, session: Subscribed, topology: Topology) -> None:
        """Look again and again until cancelled; afterwards nothing is known."""
        self._begin()
        try:
            while True:
                await asyncio.sleep(LOOK_S)
                await self._look(session, topology)
        finally:
            self._forget_depths()

    async def _look(self, session: Subscribed, topology: Topology) -> None:
        asked = self._asked(session.consumers)
        try:
            async with asyncio.timeout(ANSWERS_S):
                counts = await topology.censuses(asked)
        except (TimeoutError, TopologyError) as error:
            self._forget_depths()
            self._was_silent = True
            why = str(error) or f"no answer within {ANSWERS_S:g} s"
            problem = f"vhost {self._vhost!r}: the broker does not say what lies in our queues: {why}"
            self._readiness.set(self._answers, problem)
            return
        self._forget_depths(queue for queue in self._own if queue not in counts)
        own = {(self._vhost, queue): counts[queue][0] for queue in self._own if queue in counts}
        self._metrics.messages_ready |= own
        doubted = [
            queue for queue, (ready, consumers) in counts.items() if self._judge(session, queue, ready, consumers)
        ]
        if not (self._was_silent and doubted):
            self._was_silent = False
            self._readiness.clear(self._answers)
        for queue in [queue for queue in self._reported if session.consumers.get(queue) is None]:
            if (
                self._clock() - self._renewed.get(queue, float("-inf")) > AGAIN_S
            ):  # else it is just being subscribed anew
                self._moves(queue)  # it is not consumed any more, and whoever knows why says so

    @property
    def _answers(self) -> str:
        return f"answers {self._vhost}"

    # -- which --------------------------------------------------------------------------------------------------

    def _asked(self, consumers: Consumers) -> list[str]:
        """Our own, those that may stand still, and some of those that delivered nothing since the last look at them."""
        stands = [queue for queue, (_, stand) in self._stands.items() if stand.look.lacks and queue not in self._own]
        quiet = [consumer.queue for consumer in consumers.attending if self._is_quiet(consumer)]
        first = self._asked_last % len(quiet) if quiet else 0
        turn = [*islice((*quiet[first:], *quiet[:first]), max(0, MOST - len(stands)))]
        self._asked_last = first + len(turn)
        return [*dict.fromkeys([*self._own, *stands[:MOST], *turn])]

    def _is_quiet(self, consumer: Consumer) -> bool:
        if consumer.queue in self._own or isinstance(consumer, Getter):
            return False
        known = self._stands.get(consumer.queue)
        if known is None or known[0] is not consumer or known[1].look.last_tag == consumer.last_tag:
            return True
        del self._stands[consumer.queue]  # it delivers
        self._moves(consumer.queue)
        return False

    # -- what of it ---------------------------------------------------------------------------------------------

    def _judge(self, session: Subscribed, queue: str, ready: int, consumers: int) -> bool:
        """→ whether it may stand still, and readiness does not say so yet.

        Who was silent is believed to deliver once it does: a node alone answers now and then, and delivers nothing.
        """
        consumer = session.consumers.get(queue)
        if consumer is None or isinstance(consumer, Getter):
            self._stands.pop(queue, None)
            return False
        is_owed = session.consumers.is_owed(consumer) or (queue in self._renewed and consumer.has_room)
        look = Look(self._clock(), ready, consumers, consumer.last_tag, is_owed)
        known = self._stands.get(queue)
        before = known[1] if known is not None and known[0] is consumer else None
        stand = judged(before, look)
        self._stands[queue] = consumer, stand
        if not look.lacks or consumer.last_tag != (0 if before is None else before.look.last_tag):
            self._moves(queue)
            return False
        if stand.for_s >= SAYS_S:
            self._object(queue, stand)
            if stand.for_s >= RENEWS_S:
                self._mend(session, consumer, stand)
        return queue not in self._reported

    def _object(self, queue: str, stand: Stand) -> None:
        self._reported.add(queue)
        look = stand.look
        ready = number_of(look.ready, "ready message")
        what = f"{ready}, and none is delivered"
        if not look.consumers:
            what = f"the broker counts {ready} and no consumer; has the queue a leader?"
        self._readiness.set(
            f"stalled {self._vhost}/{queue}",
            f"queue {queue!r} in vhost {self._vhost!r}: {what}, for {stand.for_s:.0f} s; it is subscribed anew",
        )

    def _moves(self, queue: str) -> None:
        self._renewed.pop(queue, None)
        if queue in self._reported:
            self._reported.discard(queue)
            self._readiness.clear(f"stalled {self._vhost}/{queue}")
            log.info("consumer.delivers", vhost=self._vhost, queue=queue)

    def _mend(self, session: Subscribed, consumer: Consumer, stand: Stand) -> None:
        """The consumer anew; the connection anew where that was in vain and nobody else can be the cause."""
        queue, look = consumer.queue, stand.look
        if not look.ready and not look.consumers:
            return  # a queue without a leader counts so, and nothing is known to wait there
        if queue not in self._renewed:
            self._renewed[queue] = self._clock()
            del self._stands[queue]
            self._count(queue, NOT_DELIVERED if look.consumers else NO_CONSUMER)
            details = {"ready": look.ready, "consumers": look.consumers, "seconds": round(stand.for_s)}
            fate = "what is here of it is still settled; consuming it anew"
            log.warning("consumer.resubscribed", vhost=self._vhost, queue=queue, **details, fate=fate)
            session.resubscribe(queue)
            return
        # Nobody of higher priority takes from the queue, and nobody else is its single active consumer.
        is_ours_alone = not consumer.is_single and (self._names.is_own(queue) or look.consumers <= 1)
        if is_ours_alone and self._clock() - self._given_up_s > AGAIN_S:
            self._given_up_s = self._clock()
            self._count(queue, CONNECTION)
            ready = number_of(look.ready, "ready message")
            why = f"{ready} in queue {queue!r}, and none is delivered, to a new consumer either"
            session.trouble(f"{why}; connecting anew")

    # -- metrics ------------------------------------------------------------------------------------------------

    def _count(self, queue: str, reason: str) -> None:
        self._metrics.resubscriptions[reason][self._vhost, queue] += 1

    def _forget_depths(self, queues: Iterable[str] | None = None) -> None:
        for queue in self._own if queues is None else queues:
            self._metrics.messages_ready.pop((self._vhost, queue), None)
