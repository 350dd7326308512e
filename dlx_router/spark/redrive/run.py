"""A run of a plan: chunk by chunk, each sent by Spark's workers and then entered in the ledger.

A chunk in the ledger is done but for the letters that it lists as failed; those go again in the next run. A chunk
that is not in it goes whole: what a killed run had sent of it exists twice, with one letter id and one redrive_id.

The journal is told first: what holds of a letter is its newest event, and a copy may be dead again at once. What then
does not come to its queue is taken back by another event. Each try of a chunk tells events of its own (`tries`).
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from dlx_router.core.names import Names
from dlx_router.spark.amqp import StreamError
from dlx_router.spark.analyses.letters import KEY
from dlx_router.spark.analyses.shape import struct
from dlx_router.spark.backtest.replay import event_of as parsed
from dlx_router.spark.options import Options
from dlx_router.spark.publishing import CONFIRMED, IN_DOUBT, Outgoing, Publishing
from dlx_router.spark.redrive.letters import Sender, Spoilt, batch_of, copy_of, event_of, taken_back, unbindable
from dlx_router.spark.redrive.plan import CHUNK_SCHEMA, Plan, replace_text

RESULT_SCHEMA: Final = "vhost string, id string, failed_queue string, result string"
NOT_SENT: Final = "not sent"
STILL_TOLD: Final = ", yet the journal says redriven"
_LINES: Final = 100
_Tag = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Way:
    """How letters are sent. `connection` and `key_file` say where secrets are, on every worker."""

    options: Options
    key_file: str
    prefix: str = "dlx-router"
    rate: float = 0.0
    tasks: int = 2


@dataclass(frozen=True, slots=True)
class Progress:
    """What the ledger says. `failed`: result → letters; they go again in the next run."""

    chunks: int
    chunks_done: int
    letters: int
    confirmed: int
    failed: dict[str, int]

    @property
    def is_done(self) -> bool:
        return self.chunks_done == self.chunks and not self.failed


def run(
    spark: SparkSession, folder: Path, way: Way, *, on_chunk: Callable[[Progress], None] = lambda _progress: None
) -> Progress:
    """Send what the ledger does not have; `on_chunk` hears of every chunk. StreamError where a queue is missing."""
    plan = Plan.load(folder)
    _bound(plan, way)
    for number in range(plan.chunks):
        entry = ledger_entry(folder, number)
        if entry is not None and not entry["failed"]:
            continue
        rows = spark.read.schema(CHUNK_SCHEMA).parquet(str(folder / "chunks" / f"chunk={number}"))
        todo = rows if entry is None else rows.join(letters_in(spark, entry["failed"]), list(KEY), "left_semi")
        results = sent(todo, way, plan.redrive_id, _begun(folder, number)).collect()
        failed = [row.asDict() for row in results if row.result != CONFIRMED]
        confirmed = sum(row.result == CONFIRMED for row in results) + (entry["confirmed"] if entry else 0)
        told = {"confirmed": confirmed, "failed": failed, "at_ms": _now_ms()}
        replace_text(folder / "ledger" / f"{number}.json", json.dumps(told))
        on_chunk(progress(folder))
        if any(row["result"].startswith((NOT_SENT, IN_DOUBT)) for row in failed):
            break  # the broker is gone; the next run begins here
    return progress(folder)


def ledger_entry(folder: Path, number: int) -> dict[str, Any] | None:
    """What came of a chunk, or None where it was not sent."""
    try:
        found: dict[str, Any] = json.loads((folder / "ledger" / f"{number}.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return found


def letters_in(spark: SparkSession, failed: list[dict[str, Any]]) -> DataFrame:
    """The keys of these letters of a ledger; copies of one letter in two queues have one id."""
    keys = [tuple(one[name] for name in KEY) for one in failed]
    return spark.createDataFrame(keys, ", ".join(f"{name} string" for name in KEY))


def _begun(folder: Path, number: int) -> int:
    """How often this chunk was begun before; that it is begun now is written down, should this run be killed."""
    file = folder / "ledger" / f"{number}.begun"
    before = int(file.read_text(encoding="utf-8")) if file.exists() else 0
    replace_text(file, str(before + 1))
    return before


def progress(folder: Path) -> Progress:
    """Where a plan stands."""
    plan = Plan.load(folder)
    entries = [entry for number in range(plan.chunks) if (entry := ledger_entry(folder, number)) is not None]
    failed: dict[str, int] = {}
    for entry in entries:
        for one in entry["failed"]:
            failed[one["result"]] = failed.get(one["result"], 0) + 1
    return Progress(plan.chunks, len(entries), plan.letters, sum(entry["confirmed"] for entry in entries), failed)


def sent(rows: DataFrame, way: Way, redrive_id: str, tries: int = 0) -> DataFrame:
    """Publish the rows (CHUNK_SCHEMA) → what came of each (RESULT_SCHEMA). Every action on it sends again.

    `tries`: how often these were tried before.

    No task fails because of the broker, so Spark has no reason to run one twice.
    """
    schema = struct(RESULT_SCHEMA)
    spread = rows.select("event").repartition(way.tasks)
    return spread.mapInArrow(_sending(way, redrive_id, tries, to_arrow_schema(schema)), schema)


def _sending(
    way: Way, redrive_id: str, tries: int, schema: pa.Schema
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        sender = Sender(redrive_id, Names(way.prefix), _key(way.key_file), tries)
        events = [parsed(text) for batch in batches for text in batch.column(0).to_pylist()]
        found = list(_results(events, way, sender)) if events else []
        columns = zip(*found, strict=True) if found else ((),) * len(schema)
        arrays = [pa.array(values, pa.string()) for values in columns]
        yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    return work


def _results(events: list[dict[str, Any]], way: Way, sender: Sender) -> Iterator[tuple[str, str, str, str]]:
    """Each letter with its result; a letter is confirmed only if its event was, too."""
    waiting: dict[_Tag, str] = {}
    letters: dict[_Tag, tuple[dict[str, Any], int]] = {}
    copies, lines, told = [], [], []
    for event in events:
        tag, now_ms = (event["vhost"], event["id"], event["failed_queue"]), _now_ms()
        try:
            copies.append(copy_of(event, sender))
            lines.append(event_of(event, sender, now_ms))
            letters[tag], waiting[tag] = (event, now_ms), NOT_SENT
        except Spoilt as error:
            waiting[tag] = f"spoilt: {error}"
    try:
        with Publishing(way.options.address(), way.options.tls, timeout_s=way.options.timeout_s) as out:
            told = list(out.publish(_batches(lines, sender)))
            if all(result == CONFIRMED for _, result in told):
                waiting |= dict(out.publish(copies, way.rate / way.tasks))
    except StreamError as error:
        waiting |= {tag: f"{NOT_SENT}: {error}" for tag, result in waiting.items() if result == NOT_SENT}
    if told:
        waiting |= _taken_back({tag: waiting[tag] for tag in letters}, letters, way, sender)
    return ((*tag, result) for tag, result in waiting.items())


def _taken_back(
    results: dict[_Tag, str], letters: dict[_Tag, tuple[dict[str, Any], int]], way: Way, sender: Sender
) -> dict[_Tag, str]:
    """The journal hears of what was told and is surely not in its queue; what could not be taken back, as it is said.

    By another connection: the first one may be the reason. A copy in doubt may have come, so its event stays.
    """
    failed = {tag: result for tag, result in results.items() if result not in {CONFIRMED, IN_DOUBT}}
    if not failed:
        return {}
    lines = []
    for tag, result in failed.items():
        event, told_ms = letters[tag]
        lines.append(taken_back(event, sender, max(_now_ms(), told_ms + 1), result))
    try:
        with Publishing(way.options.address(), way.options.tls, timeout_s=way.options.timeout_s) as out:
            if all(result == CONFIRMED for _, result in out.publish(_batches(lines, sender))):
                return {}
    except StreamError:
        pass  # what it means is said of each letter
    return {tag: f"{result}{STILL_TOLD}" for tag, result in failed.items()}


def _batches(lines: list[bytes], sender: Sender) -> Iterator[Outgoing]:
    return (batch_of(lines[at : at + _LINES], sender) for at in range(0, len(lines), _LINES))


def _bound(plan: Plan, way: Way) -> None:
    """The way back leads to every failed queue that is none of ours before the first letter is sent."""
    names = Names(way.prefix)
    with Publishing(way.options.address(), way.options.tls, timeout_s=way.options.timeout_s) as out:
        for queue in plan.queues:
            if unbindable(queue, names):
                continue  # its letters are not sent, and the ledger says why
            out.bind(queue, names.return_, names.return_key(queue))


def _key(path: str) -> bytes:
    from dlx_router.service.vhost.signing_key import from_file  # noqa: PLC0415 - workers read the file, drivers need not

    return from_file(Path(path))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
