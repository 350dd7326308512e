"""Leadership: which of the routers of a vhost has the duties that only one may have.

See docs/architecture.md ("Replicas").

Guarantees: `term` is told only while we are the single active consumer of the state queue, and is taken back before
anybody else can be told one; a later leader has a larger term, as far as the routers' clocks agree.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from functools import partial
from typing import Any, Final

from dlx_router.broker.state import StateQueue
from dlx_router.broker.topology import QueueMissing, Topology, TopologyError
from dlx_router.core.statemessage import Claim
from dlx_router.service.redrive.runner import RETRIED
from dlx_router.service.vhost.background import Background
from dlx_router.service.vhost.state_queue import StateQueueWatch
from dlx_router.telemetry.logs import Once, log
from dlx_router.telemetry.wall_clock import wall_ms

AGAIN_S: Final = 1.0
LOOK_S: Final = 1.0
LONGEST_LOOK_S: Final = 60.0
_TAKEN: Final = "another consumer has the state queue, and does not answer as a router with the same key does"
Heard = Callable[[], None]
Mended = Callable[[Exception], Awaitable[object]]
Work = Callable[[int], Coroutine[Any, Any, None]]


class Leadership:
    """Of one vhost, for as long as the router runs."""

    def __init__(
        self,
        vhost: str,
        watch: StateQueueWatch,
        background: Background,
        mended: Mended,
        claim: Callable[[str], Claim | None],
    ) -> None:
        """`mended(error)` does what can be done about a state queue that was lost while letters go on.

        `claim(our address)`: where others may ask us while we lead.
        """
        self.vhost, self._claim = vhost, claim
        self._state: StateQueue | None = None  # while we stand for it beside others
        self._watch, self._background, self._mended = watch, background, mended
        self.term: int | None = None  # ms since 1970 when it began; None: somebody else's, or nobody's
        self._listeners: list[Heard] = []

    @property
    def is_ours(self) -> bool:
        """Whether this router has the duties now."""
        return self.term is not None

    @property
    def leader(self) -> Claim | None:
        """Who else leads, by an answer of the last seconds; None: we do, nobody does, or it is not known."""
        return None if self.is_ours or self._state is None else self._state.leader

    @property
    def leaderless_s(self) -> float | None:
        """For how long nobody leads; None: somebody does, or that is not known."""
        return None if self.is_ours else self._watch.missing_s

    @contextlib.contextmanager
    def heard(self, listener: Heard) -> Iterator[None]:
        """Call the listener after each change of `term` inside the block; it must not raise."""
        self._listeners.append(listener)
        try:
            yield
        finally:
            self._listeners.remove(listener)

    @contextlib.asynccontextmanager
    async def held(self, topology: Topology, *, shared: bytes | None) -> AsyncIterator[None]:
        """Inside the block we stand for it. `shared`: the key of a file; None: we hold the state queue, for its key."""
        standing = None
        if shared is None:
            self._set(leads=True)
        else:
            work = partial(self._stand, topology, shared)
            standing = asyncio.create_task(self._background.keep("leadership", work, where=self.vhost))
        try:
            yield
        finally:
            self._set(leads=False)
            if standing is not None:
                standing.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await standing
                self._watch.quiet()

    def lose(self) -> None:
        """The state queue is lost: act no more."""
        self._set(leads=False)

    async def _stand(self, topology: Topology, shared: bytes) -> None:
        while True:
            try:
                await self._stand_once(topology, shared)
            except TopologyError as error:
                self._watch.nobody_leads(str(error))
                await self._mended(error)
                if isinstance(error, QueueMissing):
                    await self._declare(topology)
            finally:
                self._set(leads=False)
            await asyncio.sleep(AGAIN_S)

    async def _stand_once(self, topology: Topology, shared: bytes) -> None:
        """Until the state queue is lost: TopologyError."""
        lost: asyncio.Future[TopologyError] = asyncio.get_running_loop().create_future()

        def end(why: TopologyError) -> None:
            self.lose()
            lost.set_result(why)

        moved = self._watch.moved
        async with StateQueue(topology, on_lost=end, on_moved=moved, shared=shared, claim=self._claim) as state:
            looking, self._state = asyncio.create_task(self._look(state)), state
            try:
                await state.wait_active()
                self._set(leads=True)
                self._watch.began()  # by the next look it may be lost again
                raise await lost
            finally:
                self._state = None
                looking.cancel()
                await asyncio.gather(looking, return_exceptions=True)

    async def _look(self, state: StateQueue) -> None:
        """Whether anybody leads. Behind an alarm of the broker nobody can tell."""
        while True:
            await asyncio.sleep(AGAIN_S)
            if self.is_ours or state.is_answered:
                self._watch.led()
            elif state.is_blocked:
                self._watch.quiet()
            else:
                self._watch.nobody_leads(state.hindrance or _TAKEN)

    async def _declare(self, topology: Topology) -> None:
        """Somebody deleted it: with DECLARE=never it is named."""
        try:
            await topology.ensure_core()
        except TopologyError as error:
            self._watch.nobody_leads(str(error))

    def _set(self, *, leads: bool) -> None:
        if leads == self.is_ours:
            return
        self.term = wall_ms() if leads else None
        log.info("leader.changed", vhost=self.vhost, leads=leads, term=self.term)
        for listener in [*self._listeners]:
            listener()


async def lead(leadership: Leadership, work: Work) -> None:
    """`work(term)` while we lead, again after what the broker did to us, until cancelled."""
    changed_now = asyncio.Event()
    with leadership.heard(changed_now.set):
        await _leading(leadership, work, changed_now)


async def _leading(leadership: Leadership, work: Work, changed_now: asyncio.Event) -> None:
    once, pause = Once(), LOOK_S
    while True:
        changed_now.clear()
        if leadership.term is None:
            await changed_now.wait()
            continue
        working = asyncio.create_task(work(leadership.term))
        hearing = asyncio.create_task(changed_now.wait())
        try:
            await asyncio.wait({working, hearing}, return_when=asyncio.FIRST_COMPLETED)
            if working.done() and (error := working.exception()) is not None:
                fate = "no redrive task goes on until it is; tried again"
                reason = str(error) if isinstance(error, RETRIED) else repr(error)  # letters do not wait for tasks
                once.warn("learn", "redrive.not_leading", vhost=leadership.vhost, error=reason, fate=fate)
                await asyncio.wait({hearing}, timeout=pause)
                pause = min(pause * 2, LONGEST_LOOK_S)
            elif working.done():
                await hearing
        finally:
            for task in (working, hearing):
                task.cancel()
            await asyncio.gather(working, hearing, return_exceptions=True)
