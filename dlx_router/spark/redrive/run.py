"""A run of a plan: chunks, as many at a time as there are tasks, each sent by one and then entered in the ledger.

Spark only says which worker has its turn: a task reads its chunk by itself, and while it waits for the broker another
prepares its letters. A chunk in the ledger is done but for the letters that it lists as failed; those go again in the
next run. A chunk that is not in it goes whole: what a killed run had sent of it exists twice, with one letter id and
one redrive_id. A task that Spark runs again, because its worker was lost, sends nothing: nobody knows what was sent
before, and what it would tell is of the same try.

The journal is told first: what holds of a letter is its newest event, and a copy may be dead again at once. What then
does not come to its queue is taken back by another event. Each try of a chunk tells events of its own (`tries`).
"""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyarrow.dataset import dataset
from pyspark import TaskContext
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema

from dlx_router.core.names import Names
from dlx_router.spark.amqp import StreamError
from dlx_router.spark.analyses.letters import KEY
from dlx_router.spark.analyses.shape import struct
from dlx_router.spark.archive.files import locked
from dlx_router.spark.backtest.replay import event_of as parsed
from dlx_router.spark.publishing import CONFIRMED, IN_DOUBT, Outgoing
from dlx_router.spark.redrive.ledger import begun, ledger_entry
from dlx_router.spark.redrive.letters import Sender, Spoilt, batch_of, prepared, taken_back, told_ms, unbindable
from dlx_router.spark.redrive.plan import Plan, PlanError, Target, replace_text, vhosts_of
from dlx_router.spark.redrive.way import Way

_FAILED: Final = ("vhost", "id", "failed_queue", "result")
RESULT_SCHEMA: Final = (
    "confirmed long, failed array<struct<vhost: string, id: string, failed_queue: string, result: string>>"
)
NOT_SENT: Final = "not sent"
LOST: Final = f"{IN_DOUBT}: the worker that sent it was lost"
STILL_TOLD: Final = ", yet the journal says redriven"
OF_ONE: Final = 2000.0  # letters a second that one task sends in any case
_LINES: Final = 100
_Tag = tuple[str, str, str]


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
    """Send what the ledger does not have; `on_chunk` hears of every chunk.

    StreamError where a queue is missing; PlanError where letters are not of the connection's vhost; ArchiveBusyError
    where another process is at this plan: it would send the same letters.
    """
    plan = Plan.load(folder)
    _require_once(spark)
    with _alone(folder):
        return _run(spark, folder, plan, way, on_chunk)


def _require_once(spark: SparkSession) -> None:
    """PlanError where Spark may run a task beside itself: both would send the same letters."""
    if str(spark.conf.get("spark.speculation", "false")).lower() == "true":
        raise PlanError("spark.speculation is on, and each letter would be sent by two tasks; set it to false")


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """As the archive's leases: a lock of a file, which another machine may not see."""
    with (folder / ".lock").open("a+", encoding="utf-8") as lock:
        locked(lock, f"`pipeline redrive` of {folder}")
        yield


def _run(spark: SparkSession, folder: Path, plan: Plan, way: Way, on_chunk: Callable[[Progress], None]) -> Progress:
    way = _bound(plan, _pinned(folder, way))
    numbers = [number for number in range(plan.chunks) if _is_open(ledger_entry(folder, number))]
    beside = 1 if 0 < way.rate <= OF_ONE else max(min(way.tasks, len(numbers)), 1)
    todo, way = iter(numbers), replace(way, rate=way.rate / beside)
    with ThreadPoolExecutor(beside) as threads:
        waiting = {threads.submit(_send, spark, folder, way, plan, number) for number in islice(todo, beside)}
        while waiting:
            done, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for chunk in done:
                if not chunk.result():
                    todo = iter(())  # the broker is gone; the next run begins here
                on_chunk(progress(folder))
            waiting |= {threads.submit(_send, spark, folder, way, plan, number) for number in islice(todo, len(done))}
    return progress(folder)


def _pinned(folder: Path, way: Way) -> Way:
    """The way to the vhost that the letters are of, wherever `env:` and `file:` lead on a worker, or later."""
    vhost = way.options.address().vhost
    Target(vhost).require(vhosts_of(folder))
    return replace(way, options=replace(way.options, vhost=vhost))


def _is_open(entry: Mapping[str, Any] | None) -> bool:
    return entry is None or bool(entry["failed"])


def _send(spark: SparkSession, folder: Path, way: Way, plan: Plan, number: int) -> bool:
    """Send a chunk and enter it in the ledger, whoever gives up meanwhile; whether the broker was there to its end."""
    entry = ledger_entry(folder, number)
    result = sent(spark, folder, number, way, plan.redrive_id, begun(folder, number))
    failed = [row.asDict() for row in result.failed]
    outcome = {
        "confirmed": result.confirmed + (entry["confirmed"] if entry else 0),
        "failed": failed,
        "at_ms": _now_ms(),
    }
    replace_text(folder / "ledger" / f"{number}.json", json.dumps(outcome))
    return not any(row["result"].startswith((NOT_SENT, IN_DOUBT)) for row in failed)


def letters_in(spark: SparkSession, failed: list[dict[str, Any]]) -> DataFrame:
    """The keys of these letters of a ledger; copies of one letter in two queues have one id."""
    keys = [tuple(letter[name] for name in KEY) for letter in failed]
    return spark.createDataFrame(keys, ", ".join(f"{name} string" for name in KEY))


def progress(folder: Path) -> Progress:
    """Where a plan stands."""
    plan = Plan.load(folder)
    entries = [entry for number in range(plan.chunks) if (entry := ledger_entry(folder, number)) is not None]
    failed: dict[str, int] = {}
    for entry in entries:
        for letter in entry["failed"]:
            failed[letter["result"]] = failed.get(letter["result"], 0) + 1
    return Progress(plan.chunks, len(entries), plan.letters, sum(entry["confirmed"] for entry in entries), failed)


def sent(spark: SparkSession, folder: Path, number: int, way: Way, redrive_id: str, tries: int) -> Row:
    """Publish what is open of a chunk, in one task that reads it by itself. RESULT_SCHEMA.

    `tries`: how often these were tried before.

    No task fails because of the broker. One that Spark runs again sends nothing and answers LOST.
    """
    schema = struct(RESULT_SCHEMA)
    work = _sending(str(folder.absolute()), way, redrive_id, tries, to_arrow_schema(schema))
    return spark.range(number, number + 1, 1, 1).mapInArrow(work, schema).collect()[0]


def _sending(
    folder: str, way: Way, redrive_id: str, tries: int, schema: pa.Schema
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def work(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        sender = Sender(redrive_id, Names(way.prefix), _key(way.key_file), tries)
        for number in (number for batch in batches for number in batch.column(0).to_pylist()):
            letters = _open_letters(Path(folder), number)
            results = [*(_lost(letters) if _is_again() else _results(letters, way, sender))]
            failed = [dict(zip(_FAILED, row, strict=True)) for row in results if row[-1] != CONFIRMED]
            outcome = {"confirmed": len(results) - len(failed), "failed": failed}
            yield pa.RecordBatch.from_pylist([outcome], schema=schema)

    return work


def _is_again() -> bool:
    """Whether this task was run before, and may have sent anything."""
    task = TaskContext.get()
    return task is not None and task.attemptNumber() > 0


def _lost(events: list[dict[str, Any]]) -> Iterator[tuple[str, str, str, str]]:
    return ((event["vhost"], event["id"], event["failed_queue"], LOST) for event in events)


def _open_letters(folder: Path, number: int) -> list[dict[str, Any]]:
    """The last events of the chunk's letters that are to be sent: all, or those that failed before."""
    files = dataset(str(folder / "chunks" / f"chunk={number}"), format="parquet")
    *keys, texts = (column.to_pylist() for column in files.to_table([*KEY, "event"]).columns)
    entry = ledger_entry(folder, number)
    if entry is None:
        return [parsed(text) for text in texts]
    failed = {tuple(letter[name] for name in KEY) for letter in entry["failed"]}
    return [parsed(text) for key, text in zip(zip(*keys, strict=True), texts, strict=True) if key in failed]


def _results(events: list[dict[str, Any]], way: Way, sender: Sender) -> Iterator[tuple[str, str, str, str]]:
    """Each letter with its result; a letter is confirmed only if its event was, too."""
    waiting: dict[_Tag, str] = {}
    letters: dict[_Tag, tuple[dict[str, Any], int]] = {}
    copies, lines, answers = [], [], []
    for event in events:
        tag = (event["vhost"], event["id"], event["failed_queue"])
        try:
            at_ms = told_ms(event, sender, _now_ms())
            copy, line = prepared(event, sender, at_ms)
            copies.append(copy)
            lines.append(line)
            letters[tag], waiting[tag] = (event, at_ms), NOT_SENT
        except Spoilt as error:
            waiting[tag] = f"spoilt: {error}"
    if not letters:
        return ((*tag, result) for tag, result in waiting.items())
    try:
        with way.publishing() as out:
            answers = list(out.publish(_batches(lines, sender)))
            if all(result == CONFIRMED for _, result in answers):
                waiting |= dict(out.publish(copies, way.rate))
    except StreamError as error:
        waiting |= {tag: f"{NOT_SENT}: {error}" for tag, result in waiting.items() if result == NOT_SENT}
    if answers:
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
        event, at_ms = letters[tag]
        lines.append(taken_back(event, sender, max(_now_ms(), at_ms + 1), result))
    try:
        with way.publishing() as out:
            if all(result == CONFIRMED for _, result in out.publish(_batches(lines, sender))):
                return {}
    except StreamError:
        pass  # what it means is said of each letter
    return {tag: f"{result}{STILL_TOLD}" for tag, result in failed.items()}


def _batches(lines: list[bytes], sender: Sender) -> Iterator[Outgoing]:
    return (batch_of(lines[at : at + _LINES], sender) for at in range(0, len(lines), _LINES))


def _bound(plan: Plan, way: Way) -> Way:
    """The way to this cluster, where every failed queue that is none of ours is bound before a letter is sent."""
    names = Names(way.prefix)
    with way.publishing() as out:
        for queue in plan.queues:
            if unbindable(queue, names):
                continue  # its letters are not sent, and the ledger says why
            out.bind(queue, names.return_, names.return_key(queue))
        return replace(way, cluster=out.cluster)


def _key(path: str) -> bytes:
    from dlx_router.service.vhost.signing_key import from_file  # noqa: PLC0415 - workers read the file, drivers need not

    return from_file(Path(path))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
