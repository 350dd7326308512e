"""What lies in a vhost's queues, for the metrics."""

import contextlib
import re
from collections.abc import Container, Iterable
from itertools import islice, product
from typing import Final

from dlx_router.broker.management import Management, ManagementError
from dlx_router.broker.topology import Topology, TopologyError
from dlx_router.core.names import RUNGS, Names
from dlx_router.core.policy import DEFAULTS, PolicySet
from dlx_router.telemetry.survey import Seen

MAX_PATTERNS: Final = 50  # a URL has to hold them


class QueueDepths:
    """Looks at what lies in the queues of one vhost, without touching a letter.

    AMQP counts; only the management API names rungs that others made, and tells timestamps. Without it each rung of the
    grid is looked for once, since rungs are kept, and then those that were there or that we have used meanwhile.
    """

    def __init__(self, names: Names, management: Management | None) -> None:
        self._names, self._management = names, management
        self.pattern = ""  # that of `resting_places`, of the policies in force
        self._rungs: frozenset[int] | None = None

    async def look(self, topology: Topology, used: Iterable[int]) -> Seen:
        """What is known; what could not be had is left out. `used`: rungs (ms) that certainly exist."""
        stamps = await self._head_stamps(topology.vhost)
        by_name = {self._names.delay(rung): rung for rung in {*used, *self._likely(stamps)}}
        try:
            depths = await topology.depths(by_name)
        except TopologyError:
            depths = {}
        else:
            self._rungs = frozenset(by_name[name] for name in depths)
        oldest = {queue: stamp for queue, stamp in (stamps or {}).items() if stamp is not None}
        return Seen({str(by_name[name]): depth for name, depth in depths.items()}, oldest)

    def _likely(self, queues: Container[str] | None) -> Iterable[int]:
        """Rungs that may be there: found before, or named by the API, whose list may be some seconds old."""
        if queues is None:
            return RUNGS if self._rungs is None else self._rungs
        return {*(self._rungs or ()), *(rung for rung in RUNGS if self._names.delay(rung) in queues)}

    async def _head_stamps(self, vhost: str) -> dict[str, float | None] | None:
        with contextlib.suppress(ManagementError):
            if self._management is not None:
                return await self._management.head_timestamps(vhost, self.pattern)
        return None


def resting_places(names: Names, policies: PolicySet) -> str:
    """A regular expression that finds our own queues, and those that auto-created dead-letter queues are named like."""
    layers = [layer for policy in policies.policies for layer in (policy.definition, *policy.on.values())]
    affixes = (
        list(dict.fromkeys([DEFAULTS[key], *(layer[key].value for layer in layers if key in layer)]))
        for key in ("dead-letter-queue-prefix", "dead-letter-queue-suffix")
    )
    named = (f"{re.escape(before)}.*{re.escape(after)}$" for before, after in product(*affixes) if before or after)
    return f"^({'|'.join([re.escape(f'{names.prefix}.'), *islice(named, MAX_PATTERNS)])})"
