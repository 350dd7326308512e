"""`dlx-router pipeline ingest`: until there is nothing more, or until a signal."""

import signal
import threading
from pathlib import Path
from typing import Any, Final

from dlx_router.cli import output
from dlx_router.spark.archive.ingest import Ingest, ingest
from dlx_router.spark.options import EARLIEST, LATEST
from dlx_router.spark.session import build_session, is_submitted

_TABLES: Final = ("parquet", "delta")
_INTERRUPTED: Final = 130


def run(*, root: Path, start: str, table: str, master: str | None, remote: str | None, **job: Any) -> int:  # noqa: ANN401 - options of the job, each of its own type
    """The exit code: 0 done or ended by SIGTERM, 2 wrong use or trouble that is told, 130 after SIGINT."""
    if table not in _TABLES or start not in {EARLIEST, LATEST}:
        output.warn(f"--table is {' or '.join(_TABLES)}, --start is {EARLIEST} or {LATEST}")
        return output.WRONG_USE
    over: list[int] = []
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda signum, _frame: over.append(signum))
    wants_spark = bool(master or remote or is_submitted())
    ends = job.get("every_s") is None
    spark = build_session("dlx-router ingest", master=master, remote=remote, is_short=ends) if wants_spark else None
    try:
        done = ingest(spark, Ingest(root, start=start, with_delta=table == "delta", **job), lambda: bool(over))
    finally:
        if spark is not None:
            spark.stop()
    counts = f"{output.number(done.segments, 'segment')}, {output.number(done.events, 'event')}"
    output.say(f"{counts}, {output.number(done.bad, 'line that is no event', 'lines that are no events')}")
    return _INTERRUPTED if signal.SIGINT in over else output.OK
