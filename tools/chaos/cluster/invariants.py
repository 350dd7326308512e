"""The laws that are watched while faults happen: no standstill, and no readiness while nothing moves. No clock."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from tools.chaos.cluster.accounting import WAYS, Way
from tools.chaos.cluster.schedule import NODES

STANDSTILL_S: Final = 30.0
NOTICED_S: Final = 10.0
WORTH_TELLING_S: Final = 5.0
CONTROL_STANDS_S: Final = 5.0
WORKER_STANDS_S: Final = 10.0  # the broker counts every 5 s
NEIGHBOURS_S: Final = 3.0
READY: Final = 200
_MAJORITY: Final = NODES // 2 + 1


@dataclass(frozen=True)
class Sample:
    """One look, once a second."""

    at_s: float
    fault: str  # that is on, or was the last
    up: tuple[bool, ...]  # the nodes that run and serve
    waits: dict[Way, float | None]  # of the letters, see Books
    control: dict[Way, float | None]  # the same without a router
    settled: float  # deliveries acked by all replicas together
    held: int | None  # ready letters in the inbox and attended sources; None: the broker does not say
    ready: tuple[int, ...]  # what /readyz of each replica said; 0: nothing
    broker_holds: frozenset[str] = frozenset()  # sources whose own dead-letter worker stands, see DeadLetterStages

    def serves(self, way: Way) -> bool:
        """A majority is up, and the node of the source."""
        return self.majority and (way.node is None or self.up[way.node])

    @property
    def majority(self) -> bool:
        """Quorum queues can work."""
        return sum(self.up) >= _MAJORITY


@dataclass(frozen=True)
class Stand:
    """Letters of a way waited and none arrived, though the broker could serve them."""

    source: str
    fault: str
    begun_s: float
    seconds: float
    alone_s: float  # of these, since the control stood too (the same queues without a router), or the broker's own hop

    def __str__(self) -> str:
        longer = f"{self.alone_s:.0f} s longer than the control"
        return f"{self.source} stood for {self.seconds:.0f} s, {longer} ({self.fault})"


class DeadLetterStages:
    """Letters that died in a quorum queue and lie there still, because its own worker gets no confirm for them.

    They came to no inbox, so no router can have them. After a partition a worker may stand until its queue has another
    leader, in a cluster without a router too.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, int]] = {}  # queue → since when none left the stage, and how many are in it

    def feed(self, at_s: float, counts: Mapping[str, int]) -> None:
        """How many lie in the stage of each queue (`messages_dlx`)."""
        for queue in {*self._known, *counts}:
            many = counts.get(queue, 0)
            since, before = self._known.get(queue, (at_s, many))
            if many:
                self._known[queue] = (at_s if many < before else since, many)
            else:
                self._known.pop(queue, None)

    def standing(self, at_s: float) -> frozenset[str]:
        """The queues whose worker has moved nothing for so long that it is no count that is old."""
        return frozenset(queue for queue, (since, _) in self._known.items() if at_s - since >= WORKER_STANDS_S)


class Standstills:
    """Collects stands from samples. A stand begins with the first letter that waits once the broker serves it."""

    def __init__(self) -> None:
        self.stands: list[Stand] = []
        self._serves_since: dict[Way, float | None] = dict.fromkeys(WAYS)
        self._control_stood = dict.fromkeys(WAYS, 0.0)
        self._open: dict[Way, Stand] = {}

    def feed(self, sample: Sample) -> None:
        """The next sample."""
        for way in WAYS:
            self._feed(way, sample)

    def end(self) -> None:
        """What still stands is written down."""
        for way in list(self._open):
            self._close(way)

    @property
    def alone(self) -> bool:
        """Something stands now that stands not in the control."""
        return any(one.alone_s > 0 for one in self._open.values())

    @property
    def standing(self) -> list[Stand]:
        """What stands now."""
        return list(self._open.values())

    def _feed(self, way: Way, sample: Sample) -> None:
        if not sample.serves(way):
            self._serves_since[way] = None
            self._close(way)
            return
        since = self._serves_since[way]
        if since is None:
            since = self._serves_since[way] = sample.at_s
        waits = sample.waits[way]
        known = self._open.get(way)
        if waits is None or (known and max(since, waits) > known.begun_s):
            self._close(way)
        if _stands(sample.control[way], since, sample.at_s) or way.source in sample.broker_holds:
            self._control_stood[way] = sample.at_s
        if waits is not None:
            begun = max(since, waits)
            alone = sample.at_s - max(begun, self._control_stood[way])
            self._open[way] = Stand(way.source, sample.fault, begun, sample.at_s - begun, alone)

    def _close(self, way: Way) -> None:
        stand = self._open.pop(way, None)
        if stand and stand.seconds > WORTH_TELLING_S:
            self.stands.append(stand)


def _stands(waits: float | None, since: float, at_s: float) -> bool:
    return waits is not None and at_s - max(waits, since) > CONTROL_STANDS_S


@dataclass(frozen=True)
class ReadyInVain:
    """A second in which a replica said 200 though letters waited and nothing had moved for too long."""

    at_s: float
    fault: str
    replicas: tuple[int, ...]
    still_s: float
    held: int | None


@dataclass
class Readiness:
    """Collects the seconds in which readiness was wrong."""

    seconds: list[ReadyInVain] = field(default_factory=list)
    _settled: float = -1.0
    _still_since: float | None = None

    def feed(self, sample: Sample, *, stands: bool = False) -> None:
        """The next sample. `stands`: letters of a way stand that the broker serves: they need not be ready, see below.

        Letters that a frozen node delivered to its consumers are not ready and move as little. Where the broker does
        not say what it holds, letters that wait are what it holds; without a majority it says what was long ago.
        """
        holds = stands or bool(sample.held)
        if sample.held is None or not sample.majority:
            holds = holds or any(one is not None for one in sample.waits.values())
        if sample.settled != self._settled or not holds:
            self._settled, self._still_since = sample.settled, None
            return
        if self._still_since is None:
            self._still_since = sample.at_s - 1  # the sample before saw the same number
        still = sample.at_s - self._still_since
        ready = tuple(at for at, status in enumerate(sample.ready) if status == READY)
        if still > NOTICED_S and ready:
            self.seconds.append(ReadyInVain(sample.at_s, sample.fault, ready, still, sample.held))

    def spans(self) -> Iterator[str]:
        """The seconds as sentences, neighbours together."""
        group: list[ReadyInVain] = []
        for one in self.seconds:
            if group and one.at_s - group[-1].at_s > NEIGHBOURS_S:
                yield _span(group)
                group = []
            group.append(one)
        if group:
            yield _span(group)


def _span(group: list[ReadyInVain]) -> str:
    who = " and ".join(map(str, sorted({replica for one in group for replica in one.replicas})))
    most = max(one.still_s for one in group)
    return f"{len(group)} s: replica {who} said 200, nothing moved for {most:.0f} s ({group[0].fault})"
