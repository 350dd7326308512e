"""What `dlx-router pipeline report` does: by DuckDB, and by Spark where a cluster is named. Java only for that."""

from functools import partial
from pathlib import Path

from dlx_router.cli import output
from dlx_router.cli.pipeline.moments import times, without_events
from dlx_router.cli.pipeline.names import prefix
from dlx_router.cli.pipeline.report_request import ReportRequest
from dlx_router.config.findings import PolicyErrors
from dlx_router.config.units import duration_ms
from dlx_router.spark.advice.proposal import known_of
from dlx_router.spark.backtest.places import left_out, windows
from dlx_router.spark.backtest.replay import files_of
from dlx_router.spark.options import OptionError
from dlx_router.spark.report import by_duckdb
from dlx_router.spark.report.data import Objective, ReportData
from dlx_router.spark.report.page import page


def report(  # noqa: PLR0913 - options
    archive: Path,
    out: Path,
    policies: Path | None,
    *,
    since: str | None,
    until: str | None,
    title: str,
    objective: float,
    within: str,
    master: str | None,
    remote: str | None,
) -> int:
    """Write the page."""
    target = Objective(objective, _duration("--within", within))
    try:
        files = None if policies is None else files_of(policies, prefix())
    except PolicyErrors as errors:
        return output.refuse(errors)
    if not remote and (nothing := without_events(archive, *times(since, until))) is not None:
        return output.wrong_use(nothing)
    try:
        data = _gathered(ReportRequest(archive, since, until, files, title, target, master, remote))
    except ValueError as error:
        return output.wrong_use(str(error))
    try:
        out.write_text(page(data), encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        return output.wrong_use(f"--out {out}: {error.strerror}; name a file that can be written")
    letters, groups = output.number(data.total("letters"), "letter"), output.number(data.count("groups"), "group")
    output.say(f"{out}: {letters}, {groups}, {output.number(len(data.advice), 'queue')} judged")
    return output.OK


def _gathered(request: ReportRequest) -> ReportData:
    """By the engine that was asked for. ValueError where there is no event."""
    if request.master or request.remote:
        from dlx_router.cli.pipeline import run_report_by_spark  # noqa: PLC0415 - see the module

        return run_report_by_spark.gathered(request)
    with by_duckdb.opened(request.archive, by_duckdb.Times(*times(request.since, request.until))) as events:
        if request.files is None:
            return events.gathered(title=request.title, objective=request.objective)
        from dlx_router.cli.pipeline import queue_types  # noqa: PLC0415 - it knows the management API, which takes its time

        judge, _ = queue_types.judge(request.files, prefix(), events.vhosts)
        places = events.places()
        queue_types.warn(left_out(sorted({place[:2] for place in places}), judge))
        quiet, known = windows(places, judge), partial(known_of, judge)
        return events.gathered(title=request.title, objective=request.objective, quiet=quiet, known=known)


def _duration(option: str, written: str) -> int:
    try:
        return duration_ms(written)
    except ValueError as error:
        raise OptionError(f"{option} {written!r}: {error}") from None
