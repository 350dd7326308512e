"""What a chaos run says: docs/reliability.md for people, and the same as JSON."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final

from tools.chaos.accounting import Verdict
from tools.chaos.faults import KINDS, TAKEOVER_S, Fault
from tools.chaos.schedule import FLOWS_S

INTRO: Final = """# Reliability

Written by `make chaos` (tools/chaos/run.py); do not edit. A client that shares no code with the router publishes
letters to quorum queues that hand over their dead at least once, fails some of them as a consumer would, and empties
the places where letters end. Meanwhile faults are drawn by a seeded chance, one after another. When they stop,
everything drains, and the books are closed: every letter whose publish was confirmed must have been found in each of
its places, or in parking with its cause; more copies than one only of what could be in flight at a fault; one id a
letter.
"""

CLUSTER: Final = """## Three nodes

The same load and the same books on a cluster of three nodes: every queue has a replica on each, two routers know all
three hosts. Again and again the node that leads the inbox is killed or stopped, and comes back once letters flow.
"""


@dataclass
class Report:
    """One run."""

    version: str
    router: str
    seed: int
    minutes: float
    replicas: tuple[int, ...]
    allowed: int = 0
    seconds: float = 0.0
    drained_s: float = 0.0
    faults: list[Fault] = field(default_factory=list)
    verdict: Verdict = field(default_factory=Verdict)
    violations: list[str] = field(default_factory=list)

    @property
    def broken(self) -> list[str]:
        """Every law that does not hold."""
        stuck = [
            f"no letter flowed within {FLOWS_S:g} s after: {fault}"
            for fault in self.faults
            if fault.recovered_s is None
        ]
        late = [
            f"a dead replica was not taken over in {TAKEOVER_S:g} s: {fault}" for fault in self.faults if _late(fault)
        ]
        return [*self.verdict.violations, *self.violations, *stuck, *late]

    @property
    def takeovers(self) -> list[float]:
        """Seconds until the others had the letters of a dead replica."""
        return [fault.takeover_s for fault in self.faults if fault.takeover_s is not None]


def _late(fault: Fault) -> bool:
    return fault.kind == "replica killed" and (fault.takeover_s is None or fault.takeover_s > TAKEOVER_S)


def markdown(report: Report, cluster: Report | None = None) -> str:
    """docs/reliability.md."""
    more = ["", CLUSTER, *_section(cluster, "###")] if cluster else []
    return "\n".join([INTRO, *_section(report, "##"), *more, ""])


def _section(report: Report, level: str) -> Iterator[str]:
    yield from (f"{level} The run", "", *_head(report), "", f"{level} Letters", "", *_letters(report), "")
    yield from (f"{level} Faults", "", *_faults(report.faults), "", f"{level} Laws that broke", "")
    yield from [f"* {violation}" for violation in report.broken] or ["Every law holds."]


def _head(report: Report) -> Iterator[str]:
    verdict, took = report.verdict, report.takeovers
    yield "| | |"
    yield "|---|---|"
    yield f"| dlx-router | {report.router} |"
    yield f"| RabbitMQ | {report.version} |"
    yield f"| seed | {report.seed} |"
    yield f"| minutes under faults | {report.seconds / 60:.1f} |"
    yield f"| replicas, one stage each | {', '.join(map(str, report.replicas))} |"
    yield f"| letters (publish confirmed) | {verdict.letters:,} |"
    yield f"| faults | {len(report.faults)} of {len({fault.kind for fault in report.faults})} kinds |"
    yield f"| **lost** | **{verdict.lost}** |"
    yield f"| duplicates (copies beyond the first) | {verdict.duplicates}; at most {report.allowed} were in flight |"
    yield f"| dead-lettered twice by the broker (an id each) | {verdict.broker_twins} |"
    yield f"| parked with a cause | {verdict.parked} |"
    yield f"| messages of hostile publishers, all of them found | {verdict.hostile} |"
    yield f"| publishes in doubt, not counted as letters | {verdict.in_doubt} |"
    yield f"| takeover after a replica's death | {_spread(took)} |"
    yield f"| drained after the last fault | {report.drained_s:.0f} s |"


def _letters(report: Report) -> Iterator[str]:
    yield "| way | place | letters | found there | copies |"
    yield "|---|---|---:|---:|---:|"
    for way, place, letters, arrived, copies in report.verdict.rows:
        yield f"| {way} | {place} | {letters:,} | {arrived:,} | {copies:,} |"


def _faults(faults: Sequence[Fault]) -> Iterator[str]:
    by_kind: defaultdict[str, list[Fault]] = defaultdict(list)
    for fault in faults:
        by_kind[fault.kind].append(fault)
    yield "| kind | times | lasted | letters flow again after |"
    yield "|---|---:|---|---|"
    for kind in [*(KINDS if faults and faults[0].kind in KINDS else by_kind)]:
        some = by_kind[kind]
        back = _spread([fault.recovered_s for fault in some if fault.recovered_s is not None])
        yield f"| {kind} | {len(some)} | {_spread([fault.lasted_s for fault in some])} | {back} |"
    yield ""
    yield "Every fault with its moment is in `build/chaos.log` of the machine that ran this."


def _spread(values: Sequence[float]) -> str:
    return f"median {median(values):.2f} s, most {max(values):.2f} s" if values else "–"


def as_json(report: Report) -> dict[str, Any]:
    """The numbers, for a machine."""
    verdict = report.verdict
    kinds = Counter(fault.kind for fault in report.faults)
    return {
        "router": report.router,
        "rabbitmq": report.version,
        "seed": report.seed,
        "minutes": round(report.seconds / 60, 2),
        "letters": verdict.letters,
        "faults": len(report.faults),
        "kinds": kinds,
        "lost": verdict.lost,
        "duplicates": verdict.duplicates,
        "allowed": report.allowed,
        "broker_twins": verdict.broker_twins,
        "parked": verdict.parked,
        "hostile": verdict.hostile,
        "takeovers_s": [round(seconds, 3) for seconds in report.takeovers],
        "violations": report.broken,
    }
