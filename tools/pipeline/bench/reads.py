"""What is read out of the archive, timed: failure groups by Spark and by DuckDB, a backtest, a bulk redrive.

Seconds are those of a session that has answered the same question before; the first time is told beside them.
"""

import os
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import duckdb
from pyspark.sql import DataFrame, SparkSession

from dlx_router.spark.analyses import letters as life
from dlx_router.spark.analyses.groups import failure_groups
from dlx_router.spark.archive.aggregates import Aggregates
from dlx_router.spark.archive.compact import Rules, compact
from dlx_router.spark.archive.layout import Archive
from dlx_router.spark.archive.reading import read
from dlx_router.spark.backtest.differences import arrivals
from dlx_router.spark.backtest.replay import files_of
from dlx_router.spark.backtest.run import backtest
from dlx_router.spark.redrive.plan import Choice, Target, freeze
from dlx_router.spark.redrive.run import run
from dlx_router.spark.redrive.way import Way
from dlx_router.spark.session import build_session
from dlx_router.spark.tables.database import fold
from tests.support.client import Client
from tools.pipeline.bench.ingest import options
from tools.pipeline.week import BETTER, MONDAY_MS, NOW

AS_OF_MS: Final = MONDAY_MS + 8 * 86_400_000
TIMES: Final = 2
LETTERS: Final = 50_000  # of the redrive
Groups = dict[tuple[str, str], tuple[int, int, int]]  # (fingerprint, queue) → letters, deaths, recovered

# The same question in DuckDB's words: analyses/letters.py and analyses/groups.py say what each part is for.
_SQL: Final = """
with told as (
  select distinct on (event_id, vhost, failed_queue) event_id, vhost, failed_queue, id, kind, reason, attempts,
         redrives, redrive_id, ts_ms, due_ms, fingerprint
  from read_parquet({files}) where id is not null and observed is null
), quiet as (
  select vhost, failed_queue, reason,
         greatest(3600000, 2 * coalesce(max(due_ms - ts_ms) filter (kind = 'retried'), 0)) as quiet_ms
  from told group by all
), ends as (
  select vhost, id, failed_queue,
         max_by({{'kind': kind, 'reason': reason, 'back': case kind when 'retried' then coalesce(due_ms, ts_ms)
                                                               when 'redriven' then ts_ms end}},
                row(ts_ms, redrives, attempts, event_id)) as last
  from told where kind <> 'released' group by all
), found as (
  select ends.vhost, ends.id, ends.failed_queue,
         coalesce(last.kind in ('retried', 'redriven') and last.back + coalesce(quiet_ms, 3600000) <= {as_of}, false)
           as recovered
  from ends left join quiet on quiet.vhost = ends.vhost and quiet.failed_queue = ends.failed_queue
       and quiet.reason = ends.last.reason
), died as (
  select fingerprint, vhost, id, failed_queue, count(*) as deaths from told
  where kind in ('retried', 'dead_lettered', 'parked', 'quarantined', 'discarded') and redrive_id is null group by all
)
select fingerprint, failed_queue, count(*), sum(deaths), count(*) filter (recovered)
from died join found using (vhost, id, failed_queue) group by fingerprint, vhost, failed_queue
"""


def session(cores: int) -> SparkSession:
    """Spark here, with so many cores."""
    spark = build_session("dlx-router bench", master=f"local[{cores},4]")
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def timed(work: Callable[[], Any], times: int = TIMES) -> tuple[float, float, Any]:
    """Seconds of the first time, the best of the next `times`, and the answer."""
    seconds, answer = [], None
    for _ in range(1 + times):
        began = time.monotonic()
        answer = work()
        seconds.append(time.monotonic() - began)
    return seconds[0], min(seconds[1:]), answer


def groups(spark: SparkSession, root: Path, cores: int, times: int) -> dict[str, float]:
    """The failure groups by both engines, of the archive as it is; their numbers are the same. `times`: by Spark."""
    cold, warm, by_spark = timed(lambda: _by_spark(read(spark, root)), times)
    files = [str(file) for file in Archive(root).files()]
    with duckdb.connect(config={"threads": cores}) as database:
        query = _SQL.format(files=files, as_of=AS_OF_MS)
        _, peer, rows = timed(lambda: database.execute(query).fetchall())
    by_duckdb = {(row[0], row[1]): (row[2], row[3], row[4]) for row in rows}
    assert by_spark == by_duckdb, f"Spark and DuckDB differ: {by_spark} {by_duckdb}"
    made, kept, answer = timed(lambda: Aggregates(root).groups(as_of_ms=AS_OF_MS))
    kept_too = {
        (row["fingerprint"], row["failed_queue"]): (row["letters"], row["deaths"], row["recovered"]) for row in answer
    }
    assert by_spark == kept_too, f"Spark and the aggregates differ: {by_spark} {kept_too}"
    return {"first_s": cold, "seconds": warm, "duckdb_s": peer, "aggregates_first_s": made, "aggregates_s": kept}


def compacted(root: Path) -> dict[str, float]:
    """All days as one sorted file each."""
    began = time.monotonic()
    done = compact(fold, root, Rules(), now=datetime.fromtimestamp(AS_OF_MS / 1000 + 86_400, UTC))
    return {"events": done.events, "seconds": time.monotonic() - began}


def _by_spark(events: DataFrame) -> Groups:
    letters = life.letters(events, life.observed_quiet(events), AS_OF_MS)
    rows = failure_groups(events, letters).collect()
    return {(row.fingerprint, row.failed_queue): (row.letters, row.deaths, row.recovered) for row in rows}


def judged(events: DataFrame, cores: int) -> dict[str, float]:
    """A backtest: arrivals judged a second and core, and the whole answer."""
    files = files_of(BETTER)
    _, seconds, count = timed(lambda: arrivals(events, files).count())
    same = backtest(events, files_of(NOW), as_of_ms=AS_OF_MS)
    assert (same.judged, same.differing_arrivals) == (count, 0)
    began = time.monotonic()
    backtest(events, files, as_of_ms=AS_OF_MS)
    whole = time.monotonic() - began
    return {"judged": count, "seconds": seconds, "per_s_a_core": count / seconds / cores, "whole_s": whole}


def redriven(events: DataFrame, url: str, folder: Path) -> dict[str, float]:
    """Letters sent back, each confirmed, its event too; planning is not in it."""
    folder.mkdir()
    key = folder / "key"
    key.write_text(os.urandom(32).hex(), encoding="utf-8")
    with Client(url) as client:
        client.exchange("dlx-router.return")
        here, name = Target(options(url).address().vhost, is_move=True), "r-bench"
        plan = freeze(events, Choice(limit=LETTERS), folder / "plan", redrive_id=name, as_of_ms=AS_OF_MS, target=here)
        for queue in plan.queues:
            client.queue(queue, "quorum")
        began = time.monotonic()
        outcome = run(events.sparkSession, folder / "plan", Way(options(url), str(key)))
        took = time.monotonic() - began
    assert outcome.is_done, outcome
    return {"letters": plan.letters, "seconds": took, "per_s": plan.letters / took}


def reads(url: str, root: Path, cores: int, *, first: bool, long: bool) -> dict[str, dict[str, float]]:
    """All of it with so many cores. `first`: compacts, and sends letters; `long`: no backtest."""
    spark = session(cores)
    figures: dict[str, dict[str, float]] = {}
    times = 1 if long else TIMES

    def part(name: str, work: Callable[[], dict[str, float]]) -> None:
        figures[name] = work()
        print(time.strftime("%H:%M:%S"), f"{name}_{cores}", figures[name], file=sys.stderr, flush=True)

    try:
        if first:
            part("fresh", lambda: groups(spark, root, cores, times))
            part("compact", lambda: compacted(root))
        part("groups", lambda: groups(spark, root, cores, times))
        if not long:
            part("backtest", lambda: judged(read(spark, root), cores))
        if first:
            part("redrive", lambda: redriven(read(spark, root), url, root.with_name("redrive")))
    finally:
        spark.stop()
    return figures
