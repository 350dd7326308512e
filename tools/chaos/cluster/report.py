"""What a run on three nodes says: a section of docs/reliability.md for people, and the same as JSON."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tools.chaos.cluster.accounting import ATTACHED, CLASSIC, WAYS
from tools.chaos.cluster.attribution import BROKER, ROUTER, UNDECIDED
from tools.chaos.cluster.faults import Fault
from tools.chaos.cluster.invariants import STANDSTILL_S, Stand
from tools.chaos.cluster.partition import Partition
from tools.chaos.cluster.schedule import KINDS, Part

INTRO: Final = """## Three nodes beside a control

Written by `make chaos-cluster` (tools/chaos/cluster/run.py); do not edit. Three nodes of RabbitMQ, two routers that
know all three, quorum sources and classic ones that are led by each of the nodes. Faults of nodes and routers are drawn
by the seed. In a vhost beside, the **control**: the same queues, load and faults, and no router (plain dead-letter
exchanges and consumers), so what it loses is what the broker loses by itself. A letter counts once its publish
(mandatory) was confirmed. It was lost by the router if its source is a quorum queue, or if the journal says that a
router had it; by the broker if its source is classic, no router ever settled it by the journal, and a node had a fault
near it, or a connection between two. The rest is undecided, and breaks the law too
([how](decisions/0062-what-the-broker-loses-by-itself.md)). A
standstill: letters of a way wait and none of them arrives, while two nodes (and that of the classic source) run and
serve; not longer than the control's are seconds in which it stood too, in which the broker's own dead-letter worker of
the source, or of a rung, stood (what it has came to no inbox), in which a quorum queue on the way had no leader, or in
which by its own log a node heard nothing of another one, while no fault held either; outside of these it is judged.
Ready in vain: a replica says 200, letters are held, and no replica has settled one for more than 10 s. Every
fault with its moment is in `build/chaos-cluster.log` of the machine that ran this. The brokers' dead-letter workers ask
again after 3 s where an inbox did not confirm, and not after 3 minutes as they do by default.
"""

STRATEGIES: Final = """RabbitMQ 4.3 still reads `cluster_partition_handling` and does nothing by it: its metadata are in
Raft, where a minority stands still by itself. RabbitMQ 4.0, with Mnesia, obeys; the last columns count what its nodes
logged.
"""
OF_CLUSTERS: Final = (
    *("RabbitMQ", "cluster_partition_handling", "obeyed", "minutes", "faults"),
    *("nodes seen down", "healed by autoheal", "paused as minority"),
)
OF_FAULTS: Final = (
    *("kind", "times", "every way flows again after, at most", "the control"),
    *("longest standstill", "longer than the control's"),
)
HOLE_TIMES: Final = 3
HOLE_MORE: Final = 50
LED_ANEW: Final = """Where the broker's own worker of dead letters stood to the end, ours or the control's: its queue
got another leader, and the letters came:"""
PARTITIONED: Final = "Nodes that ran and did not hear each other, by their own logs; no fault held either:"
ANSWERS_LOST: Final = """Delivered to the load's own consumers, whose answer the broker never got: found when these
connected anew (what a router has is not touched by that):"""
SILENT: Final = "RabbitMQ's own: who is silent is down after 45 to 75 s"


@dataclass(frozen=True)
class Row:
    """One way: letters confirmed, and who lost how many."""

    source: str
    letters: int
    lost: dict[str, int]
    control: int
    control_lost: int


@dataclass
class PartReport:
    """One cluster."""

    part: Part
    version: str
    tick_s: str
    obeys: bool
    seconds: float = 0.0
    drained_s: float = 0.0
    faults: list[Fault] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    arguments: Counter[str] = field(default_factory=Counter)
    stands: list[Stand] = field(default_factory=list)
    in_vain: int = 0
    in_vain_spans: list[str] = field(default_factory=list)
    duplicates: int = 0
    in_doubt: int = 0
    refused: int = 0
    places: dict[str, int] = field(default_factory=dict)
    logged: dict[str, int] = field(default_factory=dict)
    evidence: list[str] = field(default_factory=list)
    led_anew: list[str] = field(default_factory=list)  # queues whose own dead-letter worker stood to the end
    partitions: list[Partition] = field(default_factory=list)
    came_anew: tuple[int, int] = (0, 0)  # letters and the control's, once the load's consumers had connected anew
    violations: list[str] = field(default_factory=list)

    def lost(self, who: str) -> int:
        """Letters that this one lost."""
        return sum(row.lost.get(who, 0) for row in self.rows)

    @property
    def broken(self) -> list[str]:
        """Every law that does not hold."""
        return [f"{self.part}: {violation}" for violation in (*self.violations, *self._laws())]

    def _laws(self) -> Iterator[str]:
        if lost := self.lost(ROUTER):
            yield f"{lost} letters lost by the router"
        if undecided := self.lost(UNDECIDED):
            yield f"{undecided} letters are lost and nobody can say by whom"
        yield from self._holes()
        yield from (str(stand) for stand in self.stands if stand.alone_s > STANDSTILL_S)
        for fault in self.faults:
            if fault.flows is None and fault.control_flows is not None:
                yield f"not every way flowed again, and the control did: {fault}"
        if self.in_vain:
            yield f"ready for {self.in_vain} s while nothing moved"
            yield from self.in_vain_spans

    def _holes(self) -> Iterator[str]:
        """Where the broker is said to have lost much more than it lost of the control's, the argument has a hole."""
        attached = {way.source for way in CLASSIC if way.route == ATTACHED}
        for name, rows in (
            ("attended classic sources", [row for row in self.rows if row.source in attached]),
            ("the hop out of classic sources", [row for row in self.rows if row.source not in attached]),
        ):
            ours, theirs = sum(row.lost.get(BROKER, 0) for row in rows), sum(row.control_lost for row in rows)
            if ours > theirs * HOLE_TIMES + HOLE_MORE:
                yield f"{name}: {ours} letters are said to be lost by the broker, and it lost {theirs} of the control's"


@dataclass
class Report:
    """One run."""

    router: str
    seed: int
    minutes: float
    rate: float
    parts: list[PartReport] = field(default_factory=list)
    unmade: list[str] = field(default_factory=list)  # parts that could not be run

    @property
    def broken(self) -> list[str]:
        """Every law that does not hold, of all parts."""
        return [*self.unmade, *(violation for part in self.parts for violation in part.broken)]


def markdown(report: Report) -> str:
    """The section."""
    body = (*_head(report), "", *_clusters(report), "", *_losses(report), "", *_faults(report), "", *_broken(report))
    return "\n".join((INTRO, *body))


def _head(report: Report) -> Iterator[str]:
    parts = report.parts
    faults = [fault for part in parts for fault in part.faults]
    stands = [stand for part in parts for stand in part.stands]
    control_lost = sum(row.control_lost for part in parts for row in part.rows)
    yield "| | |"
    yield "|---|---|"
    yield f"| dlx-router | {report.router} |"
    yield f"| seed | {report.seed} |"
    yield f"| minutes under faults | {sum(part.seconds for part in parts) / 60:.1f} |"
    yield f"| letters (publish confirmed), control's | {_letters(parts):,}, {_control(parts):,} |"
    yield f"| faults | {len(faults)} of {len({fault.drawn.kind for fault in faults})} kinds |"
    yield f"| **lost by the router** | **{sum(part.lost(ROUTER) for part in parts)}** |"
    yield f"| lost, undecided | {sum(part.lost(UNDECIDED) for part in parts)} |"
    yield f"| lost by the broker (classic sources) | {sum(part.lost(BROKER) for part in parts)} |"
    yield f"| lost by the control | {control_lost} |"
    yield f"| longest standstill, and longer than the control's by | {_most(stands)} |"
    in_broker = _at_most([(stand.in_broker_s, stand.source) for stand in stands])
    apart = _at_most([(stand.partitioned_s, stand.source) for stand in stands])
    yield f"| of a standstill, in the broker's own dead-letter worker, at most | {in_broker} |"
    yield f"| of a standstill, while two running nodes did not hear each other, at most | {apart} |"
    yield f"| seconds ready while nothing moved | {sum(part.in_vain for part in parts)} |"
    yield f"| copies beyond the first | {sum(part.duplicates for part in parts):,} |"
    yield f"| publishes refused, in doubt (no letters) | {_refused(parts)} |"
    yield f"| net_ticktime | {', '.join(sorted({part.tick_s for part in parts}))} s, {SILENT} |"


def _at_most(stood: Sequence[tuple[float, str]]) -> str:
    seconds, source = max(stood, default=(0.0, ""))
    return f"{seconds:.0f} s ({source})" if seconds else "0 s"


def _letters(parts: Sequence[PartReport]) -> int:
    return sum(row.letters for part in parts for row in part.rows)


def _control(parts: Sequence[PartReport]) -> int:
    return sum(row.control for part in parts for row in part.rows)


def _refused(parts: Sequence[PartReport]) -> str:
    return f"{sum(part.refused for part in parts):,}, {sum(part.in_doubt for part in parts):,}"


def _most(stands: Sequence[Stand]) -> str:
    if not stands:
        return "–"
    longest = max(stands, key=lambda stand: stand.seconds)
    alone = max(stands, key=lambda stand: stand.alone_s)
    return f"{longest.seconds:.0f} s ({longest.fault}), {alone.alone_s:.0f} s ({alone.fault})"


def _clusters(report: Report) -> Iterator[str]:
    yield STRATEGIES
    yield f"| {' | '.join(OF_CLUSTERS)} |"
    yield "|---|---|---|---:|---:|---:|---:|---:|"
    for part in report.parts:
        logged = " | ".join(str(part.logged.get(name, 0)) for name in ("down", "autoheal", "minority"))
        what = f"{part.version} | {part.part.strategy} | {'yes' if part.obeys else 'no'}"
        yield f"| {what} | {part.seconds / 60:.1f} | {len(part.faults)} | {logged} |"
    yield from _list(
        PARTITIONED, [f"{part.part}: {partition}" for part in report.parts for partition in part.partitions]
    )


def _losses(report: Report) -> Iterator[str]:
    yield "### Letters lost"
    yield ""
    yield "| source | letters | by the router | undecided | by the broker | control's letters | lost by the control |"
    yield "|---|---:|---:|---:|---:|---:|---:|"
    for way in WAYS:
        rows = [row for part in report.parts for row in part.rows if row.source == way.source]
        who = " | ".join(str(sum(row.lost.get(culprit, 0) for row in rows)) for culprit in (ROUTER, UNDECIDED, BROKER))
        theirs = f"{sum(row.control for row in rows):,} | {sum(row.control_lost for row in rows)}"
        yield f"| {way.source} | {sum(row.letters for row in rows):,} | {who} | {theirs} |"
    arguments: Counter[str] = Counter()
    for part in report.parts:
        arguments.update(part.arguments)
    if arguments:
        yield ""
        yield from (f"* {many} letters: {why}" for why, many in arguments.most_common())
    yield from _list(LED_ANEW, [line for part in report.parts for line in part.led_anew])
    came = {part.part: part.came_anew for part in report.parts if any(part.came_anew)}
    lines = [f"{part}: {ours}, and {theirs} of the control's" for part, (ours, theirs) in came.items()]
    yield from _list(ANSWERS_LOST, lines)


def _list(head: str, items: Sequence[str]) -> Iterator[str]:
    if items:
        yield from ("", head, "", *(f"* {item}" for item in items))


def _faults(report: Report) -> Iterator[str]:
    by_kind: defaultdict[str, list[Fault]] = defaultdict(list)
    stands: defaultdict[str, list[Stand]] = defaultdict(list)
    for part in report.parts:
        for fault in part.faults:
            by_kind[fault.drawn.kind].append(fault)
        for stand in part.stands:
            stands[stand.fault.removeprefix("after ")].append(stand)
    yield "### Faults on three nodes"
    yield ""
    yield f"| {' | '.join(OF_FAULTS)} |"
    yield "|---|---:|---:|---:|---:|---:|"
    for kind in KINDS:
        some = by_kind[kind]
        ours, theirs = _longest([fault.flows for fault in some]), _longest([fault.control_flows for fault in some])
        stood = max((stand.seconds for stand in stands[kind]), default=0.0)
        alone = max((stand.alone_s for stand in stands[kind]), default=0.0)
        yield f"| {kind} | {len(some)} | {ours} | {theirs} | {stood:.0f} s | {alone:.0f} s |"


def _longest(values: Sequence[float | None]) -> str:
    if not values:
        return "–"
    known = [value for value in values if value is not None]
    return "never" if len(known) < len(values) else f"{max(known):.1f} s"


def _broken(report: Report) -> Iterator[str]:
    yield "### Laws that broke on three nodes"
    yield ""
    yield from [f"* {violation}" for violation in report.broken] or ["Every law holds."]


def as_json(report: Report) -> dict[str, Any]:
    """The numbers, for a machine."""
    return {
        "router": report.router,
        "seed": report.seed,
        "minutes": report.minutes,
        "rate": report.rate,
        "violations": report.broken,
        "parts": [_part(part) for part in report.parts],
    }


def _part(part: PartReport) -> dict[str, Any]:
    return {
        "rabbitmq": part.version,
        "strategy": part.part.strategy,
        "obeyed": part.obeys,
        "net_ticktime": part.tick_s,
        "seconds": round(part.seconds, 1),
        "drained_s": round(part.drained_s, 1),
        "faults": [str(fault) for fault in part.faults],
        "ways": [vars(row) for row in part.rows],
        "arguments": part.arguments,
        "standstills": [vars(stand) for stand in part.stands],
        "ready_in_vain_s": part.in_vain,
        "ready_in_vain": part.in_vain_spans,
        "duplicates": part.duplicates,
        "in_doubt": part.in_doubt,
        "refused": part.refused,
        "places": part.places,
        "logged": part.logged,
        "evidence": part.evidence,
        "partitions": [str(partition) for partition in part.partitions],
        "came_anew": part.came_anew,
    }
