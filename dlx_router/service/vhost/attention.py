"""Readiness notes about what needs a person: parked messages, and exchanges of policies that do not exist."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from dlx_router.broker.topology import Topology, TopologyError
from dlx_router.core.dead_letter_queues import named_exchanges
from dlx_router.core.policy import PolicySet
from dlx_router.telemetry.readiness import Readiness

EVERY_S: Final = 10.0
EXCHANGES_S: Final = 30.0  # looking for one that does not exist closes a channel
DECLARE: Final = "declare the exchange, or change dead-letter-exchange"
PARKED: Final = "`dlx-router letters list --state parked` shows why; remove the cause, then redrive or discard them"
QUARANTINED: Final = "`dlx-router letters list --state quarantined` shows why; look at them, then take them out"


async def missing_exchanges(topology: Topology, policies: PolicySet) -> list[str]:
    """A text for each exchange that a policy names and that does not exist. TopologyError."""
    return [
        f"vhost {topology.vhost!r}: exchange {exchange!r}, named by policy {source.policy!r} ({source}), does not "
        "exist: messages for it are deferred, then parked"
        for exchange, source in named_exchanges(policies, topology.vhost).items()
        if not await topology.exchange_exists(exchange)
    ]


async def set_aside(topology: Topology) -> list[tuple[str, str]]:
    """What waits for a person in parking and quarantine, and the fix. TopologyError."""
    names = topology.names
    fixes = {names.parking: PARKED, names.quarantine: QUARANTINED}
    depths = await topology.depths(fixes)
    return [
        (f"vhost {topology.vhost!r}: {n} message{'s' * (n > 1)} in {queue!r}", fixes[queue])
        for queue, n in depths.items()
        if n
    ]


class Attention:
    """Keeps the notes of one vhost up to date while a session lasts."""

    def __init__(self, vhost: str, readiness: Readiness) -> None:
        self._vhost, self._readiness = vhost, readiness
        self._notes: dict[str, list[str]] = {}

    async def watch(self, topology: Topology, policies: Callable[[], PolicySet]) -> None:
        """Look again and again until cancelled; what cannot be asked for stays as it was."""
        looked, looked_s = None, 0.0
        while True:
            try:
                if (now := policies()) is not looked or time.monotonic() - looked_s > EXCHANGES_S:
                    missing = await missing_exchanges(topology, now)
                    self._tell("targets", [f"{text}; {DECLARE}" for text in missing])
                    looked, looked_s = now, time.monotonic()
                self._tell("aside", [f"{text}; {fix}" for text, fix in await set_aside(topology)])
            except TopologyError:
                pass  # the session has more to say about it
            await asyncio.sleep(EVERY_S)

    def _tell(self, kind: str, texts: list[str]) -> None:
        for at in range(max(len(texts), len(self._notes.get(kind, ())))):
            key = f"{kind} {self._vhost} {at}"
            if at < len(texts):
                self._readiness.note(key, texts[at])
            else:
                self._readiness.drop_note(key)
        self._notes[kind] = texts
