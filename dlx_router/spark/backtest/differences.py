"""The backtest on Spark: every recorded arrival goes through `decide()` under other policies, in mapInArrow."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema

from dlx_router.spark.analyses.letters import KEY, of_letters
from dlx_router.spark.analyses.shape import struct
from dlx_router.spark.backtest.replay import KINDS, Files, QueueTypes, judge_of
from dlx_router.spark.backtest.shapes import DEATH, OWN, SHAPE, Shapes

# What decide() may look at, and what says how it was decided: docs/journal.md.
_INNER: Final = {"size": "digest.size"}
NEEDED: Final = (*SHAPE, *(name for name in OWN if name not in _INNER), "deaths", "props", "digest")
_OUTCOME: Final = (
    "{0}_decision string, {0}_attempts long, {0}_cause string, {0}_exchange string, {0}_routing_key string, "
    "{0}_wait_ms long"
)
ARRIVALS_SCHEMA: Final = (
    "event_id string, vhost string, id string, failed_queue string, reason string, ts_ms long, redrives long, "
    f"differs array<string>, allowed long, {_OUTCOME.format('was')}, {_OUTCOME.format('now')}"
)
SUMMARY_SCHEMA: Final = (
    "vhost string, failed_queue string, reason string, change string, arrivals long, letters long, "
    "sample_ids array<string>"
)
SAMPLES: Final = 3


def arrivals(events: DataFrame, files: Files, prefix: str = "dlx-router", types: QueueTypes = ()) -> DataFrame:
    """What was decided about each recorded arrival, and what the policies in `files` decide. ARRIVALS_SCHEMA.

    `differs`: names of what is different, empty for the same, null where that cannot be judged: no router wrote such an
    event. `allowed`: the new max-delivery-attempts, null without a policy. Arrivals whose fate the broker decided (a
    target refused, an outage) are not in it.
    """
    decided = of_letters(events).where(f.col("kind").isin(*KINDS))
    deaths = (f.col(f"deaths.{name}").alias(f"death_{name}") for name in DEATH)
    shape = f.to_json(f.struct(*SHAPE, *deaths, f.struct("props.content_type").alias("props"))).alias("shape")
    own = {name: f.col(_INNER.get(name, name)) for name in OWN} | {"body_values": f.to_json("body_values")}
    columns = decided.select(shape, *(column.alias(name) for name, column in own.items()))
    schema = struct(ARRIVALS_SCHEMA)
    return columns.mapInArrow(_judging(files, prefix, types, to_arrow_schema(schema)), schema)


def _judging(
    files: Files, prefix: str, types: QueueTypes, schema: pa.Schema
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that runs on the workers; it takes the policies along as bytes."""

    def judged(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        shapes = Shapes(judge_of(files, prefix, types))
        for batch in batches:
            yield from shapes.judged(batch, schema)

    return judged


def changed(judged: DataFrame) -> DataFrame:
    """The arrivals that would have been decided otherwise; column `first`: no earlier one of the same letter was.

    Only a letter's first difference surely would have come about: afterwards its way is another one.
    """
    own = f.min(f.struct("ts_ms", "event_id")).over(_of_letter())
    different = judged.where(f.size("differs") > 0)
    return different.withColumn("first", own == f.struct("ts_ms", "event_id"))


def summary(different: DataFrame) -> DataFrame:
    """What changes, by queue and reason, with sample letters, the most letters first. SUMMARY_SCHEMA. Takes `changed`.

    Each letter counts once, by its first difference; `arrivals` counts all that differ.
    """
    change = f.when(f.col("was_decision") != f.col("now_decision"), f.concat_ws(" → ", "was_decision", "now_decision"))
    target = f.array_contains("differs", "exchange") | f.array_contains("differs", "routing_key")
    named = different.withColumn(
        "change",
        change.when(target, "another target")
        .when(f.array_contains("differs", "wait_ms"), "another wait")
        .when(f.array_contains("differs", "cause"), "another cause")
        .otherwise("another count of attempts"),
    )
    ranked = named.withColumn("nth", f.when(f.col("first"), f.row_number().over(_of_samples())))
    counted = ranked.groupBy("vhost", "failed_queue", "reason", "change").agg(
        f.count("*").alias("arrivals"),
        f.count_if("first").alias("letters"),
        f.sort_array(f.collect_set(f.when(f.col("nth") <= SAMPLES, f.col("id")))).alias("sample_ids"),
    )
    return counted.orderBy(f.desc("letters"), "vhost", "failed_queue", "reason", "change")


def _of_samples() -> Any:  # noqa: ANN401 - as `_of_letter`
    """First differences, each letter's one, of one change by id: what is not shown is not gathered."""
    from pyspark.sql import Window  # noqa: PLC0415 - pyspark may be missing

    return Window.partitionBy("vhost", "failed_queue", "reason", "change", "first").orderBy("id")


def _of_letter() -> Any:  # noqa: ANN401 - a WindowSpec, classic or of Connect
    from pyspark.sql import Window  # noqa: PLC0415 - pyspark may be missing

    return Window.partitionBy(*KEY)
