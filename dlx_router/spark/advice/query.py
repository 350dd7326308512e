"""The archive → evidence: what was counted of each queue's retries. The only module of advice that runs Spark.

Only the best signed events count: where any is known to be a router's, none that is not. Whoever may publish could
write those.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as f

from dlx_router.core.signature import Signature
from dlx_router.spark.advice.evidence import EDGES_MS, Calm, Episode, Evidence, Key, Tries
from dlx_router.spark.advice.outages import FINE, LETTERS
from dlx_router.spark.analyses.efficacy import stretched
from dlx_router.spark.analyses.letters import KEY, NEEDED, is_death, of_letters, tries
from dlx_router.spark.analyses.sql import GAP_MS

_QUEUE: Final = ("vhost", "failed_queue", "reason")
TRAITS: Final = ("exchange", "routing_key", "content_type")  # of CEL; all that every letter has
COLUMNS: Final = (*NEEDED, "observed", "signature", "fingerprint", "deaths", "exchange", "routing_key", "props")
MOST_VALUES: Final = 20  # of a trait, of a queue
_BEST: Final = (Signature.OK, Signature.UNKNOWN, Signature.NONE)  # never BAD
_MINUTE_MS: Final = 60_000
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
        return Gathered(_counted(trusted, tried, placed), left_out, believed)
    finally:
        placed.unpersist()
        tried.unpersist()


def _signature() -> Column:
    """Archived before it was looked at: as one of an unknown key."""
    return f.coalesce(f.col("signature"), f.lit(Signature.UNKNOWN.value))


def _letters(events: DataFrame, tried: DataFrame, *, with_traits: bool) -> DataFrame:
    """One row for each letter that was tried again: `begun_ms`, its episode, and what a condition can see of it.

    A letter is of the reason that it failed for first.
    """
    retried = tried.where(_is_first_stay())
    begun = retried.groupBy(*KEY).agg(
        f.min("decided_ms").alias("begun_ms"), f.min_by("reason", "decided_ms").alias("reason")
    )
    numbered = stretched(begun, "begun_ms", GAP_MS)
    own = Window.partitionBy(*_QUEUE, "number")
    placed = numbered.withColumns(
        {
            "episode_ms": f.min("begun_ms").over(own),
            "episode_end": f.max("begun_ms").over(own),
            "episode_letters": f.count("*").over(own),
        }
    ).drop("number")
    if not with_traits:
        return placed.withColumns({name: f.lit(None).cast("string") for name in (*TRAITS, "fingerprint")})
    seen = _seen(events)
    known = placed.join(seen, list(KEY), "left")
    for name in (*TRAITS, "fingerprint"):
        known = _common(known, name)
    return known


def _is_first_stay() -> Column:
    """A wait before any redrive; of an event that somebody else wrote, reason and attempts may be missing."""
    known = f.col("reason").isNotNull() & f.col("attempts").isNotNull()
    return (f.col("kind") == "retried") & (f.col("redrives") == 0) & known


def _seen(events: DataFrame) -> DataFrame:
    """What a condition saw of each letter when it failed first, and the group that it failed in."""
    newest = f.get("deaths", f.lit(0))
    key = f.get(newest["routing_keys"], f.lit(0))
    first = f.struct(
        f.coalesce(newest["exchange"], "exchange").alias("exchange"),
        f.coalesce(key, "routing_key").alias("routing_key"),
        f.coalesce("props.content_type", f.lit("")).alias("content_type"),
        f.col("fingerprint"),
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


def _counted(events: DataFrame, tried: DataFrame, placed: DataFrame) -> Evidence:
    given = tried.drop("reason").join(placed, list(KEY))
    return Evidence(
        tuple(_tries(row) for row in _rows(given).collect()),
        tuple(_episodes(given, placed, _minutes(events, placed))),
        tuple(Calm(_key(row), row.episode, row.peak) for row in _minutes(events, placed).collect()),
    )


def _episode() -> Column:
    """Where a letter's episode is large enough to be one."""
    return f.when(f.col("episode_letters") >= LETTERS, f.col("episode_ms"))


def _rows(given: DataFrame) -> DataFrame:
    """Closed deliveries of first stays, by attempt and times."""
    own = Window.partitionBy(*KEY).orderBy("decided_ms", "attempts")
    stays = given.where(_is_first_stay())
    closed = f.col("outcome").isin("recovered", "failed")
    followed = stays.withColumn("followed", f.coalesce(f.lead(closed).over(own), f.lit(0) == 1)).where(closed)
    failed = f.col("outcome") == "failed"
    return followed.groupBy(
        *_QUEUE, *TRAITS, "fingerprint", "attempts",
        _bucket(f.col("decided_ms") - f.col("begun_ms")).alias("since"),
        _bucket(f.col("given_back_ms") - f.col("begun_ms")).alias("at"),
        _episode().alias("episode"),
    ).agg(
        f.count_if(~failed).alias("recovered"),
        f.count_if(failed).alias("failed"),
        f.count_if(failed & ~f.col("followed")).alias("ended"),
        f.sum(f.col("given_back_ms") - f.col("decided_ms")).alias("wait_ms"),
    )  # fmt: skip


def _bucket(ms: Column) -> Column:
    """`evidence.bucket` as columns."""
    return sum((f.when(ms >= edge, 1).otherwise(0) for edge in EDGES_MS), start=f.lit(0))


def _minutes(events: DataFrame, placed: DataFrame) -> DataFrame:
    """The worst and the median minute of each episode, by deaths; of those that are none, together."""
    died = events.where(is_death()).select(*KEY, "ts_ms").join(placed, list(KEY))
    each = died.groupBy(
        *_QUEUE, _episode().alias("episode"), f.floor(f.col("ts_ms") / _MINUTE_MS).alias("minute")
    ).count()
    return each.groupBy(*_QUEUE, "episode").agg(
        f.max("count").alias("peak"), f.percentile("count", 0.5).cast("long").alias("typical")
    )


def _episodes(given: DataFrame, placed: DataFrame, minutes: DataFrame) -> list[Episode]:
    """Those that are large enough."""
    large = f.col("episode_letters") >= LETTERS
    closed = given.where(large & f.col("outcome").isin("recovered", "failed"))
    is_late, is_good = f.col("given_back_ms") > f.col("episode_end"), f.col("outcome") == "recovered"
    sides = closed.groupBy(*_QUEUE, "episode_ms", "episode_end").agg(
        f.count_if(is_good & ~is_late).alias("before_good"), f.count_if(~is_late).alias("before"),
        f.count_if(is_good & is_late).alias("after_good"), f.count_if(is_late).alias("after"),
    )  # fmt: skip
    left = f.col("episode_end") - f.col("begun_ms")
    fine = placed.where(large).groupBy(*_QUEUE, "episode_ms", f.floor(FINE * f.log2(left + 1)).alias("fine"))
    remaining: dict[tuple[Any, ...], list[tuple[int, int]]] = {}
    for row in fine.agg(f.avg(left).alias("ms"), f.count("*").alias("letters")).collect():
        remaining.setdefault((*_key(row), row.episode_ms), []).append((round(row.ms), row.letters))
    typical = {(*_key(row), row.episode): row.typical for row in minutes.collect()}
    return [
        Episode(
            _key(row), row.episode_ms, row.episode_end, (row.before_good, row.before), (row.after_good, row.after),
            tuple(sorted(remaining[(*_key(row), row.episode_ms)])), typical.get((*_key(row), row.episode_ms), 0),
        )
        for row in sides.collect()
    ]  # fmt: skip


def _tries(row: Row) -> Tries:
    traits = tuple(f"{name} == {quoted(row[name])}" for name in TRAITS if row[name] is not None)
    counts: Sequence[int] = (row.recovered, row.failed, row.ended, row.wait_ms)
    recovered, failed, ended, wait_ms = counts
    return Tries(
        _key(row), row.attempts, row.since, row.at, recovered, failed, ended, wait_ms, traits, row.fingerprint or "",
        row.episode,
    )  # fmt: skip


def quoted(text: str) -> str:
    """Printable ASCII as a text of CEL."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _key(row: Row) -> Key:
    return Key(row.vhost, row.failed_queue, row.reason)
