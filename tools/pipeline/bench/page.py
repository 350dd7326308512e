"""From the medians of tools/pipeline/bench/run.py to a page: goals, each length, and where Spark begins to win."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

_HEAD: Final = """\
# The pipeline in numbers

Written by `make bench-pipeline` (`{command}`); medians of {rounds} rounds, and the
least and the most of them. Events are those of the made-up week of
`make demo-pipeline`, {size}. Numbers of one machine say little about another: run it on yours, with
nothing else at work.

| machine | |
|---|---|
| processor | {cpu}, {cores} cores; the broker, Spark and the load share them |
| memory | {memory} |
| system | {system}, Python {python} |
| load when it began | {load_before} (idle is 0{busy}) |
"""
_SIZE: Final = "about 1 KB each, 100 to a message"
_IDLE: Final = 0.5
MANY: Final = 100
GROUPS_AIM: Final = 5_000_000  # events; fewer say nothing about it


def page(results: dict[str, Any]) -> str:
    """Markdown."""
    summary, machine = results["summary"], results["machine"]
    busy = "" if machine["load_before"] < _IDLE else "; **something else was at work: these are no figures to compare**"
    head = _HEAD.format(**results, **machine, size=_SIZE, busy=busy)
    sizes = sorted(int(size) for size in summary if size.isdigit())
    parts = [
        head,
        _goals(results, str(sizes[-1])),
        *(_length(size, summary[str(size)]) for size in sizes),
        _where(summary, sizes[-1]),
    ]
    return "\n".join(parts)


class Measured(NamedTuple):
    """A number over all rounds."""

    median: float
    least: float
    most: float

    def text(self, unit: str) -> str:
        """The median; where there were several rounds, the ends too."""
        ends = "" if self.least == self.most else f" ({_number(self.least)} … {_number(self.most)})"
        return f"{_number(self.median)}{unit}{ends}"


class Aim(NamedTuple):
    """A number of the project, how it is shown, and what it should be."""

    what: str
    limit: float
    sign: str
    unit: str
    value: Measured

    def row(self) -> str:
        """A line of the table."""
        met = self.value.median >= self.limit if self.sign == "≥" else self.value.median <= self.limit
        limit = f"{self.sign} {self.limit:,.0f}{self.unit}"
        return f"| {self.what} | {limit} | {self.value.text(self.unit)} | {'yes' if met else 'no'} |"


def _number(value: float) -> str:
    return f"{value:,.{0 if value >= MANY else 1}f}"


def _goals(results: dict[str, Any], size: str) -> str:
    """The aims beside what was measured, with two cores and the longest journal."""
    full = _longest_in_full(results["summary"])

    def of(where: str, part: str, name: str) -> Measured:
        return Measured(results["summary"][where][part][name], *results["spread"][where][part][name])

    def rate(where: str, part: str) -> Measured:
        return of(where, part, _rate_of(results["summary"][where][part]))

    fresh = results["summary"]["by_itself"]["freshness"]
    long = f"{int(size):,} events"
    aims = (
        Aim("ingest by one process, events a second", 90_000, "≥", "", rate(size, "ingest_0")),
        Aim("ingest by Spark, events a second", 90_000, "≥", "", rate(full, "ingest_2")),
        Aim("freshness p99 at 1,000 events/s, 30 s after the start", fresh["trigger_s"] + 1, "≤", " s",
            of("by_itself", "freshness", "p99_s")),
        Aim("from the start after a kill to the first segment", 10, "≤", " s",
            of("by_itself", "restart", "first_segment_s")),
        *(
            Aim(f"{what} of {long}, {how}", limit, "≤", " s", of(size, part, name))
            for what, how, limit, part, name in _OF_MANY if int(size) >= GROUPS_AIM
        ),
        Aim("backtest, letters a second and core", 40_000, "≥", "", of(full, "backtest_2", "per_s_a_core")),
        Aim("redrive, confirmed a second", 10_000, "≥", "", of(size, "redrive_2", "per_s")),
        Aim(f"memory (RSS) of ingest by one process, {long}", 2048, "≤", " MB", of(size, "ingest_0", "rss_mb")),
        Aim(f"the same of a report, {long}", 2048, "≤", " MB", of(size, "report", "rss_mb")),
        Aim("the same of ingest by Spark, Java and workers together", 2048, "≤", " MB", of(full, "ingest_2", "rss_mb")),
    )  # fmt: skip
    rows = (aim.row() for aim in aims)
    return "\n".join(["## Aims", "", "| | aim | measured | reached |", "|---|---:|---:|---|", *rows, ""])


_OF_MANY: Final = (  # what, how, aim in seconds, part, name
    ("failure groups", "not compacted, aggregates made first", 8, "fresh_2", "aggregates_first_s"),
    ("failure groups", "compacted, aggregates made first", 5, "groups_2", "aggregates_first_s"),
    ("failure groups", "from aggregates that are there", 5, "groups_2", "aggregates_s"),
    ("report", "not compacted, the start of the command too", 5, "report_fresh", "seconds"),
    ("report", "compacted, the start of the command too", 5, "report", "seconds"),
)


def _rate_of(figures: dict[str, float]) -> str:
    """Events a second once it runs; of the whole run where that was one segment."""
    return "events_per_s" if "events_per_s" in figures else "events_per_s_whole_run"


def _rate(figures: dict[str, float]) -> float:
    return figures[_rate_of(figures)]


def _length(events: int, figures: dict[str, Any]) -> str:
    head = ("| | Spark, 1 core | Spark, 2 cores | beside it |", "|---|---:|---:|---|")
    return "\n".join([f"## {events:,} events", "", *head, *_rows(figures), ""])


def _longest_in_full(summary: dict[str, Any]) -> str:
    """Of the lengths that were measured with one core too; of very long ones only what grows with them is."""
    return max((size for size in summary if size.isdigit() and "ingest_1" in summary[size]), key=int)


def _rows(figures: dict[str, Any]) -> Iterator[str]:
    plain: dict[str, float] = figures["plain"]
    none: dict[str, float] = {}
    beside = (
        f"pika + pyarrow: {plain['events_per_s']:,.0f} events/s ({plain['seconds']:.1f} s for {plain['events']:,.0f})"
    )
    alone, single, dual = figures["ingest_0"], figures.get("ingest_1", none), figures.get("ingest_2", none)
    yield f"| ingest, whole run | {_run(single)} | {_run(dual)} | one process of ours: {_run(alone)}; {beside} |"
    if "events_per_s" in alone:
        yield f"| ingest, once it runs | {_rated(single)} | {_rated(dual)} | one process of ours: {_rated(alone)} |"
    shared = f"one process of ours: {alone['rss_mb']:,.0f} MB"
    shared += f"; of Spark, shared pages once (PSS): {dual['pss_mb']:,.0f} MB" if dual else ""
    yield f"| ingest, memory (RSS) | {_memory(single)} | {_memory(dual)} | {shared} |"
    yield f"| compact | | {figures['compact_2']['seconds']:.1f} s | |"
    for name, part in (("failure groups before that", "fresh"), ("failure groups after it", "groups")):
        low, high = figures.get(f"{part}_1", none), figures[f"{part}_2"]
        peer = f"DuckDB: {high['duckdb_s']:.2f} s" + (f", 1 core {low['duckdb_s']:.2f} s" if low else "")
        peer += f"; aggregates: {high['aggregates_s']:.2f} s (made first: {high['aggregates_first_s']:.2f} s)"
        yield f"| {name} | {_seconds(low)} | {_seconds(high)} | {peer} |"
    fresh, later = figures["report_fresh"], figures["report"]
    durations = f"without Spark: {fresh['seconds']:.1f} s, {later['seconds']:.1f} s compacted"
    yield f"| report, its start too | | | {durations} ({_memory(fresh)}, {_memory(later)}) |"
    if "backtest_2" in figures:
        low, high = figures["backtest_1"], figures["backtest_2"]
        yield f"| backtest, judging | {_judged(low)} | {_judged(high)} | |"
        yield f"| backtest, whole answer | {low['whole_s']:.1f} s | {high['whole_s']:.1f} s | |"
    sent = figures["redrive_2"]
    yield f"| redrive of {sent['letters']:,.0f} letters | | {sent['per_s']:,.0f} confirmed/s | |"


def _shown(figures: dict[str, float], name: str, form: str, unit: str) -> str:
    """Nothing where it was not measured."""
    return f"{figures[name]:{form}}{unit}" if name in figures else ""


def _memory(figures: dict[str, float]) -> str:
    return _shown(figures, "rss_mb", ",.0f", " MB")


def _rated(figures: dict[str, float]) -> str:
    return _shown(figures, "events_per_s", ",.0f", "/s")


def _seconds(figures: dict[str, float]) -> str:
    return f"{figures['seconds']:.2f} s (first time {figures['first_s']:.2f} s)" if figures else ""


def _run(figures: dict[str, float]) -> str:
    return f"{figures['seconds']:.1f} s, {figures['events_per_s_whole_run']:,.0f}/s" if figures else ""


def _judged(figures: dict[str, float]) -> str:
    return f"{figures['per_s_a_core']:,.0f} letters/s a core"


def _where(summary: dict[str, Any], longest: int) -> str:
    """What one machine can say about where Spark begins to win."""
    size = _longest_in_full(summary)
    last = summary[size]
    plain, single, dual = last["plain"]["events_per_s"], *(last[f"ingest_{cores}"] for cores in (1, 2))
    duckdb, spark = (summary[str(longest)]["groups_2"][name] for name in ("duckdb_s", "seconds"))
    rates = [_rate(single), _rate(dual)]
    start = dual["seconds"] - int(size) / rates[1]
    text = (
        f"- Ingest, {int(size):,} events: pika + pyarrow is one process, {plain:,.0f} events/s, "
        "whatever cores there are. Spark starts "
        f"for {max(start, 0):.0f} s, then does {rates[0]:,.0f} with one core and {rates[1]:,.0f} with two. "
        f"{_ahead(plain, rates, start)}\n"
        f"- Queries: DuckDB answers the failure groups of {longest:,} events in {duckdb:.2f} s where Spark "
        f"takes {spark:.2f} s. For what one "
        "machine holds and reads in time, use DuckDB on the archive; Spark is for the rest.\n"
        "- What the plain script has at no rate: it knows nothing of a crash, of a second run, of lines that are no "
        "events, nor of positions that prove that nothing is missing.\n"
    )
    return f"## Where Spark begins to win\n\n{text}"


def _ahead(plain: float, rates: list[float], start: float) -> str:
    single, dual = rates
    if dual > plain:
        events = max(start, 0) / (1 / plain - 1 / dual)
        return f"With two cores it is ahead from about {events:,.0f} events on (an estimate from these rates)."
    if dual <= single:
        return "Here the broker shares the cores, and a second one for Spark gains nothing: it is not ahead."
    cores = 1 + (plain - single) / (dual - single)
    return f"Here it is not ahead; if each core adds what the second did, {cores:,.1f} cores would be (an estimate)."
