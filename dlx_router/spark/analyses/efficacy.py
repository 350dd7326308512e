"""Retry efficacy: which attempt succeeds, by queue and reason; and what that says about attempts and waits.

An attempt here is a delivery: row `attempts` n is about the delivery after n failed ones. Shares have Wilson's 95 %
interval. Letters that are open, or whose queue refused them, tell nothing about an attempt and are left out.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from dlx_router.spark.analyses.letters import KEY, is_death, of_letters
from dlx_router.spark.analyses.shape import high, low, rated, shaped, share

EFFICACY_SCHEMA: Final = (
    "vhost string, failed_queue string, reason string, attempts long, tried long, recovered long, failed long, "
    "recovered_share double, low double, high double, wait_p50_ms long, elapsed_p50_ms long"
)
EPISODES_SCHEMA: Final = (
    "vhost string, failed_queue string, reason string, first_ms long, last_ms long, length_ms long, letters long, "
    "deaths long"
)
ADVICE_SCHEMA: Final = (
    "vhost string, failed_queue string, reason string, verdict string, attempts_now long, attempts_advised long, "
    "delay_advised_ms long, span_ms long, retries long, retries_saved long, saved_share double, saved_low double, "
    "saved_high double, recovered long, recovered_lost long, lost_low double, lost_high double, redriven long, "
    "redriven_recovered long"
)
WORTH: Final = 0.02  # retries are worth it while they may save more than this share of what still fails
HARDLY: Final = 0.05  # of all that retries save is no reason for a wait
GAP_MS: Final = 30 * 60_000
_QUEUE: Final = ("vhost", "failed_queue", "reason")


def retry_efficacy(tried: DataFrame) -> DataFrame:
    """How often the delivery after n failed ones succeeded. EFFICACY_SCHEMA. `tried`: `tries`, without redriven stays.

    `wait_p50_ms`: how long those letters waited before it; `elapsed_p50_ms`: since their first death.
    """
    counted = (
        tried.where((f.col("kind") == "retried") & (f.col("redrives") == 0))
        .where(f.col("outcome").isin("recovered", "failed"))
        .groupBy(*_QUEUE, "attempts")
        .agg(
            f.count("*").alias("tried"),
            f.count_if(f.col("outcome") == "recovered").alias("recovered"),
            f.percentile(f.col("given_back_ms") - f.col("decided_ms"), 0.5).alias("wait_p50_ms"),
            f.percentile(f.col("given_back_ms") - f.col("first_death_ms"), 0.5).alias("elapsed_p50_ms"),
        )
        .withColumn("failed", f.col("tried") - f.col("recovered"))
    )
    return shaped(_rated(counted, "recovered", "tried"), EFFICACY_SCHEMA).orderBy(*_QUEUE, "attempts")


def episodes(events: DataFrame, gap_ms: int = GAP_MS) -> DataFrame:
    """Stretches of time in which a queue had deaths of one reason without a pause of `gap_ms`. EPISODES_SCHEMA."""
    found = (
        stretched(of_letters(events).where(is_death()), "ts_ms", gap_ms)
        .groupBy(*_QUEUE, "number")
        .agg(
            f.min("ts_ms").alias("first_ms"),
            f.max("ts_ms").alias("last_ms"),
            f.count_distinct("id").alias("letters"),
            f.count("*").alias("deaths"),
        )
    )
    length = found.withColumn("length_ms", f.col("last_ms") - f.col("first_ms"))
    return shaped(length, EPISODES_SCHEMA).orderBy("first_ms", *_QUEUE)


def stretched(frame: DataFrame, moment: str, gap_ms: int) -> DataFrame:
    """The rows with the `number` of their stretch: without a pause of `gap_ms` in their queue and reason."""
    own = Window.partitionBy(*_QUEUE).orderBy(moment)
    starts = (f.col(moment) - f.lag(moment).over(own) > gap_ms).cast("long")
    marked = frame.withColumn("starts", f.coalesce(starts, f.lit(0)))
    return marked.withColumn("number", f.sum("starts").over(own)).drop("starts")


def advice(efficacy: DataFrame, tried: DataFrame, found: DataFrame, stretches: DataFrame) -> DataFrame:
    """What the past says about max-delivery-attempts and redelivery-delay, by queue and reason. ADVICE_SCHEMA.

    verdict:
    - never: hardly any retry succeeds, and no redrive did: do not retry this reason
    - fewer: beyond `attempts_advised` deliveries hardly any retry succeeds
    - longer: retries came too early: redriven letters recovered; waits should cover `span_ms`, the stretch of time in
      which nine of ten letters of such deaths died
    - keep: the attempts of now pay

    *Hardly any*: the upper end of the interval is at most WORTH. `retries_saved` were made beyond the advice, and
    `recovered_lost` letters recovered by them; both with the 95 % interval of their share, for the next like time.
    """
    per_queue = (
        _cut(efficacy)
        .groupBy(*_QUEUE)
        .agg(
            (f.max("attempts") + 1).alias("attempts_now"),
            f.max("cut_at").alias("cut_at"),
            f.sum("tried").alias("retries"),
            f.sum("recovered").alias("recovered"),
            f.coalesce(f.sum(_beyond("tried")), f.lit(0)).alias("retries_saved"),
            f.coalesce(f.sum(_beyond("recovered")), f.lit(0)).alias("recovered_lost"),
            f.min_by("wait_p50_ms", f.when(f.col("recovered_before_end") > HARDLY, f.col("attempts"))).alias("delay"),
        )
    )
    known = per_queue.join(_redriven(tried, found), list(_QUEUE), "left").join(_span(stretches), list(_QUEUE), "left")
    return shaped(_judged(known), ADVICE_SCHEMA).orderBy(f.desc("retries"), *_QUEUE)


def _rated(frame: DataFrame, good: str, of: str) -> DataFrame:
    return frame.withColumns(rated(f"{good}_share", f.col(good), f.col(of)))


def _cut(efficacy: DataFrame) -> DataFrame:
    """Each row with `cut_at`: the fewest deliveries beyond which hardly any letter was saved; null: there is none."""
    own = Window.partitionBy(*_QUEUE).orderBy("attempts")
    rest = f.sum("recovered").over(own.rowsBetween(Window.currentRow, Window.unboundedFollowing))
    whole = Window.partitionBy(*_QUEUE)
    so_far = f.sum("recovered").over(own.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    hopeless = high(rest, f.col("tried")) <= WORTH
    return efficacy.withColumns(
        {
            "cut_at": f.min(f.when(hopeless, f.col("attempts"))).over(whole),
            "recovered_before_end": share(so_far, f.sum("recovered").over(whole)),
        }
    )


def _beyond(name: str) -> Column:
    return f.when(f.col("attempts") >= f.col("cut_at"), f.col(name))


def _redriven(tried: DataFrame, found: DataFrame) -> DataFrame:
    """Letters that were sent back, and how many of them recovered."""
    sent = tried.where(f.col("kind") == "redriven").select(*KEY).distinct()
    ended = sent.join(found, list(KEY)).groupBy(*_QUEUE)
    return ended.agg(
        f.count("*").alias("redriven"), f.count_if(f.col("outcome") == "recovered").alias("redriven_recovered")
    )


def _span(stretches: DataFrame) -> DataFrame:
    """The length of the stretch that a letter of the ninth tenth died in."""
    each = f.percentile(f.col("length_ms"), 0.9, f.col("letters"))
    return stretches.groupBy(*_QUEUE).agg(each.cast("long").alias("span_ms"))


def _judged(known: DataFrame) -> DataFrame:
    full = known.fillna(0, ["redriven", "redriven_recovered"])
    cured = low(f.col("redriven_recovered"), f.col("redriven")) > 0.5  # noqa: PLR2004 - more often than not
    verdict = (
        f.when(f.col("cut_at").isNotNull() & f.coalesce(cured, f.lit(0) == 1), "longer")
        .when(f.col("cut_at") == 1, "never")
        .when(f.col("cut_at").isNotNull(), "fewer")
        .otherwise("keep")
    )
    judged = full.withColumn("verdict", verdict)
    longer = f.col("verdict") == "longer"
    saved, lost = (
        f.when(longer, 0).otherwise(f.col("retries_saved")),
        f.when(longer, 0).otherwise(f.col("recovered_lost")),
    )
    advised = judged.withColumns(
        {
            "attempts_advised": f.when(longer, _covering()).otherwise(f.coalesce("cut_at", "attempts_now")),
            "delay_advised_ms": f.when(longer, FIRST_WAIT_MS).when(f.col("verdict") != "never", f.col("delay")),
            "span_ms": f.when(longer, f.col("span_ms")),
            "retries_saved": saved,
            "recovered_lost": lost,
        }
    )
    return advised.withColumns(
        {
            "saved_share": share(f.col("retries_saved"), f.col("retries")),
            "saved_low": low(f.col("retries_saved"), f.col("retries")),
            "saved_high": high(f.col("retries_saved"), f.col("retries")),
            "lost_low": low(f.col("recovered_lost"), f.col("retries")) * f.col("retries"),
            "lost_high": high(f.col("recovered_lost"), f.col("retries")) * f.col("retries"),
        }
    )


FIRST_WAIT_MS: Final = 30_000


def _covering() -> Column:
    """Deliveries whose waits of 30 s, 1 min, 2 min … cover the stretch: n − 1 waits last 30 s × (2^(n−1) − 1)."""
    waits = f.ceil(f.log2(f.col("span_ms") / FIRST_WAIT_MS + 1))
    return (waits + 1).cast("long")
