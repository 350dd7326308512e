"""Where the key comes from that signs records: a file that replicas share, or the state queue of a single router."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from hashlib import blake2b
from pathlib import Path
from secrets import token_bytes

from dlx_router.broker.alarm import Alarm
from dlx_router.broker.answers import ChannelClosed, LinkError
from dlx_router.broker.state import StateQueue
from dlx_router.broker.topology import Topology
from dlx_router.service.vhost.state_queue import StateQueueWatch
from dlx_router.telemetry.logs import Once, log
from dlx_router.telemetry.readiness import Readiness

MIN_KEY_BYTES = 16
LASTS_S = 2.0  # whoever takes the state queue for himself waits for a moment, though nobody else has it
LOOK_S = 5.0
_UNHEARD = (LinkError, ChannelClosed, TimeoutError)


class KeyFileError(Exception):
    """The key file cannot be used; says which and why, never its content."""


def from_file(path: Path, variable: str = "PROVENANCE_KEY_FILE") -> bytes:
    """The 32 bytes that sign, derived from the file's content whatever its length; at least 16 bytes are asked for."""
    try:
        secret = path.read_bytes().strip()
    except OSError as error:
        raise KeyFileError(f"{variable} {path}: {error.strerror}; name a readable file") from error
    if len(secret) < MIN_KEY_BYTES:
        raise KeyFileError(f"{variable} {path}: {len(secret)} bytes; at least {MIN_KEY_BYTES} are needed")
    return blake2b(secret, digest_size=32, person=b"dlx-router").digest()


def observers(path: Path | None) -> bytes:
    """The shared key, so that records are understood; without one a key of its own: it signs nothing that is kept."""
    return from_file(path) if path is not None else token_bytes(32)


class SigningKey:
    """Gives the key to sessions."""

    def __init__(self, path: Path | None, readiness: Readiness, *, observe: bool = False) -> None:
        self._path = path
        self._observe = observe
        self._readiness = readiness
        self._known: dict[str, bytes] = {}  # by vhost: a queue that was deleted gets its key back

    @property
    def is_shared(self) -> bool:
        """Whether other routers may sign with the same key, and share the work."""
        return self._path is not None

    @asynccontextmanager
    async def key(
        self, topology: Topology, stopping: asyncio.Event, on_lost: Callable[[str], None], watch: StateQueueWatch
    ) -> AsyncIterator[bytes | None]:
        """The key, until `on_lost(why)` is called; None when told to stop while waiting as a standby.

        Readiness says that another router has it, or that the broker blocks us, once that has lasted for 2 s.
        """
        if self._path is not None or self._observe:
            yield observers(self._path)
            return
        known = self._known.get(topology.vhost)
        async with StateQueue(
            topology, on_lost=lambda why: on_lost(str(why)), on_moved=watch.moved, remembered=known
        ) as state:
            reason = f"standby {topology.vhost}"
            standby = asyncio.ensure_future(self._stand_by(reason, topology, state))
            active = asyncio.ensure_future(state.wait_active())
            stop = asyncio.ensure_future(stopping.wait())
            try:
                await asyncio.wait({active, stop}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                stop.cancel()
                standby.cancel()
                try:
                    await asyncio.wait({standby})
                finally:
                    self._readiness.clear(reason)
            if not active.done():
                active.cancel()
                yield None
                return
            active.result()
            log.info("state.active", vhost=topology.vhost)
            if known not in {None, state.key}:
                watch.key_changed()
            self._known[topology.vhost] = state.key
            yield state.key

    async def _stand_by(self, reason: str, topology: Topology, state: StateQueue) -> None:
        await asyncio.sleep(LASTS_S)
        once = Once()
        while True:
            try:
                async with Alarm(await topology.link("alarm")) as alarm:
                    while True:
                        self._report(reason, state, topology.vhost, await alarm.look(), once)
                        await asyncio.sleep(LOOK_S)
            except _UNHEARD:
                self._report(reason, state, topology.vhost, "", once)
                await asyncio.sleep(LOOK_S)

    def _report(self, reason: str, state: StateQueue, vhost: str, alarm: str, once: Once) -> None:
        """Behind an alarm nobody can tell whether another has the queue: what asks for it is not read."""
        if alarm:
            self._readiness.set(reason, f"the broker blocks publishers in vhost {vhost!r}: {alarm}")
            once.warn(vhost, "broker.blocked", vhost=vhost, error=alarm, fate="nothing is consumed; nothing is lost")
            return
        once.healed(vhost, "broker.unblocked", vhost=vhost)
        why = state.hindrance or (
            "another router holds the state queue, and without PROVENANCE_KEY_FILE only one may consume"
        )
        self._readiness.set(reason, f"vhost {vhost!r}: {why}; standing by")
        once.warn(f"standby {why}", "vhost.standby", vhost=vhost, problem=why, fate="nothing is consumed here")
