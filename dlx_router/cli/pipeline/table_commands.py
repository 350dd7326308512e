"""`dlx-router pipeline sql` and `export`: the archive as tables, by DuckDB. No Java.

Nothing of them is imported before a command runs.
"""

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from dlx_router.cli import output
from dlx_router.cli.pipeline.archive_commands import ARCHIVE, guarded


def add_to(app: typer.Typer) -> None:
    """The commands, added to `dlx-router pipeline`."""
    app.command()(sql)
    app.command()(export)


@guarded
def sql(
    query: Annotated[str, typer.Argument(help="One SELECT; - reads it from stdin. Tables: docs/data-dictionary.md.")],
    archive: Annotated[Path, ARCHIVE] = Path("archive"),
    form: Annotated[str, typer.Option("--format", help="table (1,000 rows at most), csv or json.")] = "table",
) -> int:
    """Ask the archive in SQL: events, letters, groups, bad_lines, segments. It is only read, and nothing else is."""
    from dlx_router.spark.tables.query import FORMATS, TABLE_ROWS, run  # noqa: PLC0415 - see the module

    if form not in FORMATS:
        return output.wrong_use(f"--format {form!r}: {', '.join(FORMATS)}")
    text = sys.stdin.read() if query == "-" else query
    try:
        has_more = run(archive, text, form, sys.stdout, output.table)
        sys.stdout.flush()
    except BrokenPipeError:  # who reads, as `head`, has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return output.OK
    if has_more:
        output.warn(f"the first {TABLE_ROWS:,} rows; --format csv or json has all, LIMIT in the query fewer")
    return output.OK


@guarded
def export(
    out: Annotated[Path, typer.Argument(help="Folder of the copy; new or empty.")],
    archive: Annotated[Path, ARCHIVE] = Path("archive"),
    form: Annotated[str, typer.Option("--format", help="parquet, delta or iceberg.")] = "parquet",
    since: Annotated[
        str | None, typer.Option("--since", help="Only events from this day (UTC) on: 2026-10-05.")
    ] = None,
    until: Annotated[str | None, typer.Option("--until", help="Only events of days before this one.")] = None,
) -> int:
    """Copy the events, each once, to a table of its own that other engines own: what is erased here stays there."""
    from dlx_router.spark.tables.export import FORMATS, Days  # noqa: PLC0415 - see the module
    from dlx_router.spark.tables.export import export as run  # noqa: PLC0415 - as above

    if form not in FORMATS:
        return output.wrong_use(f"--format {form!r}: {', '.join(FORMATS)}")
    done = run(archive, out, form, Days.read(since, until))
    output.say(f"{output.number(done.events, 'event')} of {output.number(done.days, 'day')} in {done.where}")
    return output.OK
