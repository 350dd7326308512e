"""`dlx-router pipeline sql`: the archive as tables, by DuckDB. No Java.

Nothing of it is imported before the command runs.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from dlx_router.cli import output
from dlx_router.cli.output import Id, Number
from dlx_router.cli.pipeline.archive_commands import ARCHIVE, guarded

if TYPE_CHECKING:
    from dlx_router.spark.tables.query import Column

_IDS: Final = frozenset({"id", "event_id", "failed_queue", "source", "fingerprint", "redrive_id", "parent", "seg"})


def add_to(app: typer.Typer) -> None:
    """The command, added to `dlx-router pipeline`."""
    app.command()(sql)


@guarded
def sql(
    query: Annotated[str, typer.Argument(help="One SELECT; - reads it from stdin. Tables: docs/data-dictionary.md.")],
    archive: Annotated[Path, ARCHIVE] = Path("archive"),
    form: Annotated[
        str | None, typer.Option("--format", help="table (1,000 rows at most; the default), csv or json.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As --format json.")] = False,  # noqa: FBT002 - typer makes a flag of it
) -> int:
    """Ask the archive in SQL: events, letters, groups and more. It is only read, and nothing else is."""
    from dlx_router.spark.archive.layout import Archive  # noqa: PLC0415 - see the module
    from dlx_router.spark.tables.query import FORMATS, TABLE_ROWS, run  # noqa: PLC0415 - as above

    if as_json and form not in {None, "json"}:
        return output.wrong_use(f"--json and --format {form}: one of them")
    form = form or ("json" if as_json else "table")
    if form not in FORMATS:
        return output.wrong_use(f"--format {form!r}: {', '.join(FORMATS)}")
    text = sys.stdin.read() if query == "-" else query
    try:
        has_more = run(archive, text, form, sys.stdout, _table)
        sys.stdout.flush()
    except BrokenPipeError:  # who reads, as `head`, has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return output.OK
    if has_more:
        output.warn(f"the first {TABLE_ROWS:,} rows; --format csv or json has all, LIMIT in the query fewer")
    if Archive(archive).is_empty:
        output.warn(f"--archive {archive}: nothing was ingested there yet, so every table is empty")
    return output.OK


def _table(columns: Sequence["Column"], rows: Sequence[Sequence[str]]) -> None:
    output.table([_titled(column) for column in columns], rows)


def _titled(column: "Column") -> str:
    if column.is_number:
        return Number(column.name)
    return Id(column.name) if column.name in _IDS else column.name
