"""`dlx-router pipeline`: the archive and what is read out of it, on Spark. Needs the extra `spark`.

Nothing of Spark is imported before a command runs. Exit codes as everywhere: 0 ok, 1 findings, 2 wrong use or unreachable.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Final

import typer

from dlx_router.cli import output

app = typer.Typer(
    help="The journal's archive on Spark: ingest, analyses, backtests, bulk redrive.", no_args_is_help=True
)

ARCHIVE: Final = typer.Option("--archive", envvar="DLX_ROUTER_ARCHIVE", help="Folder of the archive.")
MASTER: Final = typer.Option("--master", help="A Spark cluster: spark://HOST:7077. Without: this machine.")
REMOTE: Final = typer.Option("--remote", envvar="SPARK_REMOTE", help="A Spark Connect server: sc://HOST:15002.")
CONNECTION: Final = typer.Option(
    "--connection", help="Where the AMQP URL is: env:NAME or file:PATH, on every worker too."
)
STREAMS: Final = typer.Option("--streams", help="Streams to read, commas between.")

_NO_SPARK: Final = "the pipeline needs the extra `spark`: pip install 'dlx-router[spark]'"


def default_connection() -> str:
    """Where the router has its URL from."""
    file = os.environ.get("DLX_ROUTER_AMQP_URL_FILE")
    return f"file:{file}" if file else "env:DLX_ROUTER_AMQP_URL"


def default_streams() -> str:
    """The router's journal."""
    return f"{os.environ.get('DLX_ROUTER_PREFIX') or 'dlx-router'}.journal"


def guarded(work: Callable[[], int]) -> None:
    """Run a command; what a person can mend is said in one line and ends with 2. Always ends by typer.Exit."""
    try:
        code = work()
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in {"pyspark", "pyarrow", "pandas", "numpy", "py4j"}:
            raise
        print(_NO_SPARK, file=sys.stderr)
        code = output.WRONG_USE
    except Exception as error:
        from dlx_router.spark.trouble import told  # noqa: PLC0415 - see the module

        if (said := told(error)) is None:
            raise
        print(said, file=sys.stderr)
        code = output.WRONG_USE
    raise typer.Exit(code)


@app.command()
def doctor(
    archive: Annotated[Path | None, ARCHIVE] = None,
    connection: Annotated[str | None, CONNECTION] = None,
    streams: Annotated[str | None, STREAMS] = None,
    master: Annotated[str | None, MASTER] = None,
    remote: Annotated[str | None, REMOTE] = None,
) -> None:
    """Check Python, packages, Java, Spark, the broker and the archive's folder; 1 where something is wrong."""

    def work() -> int:
        from dlx_router.spark.doctor import State, checks  # noqa: PLC0415 - see the module

        failed = False
        given = (archive, connection or default_connection(), streams or default_streams())
        for check in checks(*given, master=master, remote=remote):
            print(f"{check.state:<5} {check.name:<8} {check.said}", flush=True)
            failed |= check.state is State.FAIL
        return output.FINDINGS if failed else output.OK

    guarded(work)
