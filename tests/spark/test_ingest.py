"""A stream becomes an archive: each message once, for every engine, whatever happens in between."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow.dataset as ds
import pytest

from dlx_router.spark.archive import delta, reading
from dlx_router.spark.archive.files import ArchiveError
from dlx_router.spark.archive.ingest import Ingest, Ingested, ingest
from dlx_router.spark.archive.layout import Archive
from dlx_router.spark.archive.verify import verify
from dlx_router.spark.errors import own_text
from tests.journal.journal_samples import line
from tests.spark.conftest import Stream
from tools import brokers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Keeper:
    """An archive of the test's stream, filled by Spark or by this process alone; Spark reads it in both cases."""

    def __init__(self, spark: "SparkSession", root: Path, connection: str, stream: str, *, by_spark: bool) -> None:
        self.spark, self.root, self._by = spark, root, spark if by_spark else None
        self._plain: dict[str, Any] = {"connection": connection, "streams": stream}

    def run(
        self, source: dict[str, str] | None = None, is_over: Callable[[], bool] = lambda: False, **how: Any
    ) -> Ingested:
        return ingest(self._by, Ingest(self.root, **self._plain, source=source or {}, **how), is_over)

    def refusal(self, **how: Any) -> str:
        with pytest.raises(Exception, match=r".") as error:
            self.run(**how)
        return own_text(error.value) or f"not ours: {error.value!r}"

    def sizes(self) -> dict[str, list[int]]:
        """`digest.size` of every event, as each engine reads it."""
        files = [str(file) for file in Archive(self.root).files()]
        rows = reading.read(self.spark, self.root, repeated=True).select("digest.size").collect()
        arrow = ds.dataset(files).to_table(["digest"])["digest"].to_pylist() if files else []
        duck = duckdb.read_parquet(files).project("digest.size").fetchall() if files else []
        return {
            "spark": sorted(row[0] for row in rows),
            "pyarrow": sorted(row["size"] for row in arrow),
            "duckdb": sorted(row[0] for row in duck),
        }

    def holds(self, numbers: range) -> None:
        assert self.sizes() == {engine: [*numbers] for engine in ("spark", "pyarrow", "duckdb")}
        assert verify(self.root, deep=True).findings == ()


@pytest.fixture(params=[True, False], ids=["spark", "alone"])
def keeper(
    request: pytest.FixtureRequest, newest: brokers.Broker, spark: "SparkSession", tmp_path: Path, connection: str,
    stream: Stream,
) -> Keeper:  # fmt: skip
    return Keeper(spark, tmp_path / "archive", connection, stream.name, by_spark=request.param)


def tell(stream: Stream, numbers: range) -> None:
    """Events whose body has these sizes, some to a message."""
    for start in range(numbers.start, numbers.stop, 7):
        stream.put(*(line(size=number) for number in range(start, min(start + 7, numbers.stop))))


def test_each_event_is_archived_once_for_every_engine_run_after_run(keeper: Keeper, stream: Stream) -> None:
    stream.mixed = True
    tell(stream, range(50))
    stream.put(b"rubbish\n")
    assert keeper.run({"maxOffsetsPerTrigger": "5", "minOffsetsPerPartition": "2"}) == Ingested(2, 50, 1)
    tell(stream, range(50, 60))
    assert keeper.run(with_delta=True) == Ingested(1, 10, 0)
    assert keeper.run() == Ingested(0, 0, 0)
    tell(stream, range(60, 63))
    assert keeper.run() == Ingested(1, 3, 0)
    keeper.holds(range(63))
    assert [row["reason"] for row in reading.bad(keeper.spark, keeper.root).collect()] == [
        "not a JSON object with an event"
    ]
    assert delta.mirror(Archive(keeper.root)) == (0, 0)  # once there is a table, every run keeps it
    assert duckdb.read_parquet([str(path) for path in Archive(keeper.root).bad_files()]).fetchall()[0][4] == b"rubbish"


def test_what_a_killed_run_left_does_not_count_and_is_cleared_away(keeper: Keeper, stream: Stream) -> None:
    tell(stream, range(20))
    keeper.run()
    archive = Archive(keeper.root)
    (part,) = archive.parts()
    left = archive.raw(part.date, "0000000001-deadbeef")  # moved to its place, killed before its manifest
    shutil.copytree(part.folder, left)
    shutil.copytree(part.folder, archive.work / "deadbeef" / "x")
    keeper.holds(range(20))
    tell(stream, range(20, 30))
    keeper.run()
    assert not left.exists()
    keeper.holds(range(30))


def test_two_ingests_at_once_are_refused_the_second(keeper: Keeper, stream: Stream) -> None:
    tell(stream, range(3))
    with Archive(keeper.root).lease("ingest"):
        assert "ingest is already running: process" in keeper.refusal()
    assert keeper.run().events == 3


def test_of_two_writers_of_one_segment_one_fails(keeper: Keeper, stream: Stream) -> None:
    tell(stream, range(3))
    keeper.run()
    archive = Archive(keeper.root)
    with pytest.raises(ArchiveError, match="another ingest has written segment 0"):
        archive.commit(archive.entry(0))


def test_a_stream_that_was_made_anew_is_noticed_and_archived_if_that_is_allowed(keeper: Keeper, stream: Stream) -> None:
    tell(stream, range(14))
    keeper.run()
    stream.remake()
    tell(stream, range(14, 70))  # more than there was: its offsets alone would look right
    assert "made anew" in keeper.refusal()
    keeper.holds(range(14))
    assert keeper.run({"failOnDataLoss": "false"}).events == 56
    assert keeper.sizes()["pyarrow"] == [*range(70)]
    assert "was allowed" in verify(keeper.root).findings[0]


@pytest.mark.parametrize("fresh", [7, 28, 56])
def test_a_stream_that_is_made_anew_while_ingest_runs_is_archived_from_its_beginning(
    keeper: Keeper, stream: Stream, fresh: int
) -> None:
    """Before, the next segment began in the new stream at the offset where the old one had ended."""
    tell(stream, range(28))
    archive, left = Archive(keeper.root), [stream.remake]

    def is_over() -> bool:
        if left and archive.entries():
            left.pop()()
            tell(stream, range(28, 28 + fresh))
        at = archive.end().get(stream.name, {"lost": 0})
        return bool(at["lost"] and at["next"] >= fresh // 7)

    keeper.run({"failOnDataLoss": "false", "retryFor": "1"}, is_over, every_s=1.0)
    assert keeper.sizes()["pyarrow"] == [*range(28 + fresh)]
    assert all("was allowed" in finding for finding in verify(keeper.root, deep=True).findings)


def test_trouble_is_told_in_one_line(keeper: Keeper, stream: Stream, tmp_path: Path) -> None:
    (tmp_path / "amqp-url").write_text("amqp://guest:hunter2@127.0.0.1:1/", encoding="utf-8")
    reason = keeper.refusal(source={"retryFor": "0"})
    assert "no connection to the broker: 127.0.0.1:1" in reason
    assert "hunter2" not in reason


def test_a_whole_stream_is_a_dataframe(keeper: Keeper, stream: Stream, connection: str) -> None:
    tell(stream, range(21))
    reader = keeper.spark.read.format("rabbitmq_stream").option("connection", connection)
    frame = reader.option("streams", stream.name).load()
    messages = frame.orderBy("offset").collect()
    assert [bytes(row["body"]).count(b"\n") for row in messages] == [7, 7, 7]
    assert {(row["stream"], row["content_type"], row["headers"]["v"]) for row in messages} == {
        (stream.name, "application/x-ndjson", "1")
    }
    part = reader.options(startingOffsets=f'{{"{stream.name}": 1}}', endingOffsets=f'{{"{stream.name}": 2}}')
    assert [row["offset"] for row in part.option("streams", stream.name).load().collect()] == [1]


def test_damage_is_found(keeper: Keeper, stream: Stream) -> None:
    tell(stream, range(20))
    keeper.run({"maxOffsetsPerTrigger": "1"})
    archive = Archive(keeper.root)
    shutil.rmtree(archive.parts()[0].folder)
    assert "0 rows, 7 were written" in verify(keeper.root).findings[0]
    archive.manifest(1).unlink()
    with pytest.raises(ArchiveError, match=r"0000000001\.json is missing"):
        verify(keeper.root)
