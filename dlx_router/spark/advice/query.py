"""The archive → evidence: what was counted of each queue's retries. The only module of advice that runs Spark.

Only the best signed events count: where any is known to be a router's, none that is not. Whoever may publish could
write those.
"""

from typing import Final, NamedTuple

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as f

from dlx_router.core.signature import Signature
from dlx_router.spark.advice.evidence import EDGES_MS, LETTERS, Evidence, Key, Tries
from dlx_router.spark.analyses.letters import KEY, NEEDED, of_letters, tries

_QUEUE: Final = ("vhost", "failed_queue", "reason")
TRAITS: Final = ("exchange", "routing_key", "content_type")  # of CEL; all that every letter has
COLUMNS: Final = (*NEEDED, "observed", "signature", "deaths", "exchange", "routing_key", "props")
MOST_VALUES: Final = 20  # of a trait, of a queue
_BEST: Final = (Signature.OK, Signature.UNKNOWN, Signature.NONE)  # never BAD
_HOUR_MS: Final = 3_600_000
_WRITABLE: Final = "^[ -~]{1,200}$"  # what a condition can quote


class Gathered(NamedTuple):
    """`left_out`: events that were not looked at, by their signature; `believed`: that of the others, "" for none."""

    evidence: Evidence
    left_out: dict[str, int]
    believed: str


def gather(events: DataFrame, quiet: DataFrame, as_of_ms: int, *, with_traits: bool = True) -> Gathered:
    """What was counted. `events`: with COLUMNS; `quiet`: as `letters` has it. `with_traits`: what conditions need."""
    counts = {row[0]: row[1] for row in events.groupBy(_signature()).count().collect()}
    believed = next((signature.value for signature in _BEST if signature.value in counts), "")
    trusted = of_letters(events.where(_signature() == believed))
    left_out = {name: count for name, count in sorted(counts.items()) if name != believed}
    tried = tries(trusted, quiet, as_of_ms).cache()
    placed = _letters(trusted, tried, with_traits=with_traits).cache()
    try:
        return Gathered(Evidence(_tries(tried, placed), _busiest(placed)), left_out, believed)
    finally:
        placed.unpersist()
        tried.unpersist()


def _signature() -> Column:
    """Archived before it was looked at: as one of an unknown key."""
    return f.coalesce(f.col("signature"), f.lit(Signature.UNKNOWN.value))


def _letters(events: DataFrame, tried: DataFrame, *, with_traits: bool) -> DataFrame:
    """One row for each letter that was tried again: `begun_ms`, its first reason, what a condition can see of it."""
    placed = (
        tried.where(_is_first_stay())
        .groupBy(*KEY)
        .agg(f.min("decided_ms").alias("begun_ms"), f.min_by("reason", "decided_ms").alias("reason"))
    )
    if not with_traits:
        return placed.withColumns({name: f.lit(None).cast("string") for name in TRAITS})
    known = placed.join(_seen(events), list(KEY), "left")
    for name in TRAITS:
        known = _common(known, name)
    return known


def _is_first_stay() -> Column:
    """A wait before any redrive; of an event that somebody else wrote, reason and attempts may be missing."""
    known = f.col("reason").isNotNull() & f.col("attempts").isNotNull()
    return (f.col("kind") == "retried") & (f.col("redrives") == 0) & known


def _seen(events: DataFrame) -> DataFrame:
    """What a condition saw of each letter when it failed first."""
    newest = f.get("deaths", f.lit(0))
    key = f.get(newest["routing_keys"], f.lit(0))
    first = f.struct(
        f.coalesce(newest["exchange"], "exchange").alias("exchange"),
        f.coalesce(key, "routing_key").alias("routing_key"),
        f.coalesce("props.content_type", f.lit("")).alias("content_type"),
    )
    retried = events.where(_is_first_stay())
    return retried.groupBy(*KEY).agg(f.min_by(first, "ts_ms").alias("seen")).select(*KEY, "seen.*")


def _common(frame: DataFrame, name: str) -> DataFrame:
    """The column with null where its value is rare, or cannot be written in a condition."""
    counted = frame.where(f.col(name).rlike(_WRITABLE)).groupBy(*_QUEUE, name).agg(f.count("*").alias("n"))
    ranked = counted.where(f.col("n") >= LETTERS).withColumn(
        "place", f.row_number().over(Window.partitionBy(*_QUEUE).orderBy(f.desc("n"), name))
    )
    common = ranked.where(f.col("place") <= MOST_VALUES).select(*_QUEUE, name, f.lit(1).alias("is_common"))
    joined = frame.join(f.broadcast(common), [*_QUEUE, name], "left")
    return joined.withColumn(name, f.when(f.col("is_common").isNotNull(), f.col(name))).drop("is_common")


def _busiest(placed: DataFrame) -> dict[Key, int]:
    each = placed.groupBy(*_QUEUE, f.floor(f.col("begun_ms") / _HOUR_MS)).count()
    return {_key(row): row.most for row in each.groupBy(*_QUEUE).agg(f.max("count").alias("most")).collect()}


def _tries(tried: DataFrame, placed: DataFrame) -> tuple[Tries, ...]:
    """Closed deliveries of first stays, by attempt and times; each has the reason that its letter failed for first."""
    own = Window.partitionBy(*KEY).orderBy("decided_ms", "attempts")
    closed, failed = f.col("outcome").isin("recovered", "failed"), f.col("outcome") == "failed"
    stays = tried.drop("reason").join(placed, list(KEY)).where(_is_first_stay())
    counted = (
        stays.withColumn("followed", f.coalesce(f.lead(closed).over(own), f.lit(False)))  # noqa: FBT003 - a value
        .where(closed)
        .groupBy(
            *_QUEUE,
            *TRAITS,
            "attempts",
            bucket_of(f.col("decided_ms") - f.col("begun_ms")).alias("since"),
            bucket_of(f.col("given_back_ms") - f.col("begun_ms")).alias("at"),
        )
        .agg(
            f.count_if(~failed).alias("recovered"),
            f.count_if(failed).alias("failed"),
            f.count_if(failed & ~f.col("followed")).alias("ended"),
            f.sum(f.col("given_back_ms") - f.col("decided_ms")).alias("wait_ms"),
        )
    )
    return tuple(
        Tries(
            _key(row), row.attempts, row.since, row.at, row.recovered, row.failed, row.ended, row.wait_ms,
            tuple(f"{name} == {quoted(row[name])}" for name in TRAITS if row[name] is not None),
        )
        for row in counted.collect()
    )  # fmt: skip


def bucket_of(ms: Column) -> Column:
    """`evidence.bucket` of a column: an edge is 250 ms times a power of the root of two, rounded."""
    large = f.lit(2) + f.floor(f.lit(2) * f.log2((ms + f.lit(0.5)) / f.lit(250)))
    return f.when(ms < 1, 0).when(ms < 250, 1).otherwise(f.least(large, f.lit(len(EDGES_MS)))).cast("int")  # noqa: PLR2004 - the first edges


def quoted(text: str) -> str:
    """Printable ASCII as a text of CEL."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _key(row: Row) -> Key:
    return Key(row.vhost, row.failed_queue, row.reason)
