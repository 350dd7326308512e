"""`dlx-router pipeline`: the archive and what is read out of it, on Spark. Needs the extra `spark`.

Nothing of Spark is imported before a command runs. Exit codes as everywhere: 0 ok, 1 findings, 2 wrong use.
"""

import os
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Final, NoReturn, ParamSpec

import typer

from dlx_router.cli import output
from dlx_router.cli.pipeline.names import tls_options

app = typer.Typer(
    help="The journal's archive on Spark: ingest, analyses, backtests, bulk redrive.", no_args_is_help=True
)


def path_given(path: Path | None) -> Path | None:
    """The same, where it is a path: an address (s3://…) would be a folder of that name, here. Ends with 2."""
    from dlx_router.spark.archive.files import ArchiveError, require_path  # noqa: PLC0415 - see the module

    try:
        if path is not None:
            require_path(path)
    except ArchiveError as error:
        raise typer.BadParameter(str(error)) from None
    return path


ARCHIVE: Final = typer.Option(
    "--archive", envvar="DLX_ROUTER_ARCHIVE", callback=path_given, help="Folder of the archive."
)
MASTER: Final = typer.Option("--master", help="A Spark cluster: spark://HOST:7077. Without: this machine.")
REMOTE: Final = typer.Option("--remote", envvar="SPARK_REMOTE", help="A Spark Connect server: sc://HOST:15002.")
CONNECTION: Final = typer.Option(
    "--connection", help="Where the AMQP URL is: env:NAME or file:PATH, on every worker too."
)
STREAMS: Final = typer.Option("--streams", help="Streams to read, commas between.")

KEY_FILE: Final = "DLX_ROUTER_PROVENANCE_KEY_FILE"
P = ParamSpec("P")
_NO_SPARK: Final = "the pipeline needs the extra `spark`: pip install '.[spark]' in a clone"


def default_connection() -> str:
    """Where the router has its URL from."""
    file = os.environ.get("DLX_ROUTER_AMQP_URL_FILE")
    return f"file:{file}" if file else "env:DLX_ROUTER_AMQP_URL"


def default_streams() -> str:
    """The router's journal."""
    return f"{os.environ.get('DLX_ROUTER_PREFIX') or 'dlx-router'}.journal"


def guarded(command: Callable[P, int]) -> Callable[P, NoReturn]:
    """A command that ends with the code that it returns; what a person can mend is said in one line and ends with 2."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> NoReturn:
        try:
            code = command(*args, **kwargs)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] not in {"pyspark", "pyarrow", "pandas", "numpy", "py4j", "duckdb"}:
                raise
            output.warn(_NO_SPARK)
            code = output.WRONG_USE
        except Exception as error:
            from dlx_router.spark.errors import own_text  # noqa: PLC0415 - see the module

            if (message := own_text(error)) is None:
                raise
            output.warn(message)
            code = output.WRONG_USE
        raise typer.Exit(code)

    return run


@app.command()
@guarded
def doctor(
    archive: Annotated[Path | None, ARCHIVE] = None,
    connection: Annotated[str | None, CONNECTION] = None,
    streams: Annotated[str | None, STREAMS] = None,
    master: Annotated[str | None, MASTER] = None,
    remote: Annotated[str | None, REMOTE] = None,
) -> int:
    """Check Python, packages, Java, Spark, the broker and the archive's folder; 1 where something is wrong."""
    from dlx_router.spark.doctor import State, checks  # noqa: PLC0415 - see the module

    failed = False
    given = (archive, connection or default_connection(), streams or default_streams())
    for check in checks(*given, source=tls_options(), master=master, remote=remote):
        output.say(f"{check.state:<5} {check.name:<8} {check.said}")
        failed |= check.state is State.FAIL
    return output.FINDINGS if failed else output.OK


@app.command()
@guarded
def ingest(  # noqa: PLR0913 - options
    *,
    archive: Annotated[Path, ARCHIVE] = Path("archive"),
    connection: Annotated[str | None, CONNECTION] = None,
    streams: Annotated[str | None, STREAMS] = None,
    every: Annotated[
        float | None, typer.Option("--every", min=0.1, help="Go on, with a segment every so many seconds.")
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Archive what is there, then end. The default.")] = False,
    start: Annotated[
        str, typer.Option("--start", help="Of a stream new to the archive: earliest or latest.")
    ] = "earliest",
    fail_on_data_loss: Annotated[
        bool, typer.Option("--fail-on-data-loss/--allow-data-loss", help="End where messages are gone, or go on.")
    ] = True,
    keep_lines: Annotated[
        bool, typer.Option("--keep-lines", help="Keep each event's line besides its columns.")
    ] = False,
    table: Annotated[str, typer.Option("--table", help="parquet, or delta: keep a Delta log too.")] = "parquet",
    options: Annotated[
        list[str] | None, typer.Option("--option", help="NAME=VALUE for the source: docs/pipeline.md; repeatable.")
    ] = None,
    master: Annotated[str | None, MASTER] = None,
    remote: Annotated[str | None, REMOTE] = None,
) -> int:
    """Put the journal's events into the archive, each message exactly once; goes on where the last run ended."""
    if every is not None and once:
        output.warn("--once and --every: one of them")
        return output.WRONG_USE
    from dlx_router.cli.pipeline import run_ingest  # noqa: PLC0415 - see the module

    given = {**_source(options), "failOnDataLoss": str(fail_on_data_loss).lower()}
    return run_ingest.run(
        root=archive,
        connection=connection or default_connection(),
        streams=streams or default_streams(),
        every_s=every,
        start=start,
        keep_lines=keep_lines,
        table=table,
        source=given,
        master=master,
        remote=remote,
    )


def _source(written: list[str] | None) -> dict[str, str]:
    """Options of the source: what --option says, and for the rest what the router's settings say."""
    key_file = {"provenanceKeyFile": path} if (path := os.environ.get(KEY_FILE)) else {}
    return {**tls_options(), **key_file, **_pairs(written or [])}


def _pairs(written: list[str]) -> dict[str, str]:
    bad = [pair for pair in written if "=" not in pair]
    if bad:
        raise typer.BadParameter(f"{bad[0]!r}: write NAME=VALUE", param_hint="--option")
    return {name: value for name, _, value in (pair.partition("=") for pair in written)}


@app.command()
@guarded
def compact(
    archive: Annotated[Path, ARCHIVE] = Path("archive"),
    keep: Annotated[int | None, typer.Option("--keep", min=1, help="Delete days older than so many days.")] = None,
    keep_raw: Annotated[
        float, typer.Option("--keep-raw", min=0, help="Days that segments are kept after their day was compacted.")
    ] = 1.0,
    master: Annotated[str | None, MASTER] = None,
    remote: Annotated[str | None, REMOTE] = None,
) -> int:
    """Make one sorted file of each day that is over, each event once; delete what is too old.

    1 where a day was left because files of it are lost.
    """
    from dlx_router.cli.pipeline import run_compact  # noqa: PLC0415 - see the module
    from dlx_router.spark.archive.compact import Rules  # noqa: PLC0415 - see the module
    from dlx_router.spark.archive.files import require_writable  # noqa: PLC0415 - see the module

    if not remote:  # else the folder is the server's
        require_writable(archive.absolute(), "compact")
    done = run_compact.run(archive, Rules(keep=keep, keep_raw=keep_raw), master=master, remote=remote)
    counts = f"{output.number(done.days, 'day')}, {output.number(done.events, 'event')}"
    output.say(f"{counts}; {done.repeated} had come twice; {output.number(done.expired, 'day')} deleted")
    for problem in done.left:
        output.warn(problem)
    return output.FINDINGS if done.left else output.OK


@app.command()
@guarded
def repair(
    *,
    archive: Annotated[Path, ARCHIVE] = Path("archive"),
    accept_loss: Annotated[
        list[str] | None,
        typer.Option("--accept-loss", help="A folder whose events are lost for good, as repair names it; repeatable."),
    ] = None,
    connection: Annotated[str | None, CONNECTION] = None,
    keep_lines: Annotated[bool, typer.Option("--keep-lines", help="As `ingest` was run.")] = False,
    options: Annotated[
        list[str] | None, typer.Option("--option", help="NAME=VALUE for the source: docs/pipeline.md; repeatable.")
    ] = None,
) -> int:
    """Make lost or damaged files again, from the stream while it has the events; or accept that they are lost."""
    from dlx_router.cli.pipeline import run_repair  # noqa: PLC0415 - see the module
    from dlx_router.spark.archive.layout import Archive  # noqa: PLC0415 - see the module

    Archive(archive).require_folder()
    if accept_loss:
        return run_repair.accept_losses(archive, accept_loss)
    source = {**_source(options), "connection": connection or default_connection()}
    return run_repair.run(archive, source, keep_lines=keep_lines)


@app.command()
@guarded
def erase(  # noqa: PLR0913 - options
    *,
    where: Annotated[str, typer.Option("--where", help="SQL over the archive's columns: props.user_id = 'anna'.")] = "",
    letter: Annotated[list[str] | None, typer.Option("--letter", help="Id of a letter; repeatable.")] = None,
    message_id: Annotated[
        list[str] | None, typer.Option("--message-id", help="Property of its message; repeatable.")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", help="Only events of a time, from then on: 2026-10-05 (UTC), 30d.")
    ] = None,
    until: Annotated[str | None, typer.Option("--until", help="… and before then.")] = None,
    archive: Annotated[Path, ARCHIVE] = Path("archive"),
    master: Annotated[str | None, MASTER] = None,
    remote: Annotated[str | None, REMOTE] = None,
) -> int:
    """Delete every event of the letters that are named or have such an event, or all events of a time."""
    from dlx_router.cli.pipeline import run_erase  # noqa: PLC0415 - see the module
    from dlx_router.cli.pipeline.moments import moment  # noqa: PLC0415 - pyspark may be missing
    from dlx_router.spark.archive.erase import Erasure  # noqa: PLC0415 - pyspark may be missing

    times = (moment("--since", since), moment("--until", until))
    what = Erasure(where, tuple(letter or ()), tuple(message_id or ()), *times)
    return run_erase.run(archive, what, master=master, remote=remote)


@app.command()
@guarded
def verify(
    archive: Annotated[Path, ARCHIVE] = Path("archive"),
    deep: Annotated[bool, typer.Option("--deep", help="Read every event's place and id too.")] = False,  # noqa: FBT002 - typer makes a flag of it
    files: Annotated[bool, typer.Option("--files", help="Print the files that count, for other engines.")] = False,  # noqa: FBT002 - typer makes a flag of it
) -> int:
    """Check that the archive holds what its manifests say, without a hole; 1 where it does not."""
    from dlx_router.spark.archive.layout import Archive  # noqa: PLC0415 - see the module
    from dlx_router.spark.archive.missing import accepted  # noqa: PLC0415 - pyspark may be missing
    from dlx_router.spark.archive.verify import verify as run  # noqa: PLC0415 - pyspark may be missing

    Archive(archive).require_folder()
    report = run(archive, deep=deep)
    if files:
        print("\n".join(map(str, Archive(archive).files())))
    else:
        parts = f"{output.number(report.segments, 'segment')}, {output.number(report.days, 'compacted day')}"
        events, bad = output.number(report.events, "event"), output.number(report.bad, "bad line")
        output.say(f"{parts}, {events}, {bad}")
        if counts := ", ".join(f"{count} {name}" for name, count in report.signatures.items()):
            output.say(f"signed by a router: {counts}")
        output.say(*accepted(Archive(archive)))
    for finding in report.findings:
        output.warn(finding)
    return output.FINDINGS if report.findings else output.OK
