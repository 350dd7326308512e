"""What must be known of a queue before letters of it are leased: whether that could end them, and for how long."""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from dlx_router.core.attending import delivery_limit
from dlx_router.core.leases import CONSUMER_TIMEOUT_MS, CONSUMERS_SET_IT_SINCE, LONGEST_S, longest_s
from dlx_router.redrive.task import TaskError
from dlx_router.service.redrive.binding_facts import (
    NO_LIMIT,
    STREAM,
    Holding,
    holding,
    number_of,
)
from dlx_router.service.redrive.context import TaskContext
from dlx_router.service.redrive.preview import KNOWING, living
from dlx_router.service.redrive.returns import limits_of, returns_of
from dlx_router.telemetry.logs import log

FRESH_S: Final = 30.0
MOST: Final = 1000
MARGIN: Final = 3  # failed deliveries that a letter is left with
OWN_TIMEOUT_MS: Final = 2 * 1000 * LONGEST_S  # of our consumers, where they may set it
_TIMED_OUT: Final = re.compile(r"Timeout value used: (\d+) ms")  # RabbitMQ's text, before 4.3


@dataclass(frozen=True, slots=True)
class LeaseFacts:
    """`longest_s`: then the broker takes a letter back. `fatal`: letters that failed so often are not received.

    `queue_timeout_ms`: the queue's consumer-timeout; `consumer_timeout_ms`: the one that a consumer sets instead.
    """

    longest_s: int
    fatal: int | None
    kind: str | None
    queue_timeout_ms: int | None = None
    consumer_timeout_ms: int | None = None


class KnownQueues:
    """Asked once in a while, because each receive needs it."""

    def __init__(self, context: TaskContext) -> None:
        self._context = context
        self.kinds: dict[str, str | None] = {}  # None: not known
        self._known: dict[tuple[str, bool], tuple[float, LeaseFacts]] = {}
        self._broker_ms = CONSUMER_TIMEOUT_MS

    async def facts(self, queue: str, version: tuple[int, ...], *, knowing: bool) -> LeaseFacts:
        """TaskError where letters must not be leased. `knowing`: who asks knows that it may hold living messages."""
        now = time.monotonic()
        until, known = self._known.get((queue, knowing), (0.0, None))
        if known is not None and now < until:
            return known
        answer = await self._context.reads.admit(self._context.topology, queue)
        facts = _judged(queue, answer, version, self._broker_ms)
        self.kinds[queue] = facts.kind
        if not knowing and (why := await living(self._context, queue)):
            raise TaskError(f"{why}; what lies there may be living messages. If that is meant: {KNOWING}")
        if len(self._known) >= MOST:
            self._known.clear()
            self.kinds.clear()
        self._known[queue, knowing] = now + FRESH_S, facts
        return facts

    def learn(self, queue: str, error: Exception) -> None:
        """Remember the broker's consumer_timeout where that is why it took letters back: nothing else tells it."""
        if (match := _TIMED_OUT.search(str(error))) is None:
            return
        timeout_ms = int(match[1])
        own = {facts.queue_timeout_ms for (name, _), (_, facts) in self._known.items() if name == queue}
        if timeout_ms not in own:
            self._broker_ms = timeout_ms
        self._known.clear()
        fate = "longer leases are refused from now on; raise consumer_timeout in rabbitmq.conf, or by a policy"
        log.warning("lease.consumer_timeout", queue=queue, timeout_ms=timeout_ms, error=str(error), fate=fate)


def _judged(queue: str, facts: Mapping[str, Any], version: tuple[int, ...], broker_ms: int) -> LeaseFacts:
    kind, limit = facts.get("type"), delivery_limit(limits_of(facts), version)
    if kind == STREAM:
        raise TaskError(f"{queue!r} is a stream: nothing can be taken from it")
    if holding(facts, version) is Holding.ASIDE:
        raise TaskError(
            f"{queue!r} counts each return as a failed delivery, and could end letters that come back from a lease: "
            f"{returns_of(facts, version).remedy}"
        )
    fatal = limit - MARGIN if kind == "quorum" and limit is not None and limit < NO_LIMIT else None
    own_ms, expires_ms = number_of(facts, "consumer-timeout"), number_of(facts, "expires")
    set_ms = OWN_TIMEOUT_MS if kind == "quorum" and version >= CONSUMERS_SET_IT_SINCE else None
    longest = longest_s(kind, version, timeout_ms=set_ms or own_ms, expires_ms=expires_ms, broker_ms=broker_ms)
    return LeaseFacts(longest, fatal, kind, own_ms, set_ms)
