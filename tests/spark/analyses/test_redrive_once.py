"""A letter is redriven once and where it was to go: clocks that differ, references that move, workers that are lost."""

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from dlx_router.core.names import Names
from dlx_router.spark.analyses.shape import struct
from dlx_router.spark.redrive.letters import Sender, Spoilt, told_ms
from dlx_router.spark.redrive.plan import PlanError
from dlx_router.spark.redrive.run import RESULT_SCHEMA, Progress, _results, _sending, run
from dlx_router.spark.redrive.way import Way
from tests.spark.analyses.test_backtest import read_journal
from tests.spark.analyses.test_redrive import QUEUE, event, frozen, key_file, plan, way
from tests.support.client import Client
from tests.support.vhost import Vhost

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]
__all__ = ["frozen", "key_file", "plan", "way"]  # fixtures
Work = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@pytest.mark.parametrize(
    ("now_ms", "tries", "at_ms"), [(5000, 0, 5000), (4000, 0, 4001), (1000, 0, 4001), (1000, 1, 4003), (9000, 3, 9000)]
)
def test_a_redrive_is_told_behind_the_newest_event_of_its_letter_and_behind_each_earlier_try(
    now_ms: int, tries: int, at_ms: int
) -> None:
    assert told_ms({"ts_ms": 4000}, Sender("r-1", Names(), b"k" * 32, tries), now_ms) == at_ms


def test_an_event_without_a_time_is_a_spoilt_letter() -> None:
    with pytest.raises(Spoilt, match=r"^no router wrote such an event: its time is None"):
        told_ms({"ts_ms": None}, Sender("r-1", Names(), b"k" * 32), 1)


@pytest.mark.usefixtures("newest")
def test_what_is_told_of_a_letter_from_a_router_whose_clock_is_ahead_is_its_newest_event(
    lines: list[dict[str, Any]], way: Way, amqp: Client, vhost: Vhost
) -> None:
    """Before, its death was the newest one, so the next plan sent a letter again that had been redriven."""
    ahead_ms = time.time_ns() // 1_000_000 + 600_000
    came = event(lines, vhost=vhost.name, ts_ms=ahead_ms)
    amqp.bind(amqp.queue(QUEUE), Names().return_, Names().return_key(QUEUE))
    refused = came | {"failed_queue": "no.such.queue"}
    results = [row[-1] for row in _results([came, refused], way, Sender("r-1", Names(), b"k" * 32))]
    assert results == ["confirmed", "returned"]
    told = [json.loads(line) for line in read_journal(vhost, 3).splitlines()]
    assert [(each["kind"], each["ts_ms"] - ahead_ms) for each in told] == [
        ("redriven", 1),
        ("redriven", 1),
        ("held", 2),
    ]


@pytest.mark.usefixtures("newest")
def test_letters_go_to_the_vhost_that_was_looked_at_whatever_the_connection_says_later(
    spark: SparkSession, plan: Path, way: Way, amqp: Client, tmp_path: Path
) -> None:
    """Before, each task read the reference anew, and sent them to wherever it led by then."""
    amqp.queue(QUEUE)
    url = tmp_path / "url"

    def moved(_: Progress) -> None:
        url.write_text(url.read_text().rpartition("/")[0] + "/no-such-vhost")

    assert run(spark, plan, way, on_chunk=moved).is_done
    assert amqp.depth(QUEUE) == 240


@pytest.mark.usefixtures("newest")
def test_letters_are_not_sent_to_another_cluster_than_that_which_was_looked_at(
    lines: list[dict[str, Any]], way: Way, amqp: Client, vhost: Vhost
) -> None:
    amqp.bind(amqp.queue(QUEUE), Names().return_, Names().return_key(QUEUE))
    elsewhere = replace(way, cluster="rabbit@elsewhere")
    (row,) = _results([event(lines, vhost=vhost.name)], elsewhere, Sender("r-1", Names(), b"k" * 32))
    assert row[-1].startswith("not sent: file:")
    assert "the plan is sent to 'rabbit@elsewhere'" in row[-1]
    assert amqp.depth(QUEUE) == 0
    with way.publishing() as out:
        assert out.cluster


def lost_at_its_end(work: Work) -> Work:
    """The work of a task whose process is killed the first time, when all is sent and nothing is answered."""

    def run_and_die(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        answers = [*work(batches)]
        task = TaskContext.get()
        if task is not None and task.attemptNumber() == 0:
            os._exit(137)
        yield from answers

    return run_and_die


@pytest.mark.usefixtures("newest")
def test_a_task_that_spark_runs_again_sends_nothing_a_second_time(
    spark: SparkSession, plan: Path, way: Way, amqp: Client, vhost: Vhost
) -> None:
    """Before, its letters were sent and told again as of the same try, up to four times."""
    amqp.bind(amqp.queue(QUEUE), Names().return_, Names().return_key(QUEUE))
    schema = struct(RESULT_SCHEMA)
    work = lost_at_its_end(_sending(str(plan), way, "r-1", 0, to_arrow_schema(schema)))
    (answer,) = spark.range(0, 1, 1, 1).mapInArrow(work, schema).collect()
    assert (answer.confirmed, len(answer.failed)) == (0, 60)
    assert {row.result for row in answer.failed} == {"in doubt: the worker that sent it was lost"}
    assert amqp.depth(QUEUE) == 60
    assert len(read_journal(vhost, 60).splitlines()) == 60


def test_tasks_that_spark_may_run_beside_themselves_send_nothing(spark: SparkSession, plan: Path, way: Way) -> None:
    assert spark.conf.get("spark.speculation") == "false"
    beside = spark.newSession()
    beside.conf.set("spark.sql.legacy.setCommandRejectsSparkCoreConfs", "false")
    beside.conf.set("spark.speculation", "true")
    with pytest.raises(PlanError, match="speculation is on"):
        run(beside, plan, way)
