"""The data of a report by Spark, where a cluster is named. Imported only then: pyspark takes its time."""

from functools import partial

from dlx_router.cli.pipeline import queue_types
from dlx_router.cli.pipeline.names import prefix
from dlx_router.cli.pipeline.report_request import ReportRequest
from dlx_router.cli.pipeline.run_analysis import Where, vhosts
from dlx_router.spark.advice.proposal import known_of
from dlx_router.spark.backtest.run import left_out
from dlx_router.spark.recovery_windows import quiet_of
from dlx_router.spark.report.by_spark import COLUMNS, gather
from dlx_router.spark.report.data import ReportData


def gathered(request: ReportRequest) -> ReportData:
    """ValueError where there is no event."""
    where = Where(request.archive, request.since, request.until, request.master, request.remote)
    spark = where.session()
    events = where.events(spark).select(*COLUMNS).cache()
    try:
        quiet, known = None, None
        if request.files is not None:
            judge, _ = queue_types.judge(request.files, prefix(), partial(vhosts, events))
            quiet, known = quiet_of(events, judge), partial(known_of, judge)
            queue_types.warn(left_out(events, judge))
        as_of_ms = where.as_of_ms(spark, events)
        return gather(
            events, title=request.title, as_of_ms=as_of_ms, objective=request.objective, quiet=quiet, known=known,
            since_ms=where.since_ms,
        )  # fmt: skip
    finally:
        events.unpersist()
