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
from tools.scale import index_full, journal_full, policies, redrive, shards, soak_pieces, vhosts, waiting
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
    "waiting": Measurement(waiting.measure, "{} letters waiting in rungs", 1_000_000, "letters", 10),
    "policies": Measurement(policies.measure, "{} failed queues with a policy each", 1000, "queues", 10),
    "vhosts": Measurement(vhosts.measure, "{} vhosts in one process", 50, "vhosts", 4),
    "redrive": Measurement(redrive.measure, "an eighth of {} dead letters redriven", 2_000_000, "letters", 30),
    "index": Measurement(index_full.measure, "the index at {} bytes", 4 << 30, "bytes", 25),
    "journal": Measurement(journal_full.measure, "a journal that keeps {} bytes", 5_000_000_000, "bytes", 60),
    "soak": Measurement(soak_pieces.measure, "a soak in pieces, the last of {} minutes", 60, "minutes", 63),
    "shards": Measurement(shards.measure, "{} letters through 1, 2 and 4 inboxes", 200_000, "letters", 12),
}  # fmt: skip


def section(name: str, found: Sequence[Row], size: int, *, version: str, took_s: float) -> str:
    """What the page says of a row."""
    one = ROWS[name]
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}"
    lines = [f"### {one.title.format(f'{size:,}').capitalize()}", ""]
    when = f"{datetime.now(UTC).date()}, {took_s / 60:.0f} minutes"
    lines += [f"RabbitMQ {version}, {machine}, {when}: `make scale ROW={name}`", ""]
    lines += ["| | |", "|---|---:|"]
    lines += [f"| {row.what} | {row.found}{'' if row.ok else ' **(not within its limit)**'} |" for row in found]
    return "\n".join(lines)


def measured(name: str, bench: Bench) -> list[Row]:
    """Its lines, each said as soon as it is known."""
    found = []
    for row in ROWS[name].measure(bench):
        print(f"{row.what:60} {row.found}{'' if row.ok else '  NOT WITHIN ITS LIMIT'}", flush=True)
        found.append(row)
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """See the module."""
    given = _arguments().parse_args(argv)
    logging.getLogger("pika").setLevel(logging.CRITICAL)
    name, one = given.row, ROWS[given.row]
    size = one.size if given.size is None else given.size
    options = dict(word.split("=", 1) for word in given.options)
    began = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="dlx-router-scale-") as folder:
            found = measured(name, Bench(size, given.version, Path(folder), options))
    except (BenchError, BrokerError, SceneError) as error:
        print(error, file=sys.stderr)
        return 2
    text = section(name, found, size, version=provide(given.version).version, took_s=time.monotonic() - began)
    page = given.page or (PAGE if size == one.size or name == "soak" else None)
    if page is not None:
        before = page.read_text(encoding="utf-8") if page.exists() else ""
        page.write_text(with_section(before, f"scale {name}", text), encoding="utf-8")
    return int(not all(row.ok for row in found))


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    known = ", ".join(f"{name} ({one.size:,} {one.unit}, {one.minutes} minutes)" for name, one in ROWS.items())
    parser.add_argument("row", choices=list(ROWS), metavar="ROW", help=known)
    parser.add_argument("--size", type=int, help="another than its full one: then only --page writes anything")
    parser.add_argument("--version", choices=list(RELEASES), default="4.3", help="of RabbitMQ (4.3)")
    parser.add_argument("--page", type=Path, help="whose section is written (docs/capacity.md)")
    told = "seconds= of waiting, shards= of policies, minutes= of journal, rate= and pieces= (a file) of soak"
    parser.add_argument("--set", dest="options", action="append", default=[], metavar="KEY=VALUE", help=told)
    return parser


if __name__ == "__main__":
    sys.exit(main())
