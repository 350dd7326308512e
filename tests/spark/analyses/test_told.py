"""What the journal and the ledger say of a bulk redrive is what was sent, also where a queue would not have it."""

import json
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from dlx_router.spark.analyses.letters import once
from dlx_router.spark.redrive.plan import Choice, chosen, freeze
from dlx_router.spark.redrive.reconcile import reconcile
from dlx_router.spark.redrive.run import Progress, run
from dlx_router.spark.redrive.way import Way
from tests.spark.analyses.test_backtest import read_journal
from tests.spark.analyses.test_redrive import QUEUE, key_file, way
from tests.spark.rows import AS_OF_MS, archived
from tests.support.client import Client
from tests.support.vhost import Vhost
from tools.pipeline import week

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]
__all__ = ["key_file", "way"]  # fixtures
COPY = "orders.copy"


@pytest.fixture
def four(spark: SparkSession, truth: week.Truth, tmp_path: Path) -> DataFrame:
    """Three letters that are dead, the last one in two queues."""
    lines = (line for line in truth.journal() if json.loads(line)["failed_queue"] == QUEUE)
    dead = [line for line in lines if b'"dead_lettered"' in line][:3]
    copy = dead[-1].replace(f'"{QUEUE}"'.encode(), f'"{COPY}"'.encode()).replace(b'"event_id":"', b'"event_id":"copy-')
    return archived(spark, b"".join([*dead, copy]), tmp_path / "four.ndjson")


def left(events: DataFrame) -> list[str]:
    """The queues of the letters that a new plan up to then would choose."""
    rows = chosen(events, Choice(until_ms=AS_OF_MS)).select("failed_queue").collect()
    return sorted(row.failed_queue for row in rows)


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_a_copy_that_came_back_is_taken_back_and_alone_sent_again(
    spark: SparkSession, four: DataFrame, way: Way, amqp: Client, vhost: Vhost, tmp_path: Path,
) -> None:  # fmt: skip
    amqp.queue(QUEUE)
    amqp.queue(COPY)
    plan, later = tmp_path / "plan", AS_OF_MS * 2  # long after whatever the clock says now
    four = four.withColumn("vhost", f.lit(vhost.name))
    freeze(four, Choice(), plan, redrive_id="r-1", as_of_ms=AS_OF_MS, chunk=2)

    def gone(so_far: Progress) -> None:
        if so_far.chunks_done == 1:
            amqp.channel.queue_delete(COPY)

    done = run(spark, plan, way, on_chunk=gone)
    assert (done.confirmed, done.failed) == (3, {"returned": 1})

    journal = archived(spark, read_journal(vhost, 5), tmp_path / "first.ndjson")
    after = once(four.unionByName(journal))
    counts = reconcile(spark, after, plan, as_of_ms=later)
    assert counts == {"planned": 4, "told": 3, "untold": 1, "recovered": 3, "open": 0, "dead": 0}
    assert left(after) == [COPY]  # the others were sent since they died
    (held,) = journal.where("kind = 'held'").select("failed_queue", "refused", "cause", "detail").collect()
    assert tuple(held) == (COPY, COPY, "target_refused", "returned")

    amqp.queue(COPY)
    done = run(spark, plan, way)
    assert (done.is_done, done.confirmed) == (True, 4)
    assert (amqp.depth(QUEUE), amqp.depth(COPY)) == (3, 1)
    after = once(four.unionByName(archived(spark, read_journal(vhost, 6), tmp_path / "second.ndjson")))
    assert reconcile(spark, after, plan, as_of_ms=later)["recovered"] == 4
    assert left(after) == []
