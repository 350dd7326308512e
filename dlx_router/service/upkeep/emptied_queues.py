"""Find queues that somebody else emptied: their letters become `gone` in the index. Also keeps depths for the API.

Each router with an index looks every 5 s at the places where it counts letters. A queue that is empty in two looks with
nothing unacknowledged, or that does not exist in two looks, has lost its letters. Where a queue holds fewer letters
than the index counts nobody knows which went: `doctor` reports the difference. No answer is no evidence.
"""

import asyncio
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from dlx_router.broker.management import Management, ManagementError
from dlx_router.broker.topology import Topology, TopologyError
from dlx_router.index.reader import IndexAway, TooLong
from dlx_router.index.supervisor import Supervisor
from dlx_router.service.vhost.runner import VhostRunner
from dlx_router.telemetry.logs import Once
from dlx_router.telemetry.wall_clock import wall_ms

EVERY_S: Final = 5.0
GRACE_MS: Final = 10_000  # an event comes before its letter, which may be tried for some time
MAX_PLACES: Final = 2000  # a look at more would take too long
Place = tuple[str, str, str]  # vhost, exchange, routing key


class DepthLook(NamedTuple):
    """What was found behind a place. `depth` None: nobody could say."""

    queue: str | None
    depth: int | None
    at_ms: int
    is_idle: bool = False  # nothing is out with a consumer


def _key(row: Mapping[str, Any]) -> Place:
    return row["vhost"], row["exchange"], row["routing_key"]


class EmptiedQueues:
    """The last look at each place."""

    def __init__(self, index: Supervisor, attendants: Mapping[str, VhostRunner], management: Management | None) -> None:
        self._index, self._attendants, self._management = index, attendants, management
        self._looks: dict[Place, DepthLook] = {}
        self._empty: dict[Place, int] = {}  # since when, ms
        self._once = Once()

    def to_document(self, place: Mapping[str, Any], *, limited: bool) -> dict[str, Any]:
        """A place as the API tells it. `limited`: the caller sees some of its letters only, so depths tell nothing."""
        key = _key(place)
        look = self._looks.get(key, DepthLook(None, None, 0))
        return {
            **dict(zip(("vhost", "exchange", "routing_key"), key, strict=True)),
            "queue": look.queue,
            "indexed": place["n"],
            "depth": None if limited else look.depth,
            "checked_ms": look.at_ms or None,
        }

    async def watch(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(EVERY_S)
            try:
                places = await asyncio.to_thread(self._index.reader.places)
            except (IndexAway, TooLong, OSError) as error:
                self._unseen("", str(error))
                continue
            self._keep({_key(row) for row in places})
            for vhost, attendant in [*self._attendants.items()]:
                await self._try(attendant, [row for row in places if row["vhost"] == vhost][:MAX_PLACES])

    async def _try(self, attendant: VhostRunner, places: Sequence[Mapping[str, Any]]) -> None:
        """One vhost; what is wrong there says nothing about the others, and ends nothing."""
        vhost, topology = attendant.vhost, attendant.topology
        try:
            if topology is not None:
                await self._look(attendant, topology, places)
                self._once.healed(vhost, "index.depths", vhost=vhost, fate="depths are known again")
                return
            why = ""  # that there is no connection is told by others
        except (TopologyError, ManagementError, OSError) as error:
            why = str(error)
        except Exception as error:  # noqa: BLE001 - a look must never end all others
            why = f"{type(error).__name__} {error}"
        self._unseen(vhost, why)

    def _unseen(self, vhost: str, why: str) -> None:
        """Nothing is known of the places of this vhost, "" of all; told once where there is a reason."""
        self._keep({place for place in self._looks.keys() | self._empty if vhost and place[0] != vhost})
        if why:
            fate = "depths are not known, and nothing is concluded; it is looked again"
            self._once.warn(vhost, "index.depths", vhost=vhost or None, error=why, fate=fate)

    def _keep(self, places: Container[Place]) -> None:
        """Forget all other places."""
        for kept in (self._looks, self._empty):
            for place in [place for place in kept if place not in places]:
                del kept[place]

    async def _look(self, attendant: VhostRunner, topology: Topology, places: Iterable[Mapping[str, Any]]) -> None:
        now = wall_ms()
        named = {_key(row): await self._queue(row) for row in places}
        counts = await self._counted(attendant, topology, {queue for queue in named.values() if queue is not None})
        for place, queue in named.items():
            depth, is_idle = counts.get(queue or "", (None, False))
            self._looks[place] = DepthLook(queue, depth, now, is_idle)
            self._judge(place, self._looks[place])

    async def _queue(self, place: Mapping[str, Any]) -> str | None:
        """The one queue that a place leads to; None where there are several, or nobody can say."""
        if not place["exchange"]:
            return str(place["routing_key"])
        if self._management is None:
            return None
        bound = await self._management.bound_queues(place["vhost"], place["exchange"], place["routing_key"])
        return bound[0] if bound is not None and len(bound) == 1 else None

    async def _counted(
        self, attendant: VhostRunner, topology: Topology, queues: set[str]
    ) -> dict[str, tuple[int | None, bool]]:
        """Messages of each queue, and whether none is out with a consumer.

        A queue whose node starts, or has no majority, is said to be empty by a passive look: where the management API
        can be asked, 0 has to be its word too, and that there is no such queue.
        """
        counts: dict[str, tuple[int | None, bool]] = {}
        vhost, leads = attendant.vhost, attendant.leadership.is_ours
        leased = attendant.leases.queues  # unacknowledged, and nobody's consumer; only the leader knows them
        seen = await topology.queue_counts(queues)
        for queue, (ready, consumers) in seen.counts.items():
            counts[queue] = (ready, leads and consumers == 0 and queue not in leased)
        if self._management is not None:
            zeros = [queue for queue in counts if not counts[queue][0]]
            totals = await self._management.totals(vhost, zeros)
            counts |= {queue: (totals.get(queue), totals.get(queue) == 0 and queue not in leased) for queue in zeros}
        missing = [queue for queue in seen.missing if await self._is_missing(vhost, queue)]
        return counts | {queue: (0, queue not in leased) for queue in missing}

    async def _is_missing(self, vhost: str, queue: str) -> bool:
        """Whether the management API, where there is one, says so too."""
        return self._management is None or await self._management.facts(vhost, queue) is None

    def _judge(self, place: Place, look: DepthLook) -> None:
        """Empty twice, with nothing out: what came there some time before the first look has gone."""
        vhost = place[0]
        state = ((self._index.status.get("vhosts") or {}).get(vhost) or {}).get("state")
        if look.depth != 0 or not look.is_idle or state != "current":
            self._empty.pop(place, None)
            return
        since = self._empty.get(place)
        if since is None:
            self._empty[place] = look.at_ms
        else:
            self._index.emptied(*place, since - GRACE_MS)
            self._empty[place] = look.at_ms
