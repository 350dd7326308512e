"""Scan: read letters of a queue, keep those that match, and requeue the others in their order.

It asks the broker for as many letters as are wanted, and for twice as many each time if those do not match: a filter
costs what lies in front of its matches, and never more than MAX_SCANNED.
"""

import asyncio
import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

from dlx_router.broker.consumer import Consumer, Holder
from dlx_router.core.attending import delivery_limit
from dlx_router.core.leases import CONSUMER_TIMEOUT_MS, CONSUMERS_SET_IT_SINCE, LONGEST_S, longest_s
from dlx_router.redrive.task import TaskError
from dlx_router.service.dispatch.settler import returned, returned_up_to
from dlx_router.service.redrive.bindings import (
    NO_LIMIT,
    STREAM,
    counts_returns,
    limits_of,
    number_of,
    returns_of,
)
from dlx_router.service.redrive.context import TaskContext
from dlx_router.service.redrive.preview import KNOWING, living
from dlx_router.telemetry.logs import log
from dlx_router.wire import frames

FRESH_S: Final = 30.0
MAX_QUEUES: Final = 1000
MARGIN: Final = 3  # failed deliveries that a letter is left with
OWN_TIMEOUT_MS: Final = 2 * 1000 * LONGEST_S  # of our consumers, where they may set it
MAX_SCANNED: Final = 10_000
LINGER_S: Final = 0.03  # after the last that came: those that were there came together
STEP: Final = 16  # commands that requeue letters, until the broker has processed them
AT_ONCE: Final = 32  # letters: RabbitMQ 3.10 mixes up the order of more that one command requeues
QUIET_S: Final = 0.3  # after which what did not come is not in the queue
_TIMED_OUT: Final = re.compile(r"Timeout value used: (\d+) ms")  # RabbitMQ's text, before 4.3


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """`longest_s`: then the broker takes a letter back. `fatal`: letters that failed so often are not received.

    `queue_timeout_ms`: the queue's consumer-timeout; `consumer_timeout_ms`: the one that a consumer sets instead.
    """

    longest_s: int
    fatal: int | None
    kind: str | None
    queue_timeout_ms: int | None = None
    consumer_timeout_ms: int | None = None


class KnownQueues:
    """Limits of queues, cached for a while because each receive needs them."""

    def __init__(self, context: TaskContext) -> None:
        self._context = context
        self._known: dict[str, tuple[float, QueueLimits, bool]] = {}
        self._broker_ms = CONSUMER_TIMEOUT_MS

    async def limits(self, queue: str, version: tuple[int, ...], *, knowing: bool) -> QueueLimits:
        """Return the queue's limits. TaskError if its letters must not be leased.

        `knowing`: the caller accepts that the queue may hold living messages.
        """
        until_s, limits, is_checked = self._known.get(queue, (0.0, None, False))
        if limits is not None and time.monotonic() < until_s and (is_checked or knowing):
            return limits
        facts = await self._context.reads.admit(self._context.topology, queue)
        limits = limits_in(queue, facts, version, self._broker_ms)
        if not knowing and (reason := await living(self._context, queue)):
            raise TaskError(f"{reason}; what lies there may be living messages; to lease them anyway: {KNOWING}")
        if len(self._known) >= MAX_QUEUES:
            self._known.clear()
        self._known[queue] = time.monotonic() + FRESH_S, limits, not knowing
        return limits

    def kind(self, queue: str) -> str | None:
        """Return the type of a queue, as far as known."""
        return self._known[queue][1].kind if queue in self._known else None

    def learn(self, queue: str, error: Exception) -> None:
        """Remember the broker's consumer_timeout if that is why it took letters back: nothing else shows it."""
        if (match := _TIMED_OUT.search(str(error))) is None:
            return
        timeout_ms = int(match[1])
        if queue not in self._known or self._known[queue][1].queue_timeout_ms != timeout_ms:
            self._broker_ms = timeout_ms
        self._known.clear()
        fate = "longer leases are refused from now on; raise consumer_timeout in rabbitmq.conf, or by a policy"
        log.warning("lease.consumer_timeout", queue=queue, timeout_ms=timeout_ms, error=str(error), fate=fate)


def limits_in(queue: str, facts: Mapping[str, Any], version: tuple[int, ...], broker_ms: int) -> QueueLimits:
    """Return the limits of a queue of which the management API says this. TaskError."""
    kind, limit = facts.get("type"), delivery_limit(limits_of(facts), version)
    if kind == STREAM:
        raise TaskError(f"{queue!r} is a stream: nothing can be taken from it")
    if counts_returns(facts, version):
        raise TaskError(
            f"{queue!r} counts each return as a failed delivery, and could end letters that come back from a lease: "
            f"{returns_of(facts, version).remedy}"
        )
    fatal = limit - MARGIN if kind == "quorum" and limit is not None and limit < NO_LIMIT else None
    own_ms, expires_ms = number_of(facts, "consumer-timeout"), number_of(facts, "expires")
    set_ms = OWN_TIMEOUT_MS if kind == "quorum" and version >= CONSUMERS_SET_IT_SINCE else None
    longest = longest_s(kind, version, timeout_ms=set_ms or own_ms, expires_ms=expires_ms, broker_ms=broker_ms)
    return QueueLimits(longest, fatal, kind, own_ms, set_ms)


class Match(Enum):
    """What a scan does with a delivery."""

    KEEP = auto()  # it is leased
    SKIP = auto()  # it is requeued
    HANDLED = auto()  # somebody else settles it
    FULL = auto()  # it is requeued, and no more may be kept


class LeaseScan:
    """`match(delivery, holder)` must not wait. `limit` letters are kept at most, `first` are asked for at first."""

    def __init__(
        self, holder: Holder, limit: int, match: Callable[[frames.Delivery, Holder], Match], *, first: int
    ) -> None:
        self._first = first
        self.kept = self.received = 0
        self.error: Exception | None = None
        self.refused: Exception | None = None  # why no letter can be chosen
        self._holder, self._limit, self._match = holder, limit, match
        self._skipped: list[int] = []
        self._ends: list[int] = []  # the last tag of each turn
        self._first_kept = 0  # tag of the first that is not skipped
        self._is_full = False
        self._received_s = 0.0
        self._wake = asyncio.Event()
        holder.ignore(self._on_delivery)

    def fail(self, error: Exception) -> None:
        """End the scan because its channel is gone, and what it held."""
        self.error = error
        self._wake.set()

    async def run(self, until_s: float) -> None:
        """Run until as many are kept, all that was there is matched, or it is late. Raises what ended the channel."""
        wanted = self._first
        try:
            while True:
                expected = self.received + wanted
                await self._holder.take(wanted)
                self._received_s = time.monotonic()
                is_over = await self._turn(expected, until_s)
                await self._holder.halt()
                self._ends.append(self._holder.last_tag)
                if self.error is not None:
                    raise self.error
                if is_over or self._is_enough:
                    return
                wanted = min(max(2 * wanted, self._limit - self.kept), MAX_SCANNED - self.received)
        finally:
            await self._requeue()

    @property
    def _is_enough(self) -> bool:
        return self._is_full or self.kept >= self._limit or self.received >= MAX_SCANNED

    async def _turn(self, expected: int, until_s: float) -> bool:
        """Return whether the scan is over; else all that were asked for came, and more are wanted."""
        while self.error is None and not self._is_enough:
            if self.received >= expected:
                return False
            now = time.monotonic()
            rest_s = self._received_s + (LINGER_S if self.kept else QUIET_S) - now
            wait_s = max(rest_s, 0.0 if self.kept or self._skipped else until_s - now)
            if wait_s <= 0:
                return True
            self._wake.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(max(wait_s, 0.001)):
                    await self._wake.wait()
        return True

    def _on_delivery(self, delivery: frames.Delivery, _consumer: Consumer) -> None:
        self.received += 1
        self._received_s = time.monotonic()
        self._wake.set()
        is_over = self._is_enough or self.error is not None
        match = Match.SKIP if is_over else self._match(delivery, self._holder)
        self.kept += match is Match.KEEP
        self._is_full |= match is Match.FULL
        if match in {Match.SKIP, Match.FULL}:
            self._skipped.append(delivery.tag)
        else:
            self._first_kept = self._first_kept or delivery.tag

    async def _requeue(self) -> None:
        """Requeue what lies before the first that is kept as it lay, the rest in steps that keep its order.

        Quorum queues: beyond 32 commands under way the broker gathers those to come, and mixes up their order.
        """
        first = [tag for tag in self._skipped if not self._first_kept or tag < self._first_kept]
        before = steps = 0
        for end in sorted({*self._ends, *first[-1:]}):  # of several consumers at once the order is mixed up as well
            turn = [tag for tag in first if before < tag <= end]  # an unknown tag would close the channel
            for last in (*turn[AT_ONCE - 1 : -1 : AT_ONCE], *turn[-1:]):
                returned_up_to(self._holder, last)
                steps += 1
                await self._processed(steps)
            before = end
        for tag in self._skipped[len(first) :]:
            returned(self._holder, tag)
            steps += 1
            await self._processed(steps)

    async def _processed(self, steps: int) -> None:
        if steps % STEP == 0 and self._holder.is_open:
            await self._holder.counted()
