"""What happens at the sizes that docs/capacity.md names: `make scale ROW=waiting`. Each row writes its section there.

    python -m tools.scale.run waiting                       # its full size, on a quiet machine
    python -m tools.scale.run waiting --size 20000          # smaller: printed, and no page is written
    python -m tools.scale.run soak --size 60                # one more piece of it, 60 minutes

Exit: 0 all within their limits · 1 not all · 2 it could not be measured.
"""

import argparse
import logging
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from tools.bench.wire import BenchError
from tools.brokers import RELEASES, BrokerError
from tools.brokers.programs import provide
from tools.chaos.page_sections import with_section
from tools.chaos.testbed import SceneError
from tools.scale import index_full, journal_full, policies, redrive, soak_pieces, vhosts, waiting
from tools.scale.bench import Bench, Row

PAGE: Final = Path(__file__).resolve().parents[2] / "docs/capacity.md"


class Measurement(NamedTuple):
    """`title` has {} for its size; `unit` says what the size is of, `minutes` how long it takes on two cores."""

    measure: Callable[[Bench], Iterator[Row]]
    title: str
    size: int
    unit: str
    minutes: int


ROWS: Final[Mapping[str, Measurement]] = {
    "waiting": Measurement(waiting.measure, "{} letters waiting in rungs", 1_000_000, "letters", 2),
    "policies": Measurement(policies.measure, "{} failed queues with a policy each", 1000, "queues", 1),
    "vhosts": Measurement(vhosts.measure, "{} vhosts in one process", 50, "vhosts", 1),
    "redrive": Measurement(redrive.measure, "an eighth of {} dead letters redriven", 2_000_000, "letters", 10),
    "index": Measurement(index_full.measure, "the index at {} bytes", 4 << 30, "bytes", 7),
    "journal": Measurement(journal_full.measure, "a journal that keeps {} bytes", 5_000_000_000, "bytes", 34),
    "soak": Measurement(soak_pieces.measure, "a soak in pieces, the last of {} minutes", 60, "minutes", 63),
}  # fmt: skip


def section(name: str, rows: Sequence[Row], size: int, *, version: str, took_s: float) -> str:
    """What the page says of a row."""
    measurement = ROWS[name]
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}"
    lines = [f"### {measurement.title.format(f'{size:,}').capitalize()}", ""]
    when = f"{datetime.now(UTC).date()}, {took_s / 60:.0f} minutes"
    lines += [f"RabbitMQ {version}, {machine}, {when}: `make scale ROW={name}`", ""]
    lines += ["| | |", "|---|---:|"]
    lines += [f"| {row.what} | {row.found}{'' if row.ok else ' **(not within its limit)**'} |" for row in rows]
    return "\n".join(lines)


def measured(name: str, bench: Bench) -> list[Row]:
    """Its lines, each said as soon as it is known."""
    rows = []
    for row in ROWS[name].measure(bench):
        print(f"{row.what:60} {row.found}{'' if row.ok else '  NOT WITHIN ITS LIMIT'}", flush=True)
        rows.append(row)
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    """See the module."""
    given = _arguments().parse_args(argv)
    logging.getLogger("pika").setLevel(logging.CRITICAL)
    name, measurement = given.row, ROWS[given.row]
    size = measurement.size if given.size is None else given.size
    options = dict(word.split("=", 1) for word in given.options)
    began = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="dlx-router-scale-") as folder:
            rows = measured(name, Bench(size, given.version, Path(folder), options))
    except (BenchError, BrokerError, SceneError) as error:
        print(error, file=sys.stderr)
        return 2
    text = section(name, rows, size, version=provide(given.version).version, took_s=time.monotonic() - began)
    page = given.page or (PAGE if size == measurement.size or name == "soak" else None)
    if page is not None:
        before = page.read_text(encoding="utf-8") if page.exists() else ""
        page.write_text(with_section(before, f"scale {name}", text), encoding="utf-8")
    return int(not all(row.ok for row in rows))


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = ", ".join(
        f"{name} ({measurement.size:,} {measurement.unit}, {measurement.minutes} minutes)"
        for name, measurement in ROWS.items()
    )
    parser.add_argument("row", choices=list(ROWS), metavar="ROW", help=known)
    parser.add_argument("--size", type=int, help="another than its full one: then only --page writes anything")
    parser.add_argument("--version", choices=list(RELEASES), default="4.3", help="of RabbitMQ (4.3)")
    parser.add_argument("--page", type=Path, help="whose section is written (docs/capacity.md)")
    settings = "seconds= of waiting, minutes= of journal, rate= and pieces= (a file) of soak"
    parser.add_argument("--set", dest="options", action="append", default=[], metavar="KEY=VALUE", help=settings)
    return parser


if __name__ == "__main__":
    sys.exit(main())
