"""A soak in pieces: each run adds one to docs/capacity-soak.jsonl, and the section tells all of them together.

The file lies beside the page, so that pieces of several days and clones make one soak.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tools.chaos.soak.run import Soak, run
from tools.scale.bench import Bench, Row

PIECES: Final = Path(__file__).resolve().parents[2] / "docs/capacity-soak.jsonl"
FAST: Final = "600"  # letters a second that the load publishes; each is one to five decisions


def measure(bench: Bench) -> Iterator[Row]:
    """`size`: minutes of this piece. Flat by the rule of `make soak`, in each piece by itself."""
    pieces = Path(bench.options.get("pieces", str(PIECES)))
    rate = float(bench.options.get("rate", FAST))
    soak = run(Soak(bench.version, float(bench.size), rate), bench.folder)
    _keep(pieces, soak)
    yield from rows([json.loads(line) for line in pieces.read_text(encoding="utf-8").splitlines()])


def rows(records: Sequence[Mapping[str, Any]]) -> Iterator[Row]:
    """All pieces together, then each by itself."""
    yield Row("pieces, minutes together", f"{len(records)}, {sum(record['minutes'] for record in records):g}")
    yield Row("letters published", f"{_sum(records, 'letters'):,}")
    lost = _sum(records, "lost")
    yield Row("letters lost", f"{lost}", lost == 0)
    yield Row("connections broken, policies read again", f"{_sum(records, 'reconnects')}, {_sum(records, 'reloads')}")
    for number, record in enumerate(records, 1):
        load = f"{record['minutes']:g} minutes at {record['rate']:g}/s"
        thirds = " → ".join(f"{value:.1f}" for value in record["rss_mb"])
        broken = "; ".join(record["broken"])
        what = f"piece {number}, {record['date']}, RabbitMQ {record['version']}, {load}: memory by thirds"
        yield Row(what, f"{thirds} MB, {broken or 'flat'}", not broken)


def _keep(pieces: Path, soak: Soak) -> None:
    assert soak.report is not None
    memory = next(trend for trend in soak.trends if trend.measure == "rss_mb")
    piece = {
        "date": soak.date, "version": soak.report.version, "minutes": soak.minutes, "rate": soak.rate,
        "letters": soak.report.verdict.letters, "lost": soak.report.verdict.lost,
        "reconnects": soak.reconnects, "reloads": soak.reloads,
        "rss_mb": memory.thirds, "broken": soak.broken,
    }  # fmt: skip
    pieces.parent.mkdir(parents=True, exist_ok=True)
    with pieces.open("a", encoding="utf-8") as file:
        file.write(json.dumps(piece) + "\n")


def _sum(records: Sequence[Mapping[str, Any]], name: str) -> int:
    return sum(int(record[name]) for record in records)
