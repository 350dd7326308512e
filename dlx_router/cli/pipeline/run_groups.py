"""What `pipeline groups` does: no Spark and no Java, so it answers at once."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from dlx_router.cli import output
from dlx_router.cli.pipeline.moments import day, moment
from dlx_router.core.printable import printable
from dlx_router.spark.archive.aggregates import Aggregates
from dlx_router.spark.archive.layout import Archive
from dlx_router.spark.archive.missing import accepted

_COUNTS: Final = ("letters", "deaths", "recovered", "lost", "open")
_CHARS: Final = 80  # of an error


def groups(archive: Path, since: str | None, queue: str | None, *, hours: bool, as_json: bool) -> int:
    """Print them, each in a line whatever its error says."""
    Archive(archive).require_folder()
    begin = moment("--since", since)
    kept, first = Aggregates(archive), "" if begin is None else day(begin)
    rows = kept.hours(since=first) if hours else kept.groups(since=first)
    rows = [row for row in rows if queue in {None, row["failed_queue"]}]
    if as_json:
        output.as_json(rows)
    else:
        lines = [*map(_hour if hours else _group, rows)] or ["no letter died in this time: see --since"]
        output.say(*lines)
    for loss in accepted(Archive(archive), first):
        output.warn(f"not counted here: {loss}")
    return output.OK


def _group(row: dict[str, Any]) -> str:
    counts = ", ".join(f"{row[name]} {name}" for name in _COUNTS)
    error = ": ".join(row[name] for name in ("error_type", "error_template") if row[name])
    return printable(f"{row['failed_queue']}  {row['reason']}  {row['fingerprint']}  {counts}  {error[:_CHARS]}")


def _hour(row: dict[str, Any]) -> str:
    hour = datetime.fromtimestamp(row["hour_ms"] / 1000, UTC)
    counts = f"{row['deaths']} deaths, {row['new_letters']} new letters"
    return printable(f"{hour:%Y-%m-%dT%HZ}  {row['failed_queue']}  {row['fingerprint']}  {counts}")
