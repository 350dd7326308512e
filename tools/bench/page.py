"""docs/performance.md out of build/bench.json: every number of the page is in the file, none is written by hand.

    python -m tools.bench.page [build/bench.json [docs/performance.md]]

`make bench` runs it. What a file does not hold (contestants that were left out, shapes) has no section.
Exit: 0 written · 2 the file is not there or not of `make bench`.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from tools.bench.contestants import AGAIN, LOCAL, NAMES, PAIR, RELAY, REQUIRED, ROUTER, SHOVEL, SILENT
from tools.bench.report import SMALL, is_mixed

ROOT: Final = Path(__file__).parents[2]
FULL_MESSAGES, FULL_ROUNDS, QUIET = 100_000, 8, 0.5
Document = dict[str, Any]
_GOALS: Final = (  # what is named in the summary, how it is said, the goal, whether more is better
    ("ratio_to_amqp_shovel", "speed beside RabbitMQ's AMQP shovel, 1 KiB", 1.2, True),
    ("ratio_of_required_to_amqp_shovel", "the same, with `DLX_ROUTER_JOURNAL=required`", None, True),
    ("mixed_ratio_to_amqp_shovel", "the same, letters of 20 queues and 5 policies", 1.2, True),
    ("large_ratio_to_amqp_shovel", "the same, 64 KiB and 512 KiB", 1.0, True),
    ("ratio_to_aio_pika", "speed beside a relay on aio-pika", 5.0, True),
    ("ratio_to_local_shovel", "speed beside the shovel inside the broker (4.3 only)", None, True),
    ("ratio_to_no_journal", "speed beside itself without the journal", None, True),
    ("ratio_of_two_to_one", "two processes on one inbox beside one", 1.0, True),
    ("cpu_us_per_message", "CPU of the router for a letter, µs", 20.0, False),
    ("mixed_cpu_us_per_message", "the same, letters of 20 queues and 5 policies, µs", None, False),
    ("rss_mb", "peak memory of the router, MB", 100.0, False),
    ("large_rss_mb", "the same with large bodies, MB", None, False),
)
_TITLES: Final = {
    ROUTER: "**dlx-router**, default settings",
    SHOVEL: "AMQP shovel, on-confirm, prefetch 1000",
    AGAIN: "the same shovel once more: noise of the machine",
    RELAY: "concurrent relay on aio-pika",
    LOCAL: "`local` shovel, inside the broker",
    SILENT: "dlx-router, `DLX_ROUTER_JOURNAL=off`",
    REQUIRED: "dlx-router, `DLX_ROUTER_JOURNAL=required`",
    PAIR: "two dlx-routers on one source",
}
_RATIOS: Final = {
    SHOVEL: "ratio_to_amqp_shovel", LOCAL: "ratio_to_local_shovel", RELAY: "ratio_to_aio_pika",
    SILENT: "ratio_to_no_journal",
}  # fmt: skip
_INTRO: Final = """# Performance

Written by `make bench` (tools/bench/page.py, from `build/bench.json`); do not edit. A queue full of dead letters
is moved to an exchange with confirms, by each contestant in turn, in an order drawn anew each round, on one private
broker of the same machine. A letter is 1 KiB, persistent, with an `x-death` of one entry, trace context and three
headers. Every letter that comes out is counted, random ones of each run are compared in full, and a run with a letter
missing has no speed. How to measure it on your machines: [capacity](capacity.md).
"""
_COUNTED: Final = "On 4.x a letter has `x-delivery-count` and `x-acquired-count` too, as one that a consumer refused.\n"
_LATENCY_GOALS: Final = (6.0, 15.0)  # p50, p99, ms
_LATENCY: Final = """\
From a client's reject until it has the letter from the dead-letter queue, all queues quorum, in turns of ten
seconds (`make latency`). Of what the router adds, a shovel has as much as the second hop takes whoever makes it:
the letter is written into one queue more and flushed to the disk, delivered, published, written and flushed again.
What is beyond the shovel is the router's own. At this rate no timer of the router holds a copy back: it leaves in
the turn in which its letter was read, unless 8 KiB went out within the 2 ms before; its event of the journal goes
beside it, and the letter's ack, not its copy, waits for it.
"""
_READ: Final = """## How to read it

* Speed is taken between the first look over 5 % and the first over 95 %, so starting is not in it. Numbers are medians
  over rounds but the first; a ratio is the median of the ratios within each round, its spread beside it.
* The shovel is measured twice in each round: how far it is from itself is what this machine cannot tell apart.
* CPU of a contestant is user and system time of its processes. Both shovels run inside the broker: their work is in
  the broker's.
* Each run begins without a journal; a router that starts beside a long one reads it once, for open tasks.
* In quorum cells all read `dlx-router.inbox`; in classic cells a classic queue. Target and source are of one type.
* The router does more for a letter than the others: it decides by policy, writes a record, an `x-death` and an event of
  the journal, and checks returns. The relay on aio-pika writes an `x-death`; the shovels copy.
* Numbers of one machine say little about another; a broker on machines of its own leaves the router a core.
"""


def page(report: Document) -> str:
    """The whole page."""
    return "\n".join(
        [
            _INTRO,
            *_counted(report),
            *_warning(report),
            *_summary(report),
            *_sections(report),
            *_limit(report),
            _READ,
            *_run(report),
            "",
        ]
    )


def _sections(report: Document) -> Iterator[str]:
    small = [cell for cell in report["cells"] if cell["bytes"] == SMALL and not is_mixed(cell)]
    mixed = [cell for cell in report["cells"] if is_mixed(cell)]
    large = [cell for cell in report["cells"] if cell["bytes"] != SMALL]
    if small:
        yield from ("## Letters of 1 KiB", "")
        for cell in small:
            yield from (f"### RabbitMQ {cell['version']}, {cell['type']} queues", "", *_cell(cell), "")
    for cell in mixed:
        title = f"### {cell['queues']} queues and 5 policies: RabbitMQ {cell['version']}, {cell['type']} queues"
        yield from (title, "", *_cell(cell), "")
    if large:
        yield from ("## Large bodies", "", *_large(large), "")
    if pairs := [cell for cell in small if PAIR in cell and ROUTER in cell]:
        yield from ("## Two processes on one inbox", "", *_pairs(pairs), "")
    if report.get("latency"):
        yield from ("## Latency", "", _LATENCY, *_latency(report["latency"]), "")
    if report.get("shapes"):
        yield from ("## Backlogs and sizes", "", *_shapes(report["shapes"]), "")


def _counted(report: Document) -> Iterator[str]:
    if any(note.startswith("4.x:") for note in report.get("notes", ())):
        yield _COUNTED


def _warning(report: Document) -> Iterator[str]:
    """A reader must not take a short or disturbed run for a measurement."""
    options, load = report["options"], report["machine"]["load_before"]
    if options["messages"] < FULL_MESSAGES or options["rounds"] < FULL_ROUNDS:
        yield f"**A short run**: {options['messages']:,} letters, {options['rounds']} rounds. It shows that this works,"
        yield f"not how fast the router is; a full one has {FULL_MESSAGES:,} letters and {FULL_ROUNDS} rounds."
        yield ""
    if load > QUIET:
        yield f"**The machine was not at rest** when it began (load {load:g}): speeds are too low, ratios less sure."
        yield ""
    if report["failed_runs"]:
        yield f"**{report['failed_runs']} runs failed** and have no numbers here; `build/bench.json` says why."
        yield ""


def _summary(report: Document) -> Iterator[str]:
    yield from ("## In short", "", "The worst cell of broker version and queue type.", "")
    yield from ("| | worst cell | goal | |", "|---|---:|---:|---|")
    for name, label, goal, more in _GOALS:
        if (value := report["summary"].get(name)) is not None:
            yield f"| {label} | {value:g} | {_goal(goal, more=more)} | {_reached(value, goal, more=more)} |"
    yield ""


def _goal(goal: float | None, *, more: bool) -> str:
    return "–" if goal is None else f"{'≥' if more else '≤'} {goal:g}"


def _reached(value: float, goal: float | None, *, more: bool) -> str:
    if goal is None:
        return ""
    return "reached" if (value >= goal if more else value <= goal) else "**not reached**"


def _cell(cell: Document) -> Iterator[str]:
    yield "| | letters/s | CPU of it, µs a letter | CPU of the broker, µs a letter | peak MB | the router is |"
    yield "|---|---:|---:|---:|---:|---:|"
    for name in NAMES:
        if name in cell:
            figures = cell[name]
            cpu, rss = (f"{figures[key]:.0f}" if key in figures else "–" for key in ("cpu_us_per_message", "rss_mb"))
            broker, rate = f"{figures['broker_cpu_us_per_message']:.0f}", f"{figures['messages_per_s']:,.0f}"
            yield f"| {_TITLES[name]} | {rate} | {cpu} | {broker} | {rss} | {_times(cell, name)} |"


def _times(cell: Document, name: str) -> str:
    if name == AGAIN and "ratio_of_shovel_to_itself" in cell:
        return f"{_with_range(cell, 'ratio_of_shovel_to_itself')} of itself"
    if name == REQUIRED and "ratio_of_required_to_amqp_shovel" in cell:
        return f"{_with_range(cell, 'ratio_of_required_to_amqp_shovel')} of the shovel"
    ratio = _RATIOS.get(name, "")
    return _with_range(cell, ratio) if ratio in cell else ""


def _with_range(cell: Document, ratio: str) -> str:
    low, high = cell[f"{ratio}_range"]
    return f"{cell[ratio]:.2f} × ({low:.2f} … {high:.2f})"


def _latency(versions: Document) -> Iterator[str]:
    yield "| RabbitMQ | letters/s | native, p50 and p99 ms | shovel adds | the router adds | goal |  |"
    yield "|---|---:|---:|---:|---:|---:|---|"
    for version, measured in sorted(versions.items()):
        (native, native_late), shovel, router = (measured["p50_p99_ms"][way] for way in ("native", "shovel", "routed"))
        by_shovel, by_router = ((pair[0] - native, pair[1] - native_late) for pair in (shovel, router))
        is_reached = all(added <= goal for added, goal in zip(by_router, _LATENCY_GOALS, strict=True))
        yield (
            f"| {version} | {measured['rate']:,} | {native:.1f}, {native_late:.1f} | {_both(by_shovel)} "
            f"| {_both(by_router)} | ≤ {_LATENCY_GOALS[0]:g}, ≤ {_LATENCY_GOALS[1]:g} "
            f"| {'reached' if is_reached else '**not reached**'} |"
        )


def _both(added: tuple[float, float]) -> str:
    return ", ".join(f"{'+' if ms >= 0 else '−'} {abs(ms):.1f}" for ms in added)


def _large(cells: list[Document]) -> Iterator[str]:
    yield "| RabbitMQ | queues | body | router, MB/s | AMQP shovel, MB/s | the router is | peak MB |"
    yield "|---|---|---:|---:|---:|---:|---:|"
    for cell in cells:
        ours, other = cell.get(ROUTER, {}), cell.get(SHOVEL, {})
        speeds = " | ".join(f"{figures['mb_per_s']:.0f}" if figures else "–" for figures in (ours, other))
        rss = f"{ours['rss_mb']:.0f}" if ours else "–"
        where = f"{cell['version']} | {cell['type']} | {_size(cell['bytes'])}"
        yield f"| {where} | {speeds} | {_times(cell, SHOVEL)} | {rss} |"


def _pairs(cells: list[Document]) -> Iterator[str]:
    yield "Default settings, and a key that both share. What both say that they settled is together what came out, in"
    yield "each run that has a number here: nothing is counted twice."
    yield ""
    yield "| RabbitMQ | queues | one, letters/s | two, letters/s | two beside one | share of the one that did less |"
    yield "|---|---|---:|---:|---:|---:|"
    for cell in cells:
        alone, both = cell[ROUTER]["messages_per_s"], cell[PAIR]["messages_per_s"]
        share = f"{cell[PAIR].get('smaller_share', 0):.0%}"
        ratio = _with_range(cell, "ratio_of_two_to_one") if "ratio_of_two_to_one" in cell else ""
        yield f"| {cell['version']} | {cell['type']} | {alone:,.0f} | {both:,.0f} | {ratio} | {share} |"


def _shapes(rows: list[Document]) -> Iterator[str]:
    yield "One run each, quorum queues. Short ones say little about speed: what they show is that both ends work."
    yield ""
    yield "| letters in the inbox | body | router, letters/s | MB/s | peak MB | AMQP shovel, letters/s |"
    yield "|---:|---:|---:|---:|---:|---:|"
    for row in rows:
        ours, other = row["results"].get(ROUTER, {}), row["results"].get(SHOVEL, {})
        shown = [_number(ours, name) for name in ("messages_per_s", "mb_per_s", "rss_mb")]
        shown.append(_number(other, "messages_per_s"))
        yield f"| {row['messages']:,} | {_size(row['bytes'])} | {' | '.join(shown)} |"


def _number(result: Document, name: str) -> str:
    if "error" in result:
        return "**failed**"
    return f"{result[name]:,.0f}" if name in result else "–"


def _size(count: int) -> str:
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit:
            return f"{count / unit:g} {name}"
    return f"{count} B"


def _limit(report: Document) -> Iterator[str]:
    """How much of the machine was at work: letters a second times microseconds."""
    cells = [cell for cell in report["cells"] if cell["bytes"] == SMALL and ROUTER in cell and not is_mixed(cell)]
    if not cells:
        return
    cores = report["machine"]["cores"]
    yield from ("## What limits", "", f"Cores at work while the router moved letters, of {cores}:", "")
    yield from ("| RabbitMQ | queues | router | broker | together |", "|---|---|---:|---:|---:|")
    for cell in cells:
        ours, broker = _cores(cell)
        yield f"| {cell['version']} | {cell['type']} | {ours:.2f} | {broker:.2f} | {ours + broker:.2f} |"
    most, own = max(sum(_cores(cell)) for cell in cells), max(_cores(cell)[0] for cell in cells)
    yield from ("", _verdict(most, own, cores), "")


def _cores(cell: Document) -> tuple[float, float]:
    rate = cell[ROUTER]["messages_per_s"] / 1e6
    return rate * cell[ROUTER]["cpu_us_per_message"], rate * cell[ROUTER]["broker_cpu_us_per_message"]


def _verdict(most: float, own: float, cores: int) -> str:
    """One process of the router has one core at most; broker, router and this benchmark share what there is."""
    if own > 0.9:  # noqa: PLR2004 - a core
        return "The router fills the one core that a process can have: it is what limits."
    if most > 0.85 * cores:
        return (
            "Router and broker share these cores and fill them: what makes a letter cheaper for either is more speed."
        )
    return "Neither a core nor the machine is full: the way to the disk and back limits, and how much is in flight."


def _run(report: Document) -> Iterator[str]:
    machine, options, brokers = report["machine"], report["options"], report["brokers"]
    packages = ", ".join(f"{name} {version}" for name, version in machine["packages"].items() if version)
    yield from ("## The run", "", "| | |", "|---|---|")
    yield f"| date | {report.get('date', 'unknown')} |"
    yield f"| machine | {machine['cores']} cores of {machine['cpu']}, {machine['memory']} memory, {machine['system']} |"
    yield f"| Python | {machine['python']}; {packages} |"
    yield f"| RabbitMQ | {', '.join(brokers.values())} |"
    rounds = f"{options['rounds']} of {options['messages']:,} letters (aio-pika: {options['aio_messages']:,})"
    yield f"| rounds | {rounds}; the first of several is dropped |"
    yield f"| shovel | {'over TCP, as between two brokers' if options['shovel'] == 'network' else 'without a socket'} |"
    yield f"| took | {report['seconds'] / 60:.0f} min; load before {machine['load_before']:g}; seed {report['seed']} |"


def main(argv: list[str]) -> int:
    """See the module."""
    source = Path(argv[0]) if argv else ROOT / "build" / "bench.json"
    target = Path(argv[1]) if argv[1:] else ROOT / "docs" / "performance.md"
    try:
        report = json.loads(source.read_text(encoding="utf-8"))
        latency = source.parent / "latency.json"
        if latency.exists():
            report["latency"] = json.loads(latency.read_text(encoding="utf-8"))
        text = page(report)
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"{source}: not what `make bench` writes: {error!r}; run `make bench` first", file=sys.stderr)
        return 2
    target.write_text(text, encoding="utf-8")
    print(f"written: {target}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
