"""Drift: what the index counts where letters lie, against what the queues hold.

Every so often the leader looks. A queue that is empty in two looks, and has nothing unacknowledged either, has lost its
letters to somebody: the index is told. What else differs is shown only, because nobody can say which letters went.
"""

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from dlx_router.broker.management import Management, ManagementError
from dlx_router.broker.topology import TopologyError
from dlx_router.operate.index.reader import IndexAway, TooLong
from dlx_router.operate.index.supervisor import Supervisor
from dlx_router.service.vhost import Attendant
from dlx_router.telemetry.logs import log

EVERY_S: Final = 5.0
GRACE_MS: Final = 10_000  # an event comes before its letter, which may be tried for some time
MAX_PLACES: Final = 2000  # a look at more would take too long
Place = tuple[str, str, str]  # vhost, exchange, routing key


class Look(NamedTuple):
    """What was found behind a place. `depth` None: nobody could say."""

    queue: str | None
    depth: int | None
    at_ms: int
    is_idle: bool = False  # nothing is out with a consumer


class Drift:
    """The last look at each place."""

    def __init__(self, index: Supervisor, attendants: Mapping[str, Attendant], management: Management | None) -> None:
        self._index, self._attendants, self._management = index, attendants, management
        self._looks: dict[Place, Look] = {}
        self._empty: dict[Place, int] = {}  # since when, ms

    def told(self, place: Mapping[str, Any], *, limited: bool) -> dict[str, Any]:
        """A place as the API tells it. `limited`: the caller sees some of its letters only, so depths tell nothing."""
        key: Place = (place["vhost"], place["exchange"], place["routing_key"])
        look = self._looks.get(key, Look(None, None, 0))
        depth = None if limited else look.depth
        return {
            **dict(zip(("vhost", "exchange", "routing_key"), key, strict=True)),
            "queue": look.queue,
            "indexed": place["n"],
            "depth": depth,
            "drift": None if depth is None else place["n"] - depth,
            "checked_ms": look.at_ms or None,
        }

    async def watch(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(EVERY_S)
            try:
                places = await asyncio.to_thread(self._index.reader.places)
                for vhost, attendant in self._attendants.items():
                    if attendant.leadership.is_ours:
                        self._forget_others(places)
                        await self._look(attendant, [one for one in places if one["vhost"] == vhost][:MAX_PLACES])
            except (IndexAway, TooLong, TopologyError, ManagementError, OSError) as error:
                log.debug("index.drift", error=str(error))
            except Exception as error:  # noqa: BLE001 - a look must never end all others
                log.warning("index.drift", error=repr(error), fate="depths are not known; it is looked again")

    def _forget_others(self, places: Iterable[Mapping[str, Any]]) -> None:
        """Places that the index does not tell of any more."""
        told = {(one["vhost"], one["exchange"], one["routing_key"]) for one in places}
        for kept in (self._looks, self._empty):
            for place in [place for place in kept if place not in told]:
                del kept[place]

    async def _look(self, attendant: Attendant, places: Iterable[Mapping[str, Any]]) -> None:
        topology, now = attendant.topology, int(time.time() * 1000)
        if topology is None:
            return
        named: dict[Place, str] = {}
        for one in places:
            queue = await self._queue(one)
            if queue is not None:
                named[one["vhost"], one["exchange"], one["routing_key"]] = queue
        found = await self._counted(attendant, {*named.values()})
        for place, queue in named.items():
            depth, is_idle = found.get(queue, (None, False))
            self._looks[place] = Look(queue, depth, now, is_idle)
            self._judge(place, self._looks[place])

    async def _queue(self, place: Mapping[str, Any]) -> str | None:
        """The one queue that a place leads to; None where there are several, or nobody can say."""
        if not place["exchange"]:
            return str(place["routing_key"])
        if self._management is None:
            return None
        bound = await self._management.bound_queues(place["vhost"], place["exchange"], place["routing_key"])
        return bound[0] if bound is not None and len(bound) == 1 else None

    async def _counted(self, attendant: Attendant, queues: set[str]) -> dict[str, tuple[int | None, bool]]:
        """Messages of each queue, and whether none is out with a consumer."""
        assert attendant.topology is not None
        found: dict[str, tuple[int | None, bool]] = {}
        for queue, (ready, consumers) in (await attendant.topology.censuses(queues)).items():
            found[queue] = (ready, consumers == 0)
        if self._management is not None:
            totals = await self._management.totals(attendant.vhost, [one for one in found if not found[one][0]])
            found |= {queue: (total, total == 0) for queue, total in totals.items()}
        return found

    def _judge(self, place: Place, look: Look) -> None:
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
