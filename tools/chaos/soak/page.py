"""What a soak says to people: docs/soak.md."""

import platform
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tools.chaos.soak.run import Soak

QUIET: Final = 0.5
INTRO: Final = """# Soak

Written by `make soak` (tools/chaos/soak/run.py); do not edit. A steady load of letters that are dead at once, copied
into two queues, retried once, retried in vain or parked, far below what the router can do. Every minute the policies
change and are read again, and the broker closes the router's connections. Meanwhile the router's process is looked at
every 2 seconds. Then everything drains, and every letter is accounted for.

**Flat** means: the median of the last third is at most 5 % over that of the middle third (of descriptors and tasks,
which are few, also up to 3 more). The first third is warming up.
"""
_TITLES: Final = {
    "rss_mb": "resident memory, MB",
    "descriptors": "open descriptors",
    "tasks": "tasks of the event loop",
}


def markdown(soak: "Soak") -> str:
    """The whole page."""
    return "\n".join([INTRO, *_uses(soak), "", *_run(soak), "", *_laws(soak), ""])


def _uses(soak: "Soak") -> Iterator[str]:
    yield from ("## What the router used", "")
    yield from ("| | first third | middle third | last third | peak | |", "|---|---:|---:|---:|---:|---|")
    for trend in soak.trends:
        thirds = " | ".join(f"{value:.1f}" for value in trend.thirds)
        yield f"| {_TITLES[trend.measure]} | {thirds} | {trend.peak:.1f} | {'flat' if trend.flat else '**grew**'} |"


def _run(soak: "Soak") -> Iterator[str]:
    assert soak.report is not None
    verdict = soak.report.verdict
    yield from ("## The run", "", "| | |", "|---|---|")
    yield f"| date | {soak.date} |"
    yield f"| dlx-router | {soak.report.router}, Python {platform.python_version()} |"
    yield f"| RabbitMQ | {soak.report.version} |"
    yield f"| minutes, letters a second | {soak.minutes:g}, {soak.rate:g} |"
    yield f"| looks at the process | {soak.looks} |"
    yield f"| connections that the broker closed | {soak.reconnects} |"
    yield f"| policies read again | {soak.reloads} |"
    yield f"| letters (publish confirmed) | {verdict.letters:,}, and {soak.parked:,} that belong into parking |"
    yield f"| **lost** | **{verdict.lost}** |"
    yield f"| copies beyond the first | {verdict.duplicates}; at most {soak.report.allowed} were in flight |"
    busy = f"{soak.load_before:g}" + (", so not at rest" if soak.load_before > QUIET else "")
    yield f"| load of the machine before | {busy} |"


def _laws(soak: "Soak") -> Iterator[str]:
    yield from ("## Laws that broke", "")
    yield from [f"* {violation}" for violation in soak.broken] or ["Every law holds."]
