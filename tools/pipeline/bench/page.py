"""From the medians of tools/pipeline/bench/run.py to a page: goals, each length, and where Spark begins to win."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

_HEAD: Final = """\
# The pipeline in numbers

Written by `make bench-pipeline` (`{command}`); medians of {rounds} rounds. Events are those of the made-up week of
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


def page(found: dict[str, Any]) -> str:
    """Markdown."""
    told, machine = found["summary"], found["machine"]
    busy = "" if machine["load_before"] < _IDLE else "; **something else was at work: these are no figures to compare**"
    head = _HEAD.format(**found, **machine, size=_SIZE, busy=busy)
    sizes = sorted(int(size) for size in told if size.isdigit())
    parts = [
        head,
        _goals(told, str(sizes[-1])),
        *(_length(size, told[str(size)]) for size in sizes),
        _where(told, sizes[-1]),
    ]
    return "\n".join(parts)


class Aim(NamedTuple):
    """A number of the project, how it is shown, and what it should be."""

    what: str
    limit: float
    sign: str
    unit: str
    value: float

    def row(self) -> str:
        """A line of the table."""
        met = self.value >= self.limit if self.sign == "≥" else self.value <= self.limit
        digits = 0 if self.value >= MANY else 1
        return (
            f"| {self.what} | {self.sign} {self.limit:,.0f}{self.unit} | {self.value:,.{digits}f}{self.unit} "
            f"| {'yes' if met else 'no'} |"
        )


def _goals(told: dict[str, Any], size: str) -> str:
    """The aims beside what was measured, with two cores and the longest journal."""
    last, alone = told[size], told["by_itself"]
    fresh = alone["freshness"]
    judged = told[_longest_in_full(told)]["backtest_2"]
    groups = f"failure groups over {int(size):,} events"
    aims = (
        Aim("ingest by one process, events a second", 90_000, "≥", "", _rate(last["ingest_0"])),
        Aim("ingest by Spark, events a second", 90_000, "≥", "", _rate(last["ingest_2"])),
        Aim("freshness p99 at 1,000 events/s, 30 s after the start", fresh["trigger_s"] + 1, "≤", " s", fresh["p99_s"]),
        Aim("from the start after a kill to the first segment", 10, "≤", " s", alone["restart"]["first_segment_s"]),
        *(_group_aims(groups, last) if int(size) >= GROUPS_AIM else []),
        Aim("backtest, letters a second and core", 40_000, "≥", "", judged["per_s_a_core"]),
        Aim("redrive, confirmed a second", 10_000, "≥", "", last["redrive_2"]["per_s"]),
        Aim("resident memory of ingest by one process (RSS)", 2048, "≤", " MB", last["ingest_0"]["rss_mb"]),
        Aim(
            "resident memory of ingest by Spark, Java and workers together (RSS)",
            2048,
            "≤",
            " MB",
            last["ingest_2"]["rss_mb"],
        ),
    )
    rows = (aim.row() for aim in aims)
    return "\n".join(["## Aims", "", "| | aim | measured | reached |", "|---|---:|---:|---|", *rows, ""])


def _group_aims(what: str, told: dict[str, Any]) -> Iterator[Aim]:
    """By `pipeline groups`: aggregates made for the question, and those that were there."""
    yield Aim(f"{what}, not compacted, aggregates made first", 8, "≤", " s", told["fresh_2"]["aggregates_first_s"])
    yield Aim(f"{what}, compacted, aggregates made first", 5, "≤", " s", told["groups_2"]["aggregates_first_s"])
    yield Aim(f"{what}, from aggregates that are there", 5, "≤", " s", told["groups_2"]["aggregates_s"])


def _rate(told: dict[str, float]) -> float:
    """Events a second once it runs; of the whole run where that was one segment."""
    return told.get("events_per_s", told["events_per_s_whole_run"])


def _length(events: int, told: dict[str, Any]) -> str:
    head = ("| | Spark, 1 core | Spark, 2 cores | beside it |", "|---|---:|---:|---|")
    return "\n".join([f"## {events:,} events", "", *head, *_rows(told), ""])


def _longest_in_full(told: dict[str, Any]) -> str:
    """Of the lengths that were measured with one core too; of very long ones only what grows with them is."""
    return max((size for size in told if size.isdigit() and "ingest_1" in told[size]), key=int)


def _rows(told: dict[str, Any]) -> Iterator[str]:
    plain: dict[str, float] = told["plain"]
    none: dict[str, float] = {}
    beside = (
        f"pika + pyarrow: {plain['events_per_s']:,.0f} events/s ({plain['seconds']:.1f} s for {plain['events']:,.0f})"
    )
    alone, one, two = told["ingest_0"], told.get("ingest_1", none), told["ingest_2"]
    yield f"| ingest, whole run | {_run(one)} | {_run(two)} | one process of ours: {_run(alone)}; {beside} |"
    if "events_per_s" in two:
        yield f"| ingest, once it runs | {_rated(one)} | {_rated(two)} | one process of ours: {_rated(alone)} |"
    shared = (
        f"one process of ours: {alone['rss_mb']:,.0f} MB; of Spark, shared pages once (PSS): {two['pss_mb']:,.0f} MB"
    )
    yield f"| ingest, memory (RSS) | {_shown(one, 'rss_mb', ',.0f', ' MB')} | {two['rss_mb']:,.0f} MB | {shared} |"
    yield f"| compact | | {told['compact_2']['seconds']:.1f} s | |"
    for name, part in (("failure groups before that", "fresh"), ("failure groups after it", "groups")):
        low, high = told.get(f"{part}_1", none), told[f"{part}_2"]
        peer = f"DuckDB: {high['duckdb_s']:.2f} s" + (f", 1 core {low['duckdb_s']:.2f} s" if low else "")
        peer += f"; aggregates: {high['aggregates_s']:.2f} s (made first: {high['aggregates_first_s']:.2f} s)"
        yield f"| {name} | {_seconds(low)} | {_seconds(high)} | {peer} |"
    if "backtest_2" in told:
        low, high = told["backtest_1"], told["backtest_2"]
        yield f"| backtest, judging | {_judged(low)} | {_judged(high)} | |"
        yield f"| backtest, whole answer | {low['whole_s']:.1f} s | {high['whole_s']:.1f} s | |"
    sent = told["redrive_2"]
    yield f"| redrive of {sent['letters']:,.0f} letters | | {sent['per_s']:,.0f} confirmed/s | |"


def _shown(told: dict[str, float], name: str, form: str, unit: str) -> str:
    """Nothing where it was not measured."""
    return f"{told[name]:{form}}{unit}" if name in told else ""


def _rated(told: dict[str, float]) -> str:
    return _shown(told, "events_per_s", ",.0f", "/s")


def _seconds(told: dict[str, float]) -> str:
    return f"{told['seconds']:.2f} s (first time {told['first_s']:.2f} s)" if told else ""


def _run(told: dict[str, float]) -> str:
    return f"{told['seconds']:.1f} s, {told['events_per_s_whole_run']:,.0f}/s" if told else ""


def _judged(told: dict[str, float]) -> str:
    return f"{told['per_s_a_core']:,.0f} letters/s a core"


def _where(told: dict[str, Any], longest: int) -> str:
    """What one machine can say about where Spark begins to win."""
    size = _longest_in_full(told)
    last = told[size]
    plain, one, two = last["plain"]["events_per_s"], *(last[f"ingest_{cores}"] for cores in (1, 2))
    duckdb, spark = (told[str(longest)]["groups_2"][name] for name in ("duckdb_s", "seconds"))
    rates = [_rate(one), _rate(two)]
    start = two["seconds"] - int(size) / rates[1]
    said = (
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
    return f"## Where Spark begins to win\n\n{said}"


def _ahead(plain: float, rates: list[float], start: float) -> str:
    one, two = rates
    if two > plain:
        events = max(start, 0) / (1 / plain - 1 / two)
        return f"With two cores it is ahead from about {events:,.0f} events on (an estimate from these rates)."
    if two <= one:
        return "Here the broker shares the cores, and a second one for Spark gains nothing: it is not ahead."
    cores = 1 + (plain - one) / (two - one)
    return f"Here it is not ahead; if each core adds what the second did, {cores:,.1f} cores would be (an estimate)."
