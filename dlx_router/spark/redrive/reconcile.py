"""Afterwards: what the ledger says against what the journal knows."""

from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from dlx_router.core.recovered import RECOVERED, UNDECIDED
from dlx_router.spark.analyses.letters import KEY, letters, observed_quiet
from dlx_router.spark.redrive.ledger import ledger_entry
from dlx_router.spark.redrive.plan import CHUNK_SCHEMA, Plan
from dlx_router.spark.redrive.run import letters_in

RECONCILED: Final = ("planned", "told", "untold", "recovered", "open", "dead")


def reconcile(spark: SparkSession, events: DataFrame, folder: Path, *, as_of_ms: int) -> dict[str, int]:
    """Of the plan's letters: `told` by an event of this redrive, and what became of those.

    Run it after the next ingest. `untold` letters were not sent, or the ledger does not say that they were confirmed
    (whatever the journal says), or the archive has not come so far. Recovered: as everywhere, silent for long enough;
    until then open. dead: at an end again, by whatever kind.
    """
    plan = Plan.load(folder)
    chunks = spark.read.schema(f"{CHUNK_SCHEMA}, chunk long").parquet(str(folder / "chunks"))
    planned = chunks.select(*KEY)
    ledger = {number: ledger_entry(folder, number) for number in range(plan.chunks)}
    failed = [letter for entry in ledger.values() if entry is not None for letter in entry["failed"]]
    sent = chunks.where(f.col("chunk").isin([number for number, entry in ledger.items() if entry is not None]))
    confirmed = sent.join(letters_in(spark, failed), list(KEY), "left_anti").select(*KEY)
    of_plan = events.join(f.broadcast(planned), list(KEY), "left_semi")
    redriven = of_plan.where((f.col("kind") == "redriven") & (f.col("redrive_id") == plan.redrive_id))
    known = redriven.select(*KEY).distinct().join(confirmed, list(KEY), "left_semi")
    outcomes = letters(of_plan, observed_quiet(events), as_of_ms).select(*KEY, "outcome")
    counted = (
        planned.join(known.withColumn("told", f.lit(1)), list(KEY), "left")
        .join(outcomes, list(KEY), "left")
        .agg(
            f.count("*").alias("planned"),
            f.count("told").alias("told"),
            f.count_if(f.col("told").isNull()).alias("untold"),
            f.count_if(f.col("told").isNotNull() & (f.col("outcome") == RECOVERED)).alias("recovered"),
            f.count_if(f.col("told").isNotNull() & f.col("outcome").isin(*UNDECIDED)).alias("open"),
            f.count_if(f.col("told").isNotNull() & ~f.col("outcome").isin(RECOVERED, *UNDECIDED)).alias("dead"),
        )
        .collect()[0]
    )
    return {name: counted[name] for name in RECONCILED}
