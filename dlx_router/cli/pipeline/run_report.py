"""What `dlx-router pipeline report` does: by DuckDB, and by Spark where a cluster is named. Java only for that."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path

from dlx_router.cli import output
from dlx_router.cli.pipeline.moments import times, without_events
from dlx_router.cli.pipeline.names import prefix
from dlx_router.config.findings import PolicyErrors
from dlx_router.config.units import duration_ms
from dlx_router.spark.advice.proposal import known_of
from dlx_router.spark.backtest.places import left_out, windows
from dlx_router.spark.backtest.replay import Files, files_of
from dlx_router.spark.options import OptionError
from dlx_router.spark.report import by_duckdb
from dlx_router.spark.report.data import Objective, ReportData
from dlx_router.spark.report.page import page


@dataclass(frozen=True, slots=True)
class Asked:
    """What was asked for, checked."""

    archive: Path
    since: str | None
    until: str | None
    files: Files | None
    title: str
    objective: Objective
    master: str | None
    remote: str | None

    def gathered(self) -> ReportData:
        """By the engine that was asked for. ValueError where there is no event."""
        if self.master or self.remote:
            from dlx_router.cli.pipeline import run_report_by_spark  # noqa: PLC0415 - see the module

            return run_report_by_spark.gathered(self)
        with by_duckdb.opened(self.archive, by_duckdb.Times(*times(self.since, self.until))) as events:
            if self.files is None:
                return events.gathered(title=self.title, objective=self.objective)
            from dlx_router.cli.pipeline import queue_types  # noqa: PLC0415 - it knows the management API, which takes its time

            judge, _ = queue_types.judge(self.files, prefix(), events.vhosts)
            places = events.places()
            queue_types.warn(left_out(sorted({place[:2] for place in places}), judge))
            return events.gathered(
                title=self.title, objective=self.objective, quiet=windows(places, judge), known=partial(known_of, judge)
            )


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
        data = Asked(archive, since, until, files, title, target, master, remote).gathered()
    except ValueError as error:
        return output.wrong_use(str(error))
    try:
        out.write_text(page(data), encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        return output.wrong_use(f"--out {out}: {error.strerror}; name a file that can be written")
    letters, groups = output.number(data.total("letters"), "letter"), output.number(len(data.groups), "group")
    output.say(f"{out}: {letters}, {groups}, {output.number(len(data.advice), 'queue')} judged", ids=[str(out)])
    return output.OK


def _duration(option: str, written: str) -> int:
    try:
        return duration_ms(written)
    except ValueError as error:
        raise OptionError(f"{option} {written!r}: {error}") from None
