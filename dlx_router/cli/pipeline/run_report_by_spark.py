"""The data of a report by Spark, where a cluster is named. Imported only then: pyspark takes its time."""

from functools import partial
from typing import TYPE_CHECKING

from dlx_router.cli.pipeline import queue_types
from dlx_router.cli.pipeline.names import prefix
from dlx_router.cli.pipeline.run_analysis import Where, vhosts
from dlx_router.spark.advice.proposal import known_of
from dlx_router.spark.backtest.run import left_out
from dlx_router.spark.recovery_windows import quiet_of
from dlx_router.spark.report.by_spark import COLUMNS, gather
from dlx_router.spark.report.data import ReportData

if TYPE_CHECKING:
    from dlx_router.cli.pipeline.run_report import Asked


def gathered(asked: "Asked") -> ReportData:
    """ValueError where there is no event."""
    where = Where(asked.archive, asked.since, asked.until, asked.master, asked.remote)
    spark = where.session()
    events = where.events(spark).select(*COLUMNS).cache()
    try:
        quiet, known = None, None
        if asked.files is not None:
            judge, _ = queue_types.judge(asked.files, prefix(), partial(vhosts, events))
            quiet, known = quiet_of(events, judge), partial(known_of, judge)
            queue_types.warn(left_out(events, judge))
        as_of_ms = where.as_of_ms(spark, events)
        return gather(events, title=asked.title, as_of_ms=as_of_ms, objective=asked.objective, quiet=quiet, known=known)
    finally:
        events.unpersist()
