"""How long a letter must be silent to be recovered, by its policies: core's own answer as a DataFrame."""

from pyspark.sql import DataFrame

from dlx_router.spark.analyses.letters import QUIET_SCHEMA
from dlx_router.spark.backtest.places import windows
from dlx_router.spark.backtest.replay import Judge


def quiet_of(events: DataFrame, judge: Judge) -> DataFrame:
    """For every queue and reason in the events: max(1 h, 2 × the longest wait of its policies). QUIET_SCHEMA."""
    asked = events.where("failed_queue is not null").select("vhost", "failed_queue", "reason").distinct()
    rows = windows([tuple(row) for row in asked.orderBy(*asked.columns).collect()], judge)
    return events.sparkSession.createDataFrame(rows, QUIET_SCHEMA)
