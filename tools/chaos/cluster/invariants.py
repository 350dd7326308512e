"""The laws that are watched while faults happen: no standstill, and no readiness while nothing moves. No clock."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tools.chaos.cluster.accounting import ATTACHED, ENDS, RETRY, WAYS, Way
from tools.chaos.cluster.schedule import NODES

STANDSTILL_S: Final = 30.0
NOTICED_S: Final = 10.0
WORTH_TELLING_S: Final = 5.0
CONTROL_STANDS_S: Final = 5.0
WORKER_STANDS_S: Final = 8.0
NEIGHBOURS_S: Final = 3.0
LOOK_HOLDS_S: Final = 15.0  # what was seen at a look, where no later one was answered
INBOX: Final = "dlx-router.inbox"
RELEASE: Final = "dlx-router.release"
RUNGS: Final = "dlx-router.delay."
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
    broker_holds: frozenset[str] = frozenset()  # queues whose own dead-letter worker stands, see DeadLetterStages
    silent: frozenset[str] = frozenset()  # quorum queues that have no leader, or one that cannot commit

    def serves(self, way: Way) -> bool:
        """A majority is up, and the node of the source."""
        return self.majority and (way.node is None or self.up[way.node])

    @property
    def majority(self) -> bool:
        """Quorum queues can work."""
        return sum(self.up) >= _MAJORITY

    def in_broker(self, way: Way) -> bool:
        """The broker does not hand letters of the way on, or does not take them.

        Its own worker stands where they die, in their source or in a rung that they wait in; or a quorum queue that
        they have to pass has no leader. A classic source has neither; its letters wait in rungs all the same.
        """
        held = self.broker_holds | self.silent
        if way.route == RETRY:
            return any(queue.startswith(RUNGS) or queue in {way.source, INBOX, RELEASE} for queue in held)
        return way.source in held or ENDS in self.silent or (way.route != ATTACHED and INBOX in self.silent)


@dataclass(frozen=True)
class Stand:
    """Letters of a way waited and none arrived, though the broker could serve them."""

    source: str
    fault: str
    begun_s: float
    seconds: float
    alone_s: float  # of these, since the control stood too (the same queues without a router), or the broker's own hop
    in_broker_s: float = 0.0  # of these, until the last look at which the broker's own hop stood, or a queue
    partitioned_s: float = 0.0  # of these, while two nodes that ran did not hear each other

    def __str__(self) -> str:
        longer = f"{self.alone_s:.0f} s longer than the control"
        broker = f", {self.in_broker_s:.0f} s of it a queue or worker of the broker stood" if self.in_broker_s else ""
        apart = f", {self.partitioned_s:.0f} s of it two running nodes did not hear each other"
        why = f"{broker}{apart if self.partitioned_s else ''}"
        return f"{self.source} stood for {self.seconds:.0f} s, {longer}{why} ({self.fault})"


class Stage(NamedTuple):
    """Letters that died in a quorum queue and wait for its own worker: how many, and the oldest index of its log."""

    many: int
    oldest: int


class Stages(NamedTuple):
    """One look at the quorum queues of a vhost: where anything died and lies there, and which have no leader."""

    dead: Mapping[str, Stage]
    silent: frozenset[str]


class DeadLetterStages:
    """Letters that died in a quorum queue and lie there still, because its own worker gets no confirm for them.

    They came to no inbox, so no router can have them. A worker stands while its target's leader is away, and after a
    partition until its queue has another leader, in a cluster without a router too.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, int]] = {}  # queue → since when, and the index that is its oldest since
        self._silent: frozenset[str] = frozenset()
        self._fed_s = 0.0

    def feed(self, at_s: float, look: Stages) -> None:
        """What lies in the stage of each queue now. A queue that is not named has nothing there."""
        self._fed_s, self._silent = at_s, look.silent
        before, self._known = self._known, {}
        for queue, stage in look.dead.items():
            if stage.many:
                since, oldest = before.get(queue, (at_s, stage.oldest))
                self._known[queue] = (since if oldest == stage.oldest else at_s, stage.oldest)

    def standing(self, at_s: float) -> frozenset[str]:
        """The queues of which nothing left, neither here nor to a consumer, for longer than a worker needs."""
        if at_s - self._fed_s > LOOK_HOLDS_S:
            return frozenset()
        return frozenset(queue for queue, (since, _) in self._known.items() if at_s - since >= WORKER_STANDS_S)

    def silent(self, at_s: float) -> frozenset[str]:
        """The quorum queues without a leader that can commit, at the last look."""
        return self._silent if at_s - self._fed_s <= LOOK_HOLDS_S else frozenset()


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
        return any(stand.alone_s > 0 for stand in self._open.values())

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
        in_broker = sample.in_broker(way)
        if _stands(sample.control[way], since, sample.at_s) or in_broker:
            self._control_stood[way] = sample.at_s
        if waits is not None:
            begun = max(since, waits)
            alone = sample.at_s - max(begun, self._control_stood[way])
            stood = sample.at_s - begun
            known = self._open.get(way)
            held = stood if in_broker else known.in_broker_s if known else 0.0
            self._open[way] = Stand(way.source, sample.fault, begun, stood, alone, held)

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
            holds = holds or any(wait is not None for wait in sample.waits.values())
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
        for moment in self.seconds:
            if group and moment.at_s - group[-1].at_s > NEIGHBOURS_S:
                yield _span(group)
                group = []
            group.append(moment)
        if group:
            yield _span(group)


def _span(group: list[ReadyInVain]) -> str:
    who = " and ".join(map(str, sorted({replica for moment in group for replica in moment.replicas})))
    most = max(moment.still_s for moment in group)
    return f"{len(group)} s: replica {who} said 200, nothing moved for {most:.0f} s ({group[0].fault})"
