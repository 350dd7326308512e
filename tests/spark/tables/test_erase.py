"""What is erased, or too old, stands in no file of the archive any more: not in old ones, not in what was killed."""

import shutil
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dlx_router.journal.audit import COMMENT
from dlx_router.spark.archive import bad_lines, delta
from dlx_router.spark.archive import erase as erasing
from dlx_router.spark.archive.aggregates import Aggregates
from dlx_router.spark.archive.compact import Rules, compact
from dlx_router.spark.archive.erase import Erased, Erasure, erase
from dlx_router.spark.archive.folding import folded
from dlx_router.spark.archive.layout import Archive, Day
from dlx_router.spark.archive.sink import Sink
from dlx_router.spark.archive.verify import verify
from dlx_router.spark.tables.database import fold, opened
from tests.spark.tables.scene import HOUR_MS, MONDAY_MS, Written, event
from tests.spark.tables.test_sql import pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ANNA, BERT = "anna0123456789", "bert0123456789"
LINE: Final = b'{"v":1,"id":"%s"'
NOON: Final = MONDAY_MS + 12 * HOUR_MS


def standing_in(root: Path, name: str) -> list[str]:
    """Files of the archive in whose bytes, or in whose unpacked columns, the name stands."""
    files = []
    for file in sorted(path for path in root.rglob("*") if path.is_file()):
        data = file.read_bytes()
        if data.startswith(b"PAR1"):
            data += repr(pq.ParquetFile(file).read().to_pylist()).encode()
        if name.encode() in data:
            files.append(str(file.relative_to(root)))
    return files


def letter(name: str, hours: float, **more: str) -> dict[str, object]:
    return event(name, hours, props={"message_id": f"m-{name}", **more})


@pytest.fixture
def written(tmp_path: Path) -> Written:
    """Two letters everywhere: compacted, in old segments, in late ones, bad lines, in what was killed; a Delta log.

    And in aggregates, of which one was being made by who was killed.
    """
    made = Written(tmp_path / "archive")
    lines = [LINE % name.encode() for name in (ANNA, BERT)]
    monday = [letter(ANNA, 1), letter(BERT, 2), event(ANNA, 13), event(BERT, 14)]
    seg = made.put(*monday, bad=lines)
    made.compact("2026-03-09", monday, seg)
    made.put(event(ANNA, 3), event(BERT, 30), event(ANNA, 31), event("c" * 12, 32))
    archive = made.archive
    delta.mirror(archive)
    Aggregates(archive.root).refresh()
    made_last = max((archive.root / "_aggregates").glob("*/*/*"))
    shutil.copy(made_last, made_last.with_name(f".{made_last.name}.killed"))
    shutil.copytree(archive.compacted("2026-03-09", "c-2026-03-09"), archive.compacted("2026-03-09", "c-killed"))
    shutil.copytree(archive.raw("2026-03-10", "0000000001-run"), archive.raw("2026-03-10", "0000000002-killed"))
    shutil.copytree(
        archive.raw("2026-03-10", "0000000001-run"), archive.work / "killed/0000000003-x/event_date=2026-03-10"
    )
    shutil.copytree(archive.raw("2026-03-10", "0000000001-run"), archive.compacting / "c-x")
    assert len(standing_in(archive.root, ANNA)) == 13
    return made


@pytest.mark.slow
@pytest.mark.parametrize(
    "what",
    [
        Erasure(letters=(ANNA,)),
        Erasure(message_ids=(f"m-{ANNA}",)),
        Erasure(where=f"props.message_id = 'm-{ANNA}'"),
    ],
    ids=["by letter", "by message id", "by condition"],
)
def test_a_letter_is_gone_from_every_file(spark: "SparkSession", written: Written, what: Erasure) -> None:
    root, searched = written.archive.root, not what.where
    done = erase(spark, root, what)
    assert done == Erased(letters=1, events=4, bad=1 if searched else 2)
    left = standing_in(root, ANNA)
    assert left == ([] if searched else ["_bad/seg=0000000000-run/part-0.parquet"])
    assert [*root.glob("_aggregates/*/*/.*")] == []
    assert len(standing_in(root, BERT)) == 3
    assert verify(root, deep=True).findings == ()
    assert erase(spark, root, what) == Erased(letters=0, events=0, bad=done.bad)


@pytest.mark.slow
@pytest.mark.parametrize("killed_at", [1, 2, 3])
@pytest.mark.parametrize(
    "what", [Erasure(letters=(ANNA,)), Erasure(message_ids=(f"m-{ANNA}",))], ids=["id", "message id"]
)
def test_what_was_killed_finds_the_same_letters_when_it_is_run_again(
    spark: "SparkSession", written: Written, what: Erasure, killed_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one event by which a message id is found goes last."""
    calls = list[str]()

    def killed(archive: Archive, day: str, *more: object) -> Day:
        calls.append(day)
        if len(calls) == killed_at:
            raise KeyboardInterrupt
        return folded(archive, day, *more)  # type: ignore[arg-type]  # handed on as they came

    monkeypatch.setattr(erasing, "folded", killed)
    with suppress(KeyboardInterrupt):
        erase(spark, written.archive.root, what)
    assert len(calls) <= killed_at
    monkeypatch.setattr(erasing, "folded", folded)
    erase(spark, written.archive.root, what)
    assert standing_in(written.archive.root, ANNA) == []
    assert verify(written.archive.root, deep=True).findings == ()


def test_a_note_on_a_letter_whose_events_are_too_old_goes_with_its_id(spark: "SparkSession", tmp_path: Path) -> None:
    made = Written(tmp_path / "archive")
    note = event("n1", 5, id=None, kind="audit", action=COMMENT, details=[("letter", ANNA), ("text", "call her")])
    made.put(note, event(BERT, 6))
    assert erase(spark, made.archive.root, Erasure(letters=(ANNA,))).events == 1
    assert standing_in(made.archive.root, ANNA) == []


@pytest.mark.slow
def test_events_of_a_time_are_gone_and_the_rest_of_their_letters_stays(spark: "SparkSession", written: Written) -> None:
    root = written.archive.root
    assert erase(spark, root, Erasure(until_ms=NOON)) == Erased(letters=2, events=3, bad=0)
    from dlx_router.spark.archive.reading import read  # noqa: PLC0415 - pyspark may be missing

    assert {row["ts_ms"] for row in read(spark, root).collect()} == {
        MONDAY_MS + at * HOUR_MS for at in (13, 14, 30, 31, 32)
    }
    assert standing_in(root, f"m-{ANNA}") == []
    assert verify(root, deep=True).findings == ()
    everything = Erasure(since_ms=0)
    assert erase(spark, root, everything) == Erased(letters=3, events=5, bad=0)
    assert (standing_in(root, ANNA), standing_in(root, BERT)) == ([], [])
    assert verify(root, deep=True).findings == ()


def test_what_is_too_old_is_gone_with_its_lines_that_are_no_events(spark: "SparkSession", written: Written) -> None:
    root, late = written.archive.root, datetime(2026, 6, 1, tzinfo=UTC)
    with written.archive.lease("ingest"):  # the next one does this when it begins
        written.archive.clear()
        shutil.rmtree(written.archive.work)
    compact(fold, root, Rules(keep=30), now=late)
    assert (standing_in(root, ANNA), standing_in(root, BERT)) == ([], [])
    assert verify(root).findings == ()


@pytest.mark.slow
def test_an_ingest_that_runs_is_left_alone(spark: "SparkSession", written: Written) -> None:
    with written.archive.lease("ingest"):
        done = erase(spark, written.archive.root, Erasure(letters=(ANNA,)))
    assert done.events == 4
    assert {path.split("/")[0] for path in standing_in(written.archive.root, ANNA)} == {"_ingest", "raw"}


@pytest.mark.slow
def test_what_came_too_late_for_its_day_is_in_no_file_either(spark: "SparkSession", tmp_path: Path) -> None:
    """Retention had taken the day already, so nobody read the event, and `erase` did not look at its folder."""
    made, now = Written(tmp_path / "archive"), datetime(2026, 3, 15, tzinfo=UTC)
    made.put(letter(BERT, 6 * 24 - 1))
    compact(fold, made.archive.root, Rules(keep=1), now=now)
    made.put(letter(ANNA, 24), letter(BERT, 6 * 24))
    assert len(standing_in(made.archive.root, ANNA)) == 1
    erase(spark, made.archive.root, Erasure(letters=(ANNA,)))
    assert standing_in(made.archive.root, ANNA) == []
    assert verify(made.archive.root, deep=True).findings == ()


def test_compact_deletes_what_came_too_late_for_its_day(tmp_path: Path) -> None:
    made, now = Written(tmp_path / "archive"), datetime(2026, 3, 15, tzinfo=UTC)
    made.put(letter(BERT, 6 * 24 - 1))
    compact(fold, made.archive.root, Rules(keep=1), now=now)
    made.put(letter(ANNA, 24), letter(BERT, 6 * 24))
    compact(fold, made.archive.root, Rules(), now=now)
    assert standing_in(made.archive.root, ANNA) == []
    assert len(standing_in(made.archive.root, BERT)) > 0


def test_an_event_that_stands_in_the_day_before_too_is_counted_once_after_an_erase(
    spark: "SparkSession", tmp_path: Path
) -> None:
    """It was decided again after a crash, past midnight; compacted days are not searched for what came twice."""
    made = Written(tmp_path / "archive")
    made.put(first := event(BERT, 23.9))
    compact(fold, made.archive.root, Rules(), now=datetime(2026, 3, 10, 12, tzinfo=UTC))
    made.put({**event(BERT, 24.1), "event_id": first["event_id"]}, event(ANNA, 25), event("c" * 12, 26))
    erase(spark, made.archive.root, Erasure(letters=(ANNA,)))
    assert [part.is_compacted for part in made.archive.parts()] == [True, True]
    with opened(made.archive.root) as database:
        counts = database.execute("SELECT count(*), count(DISTINCT event_id) FROM events").fetchall()
    assert counts == [(2, 2)]


def test_ids_are_values_and_one_way_at_a_time_is_asked_for(spark: "SparkSession", written: Written) -> None:
    root = written.archive.root
    assert erase(spark, root, Erasure(letters=("' or '1' = '1",))).events == 0
    for wrong in ((), ("--letter", "a", "--since", "2026-03-09"), ("--where", "true", "--message-id", "m")):
        done = pipeline(written, "erase", *wrong)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    for time in ("soon", "2026-02-30", "2026-03-09T25:00"):
        done = pipeline(written, "erase", "--until", time)
        assert (done.returncode, f"--until '{time}'" in done.stderr, done.stderr.count("\n")) == (2, True, 1)
    for option in ("--letter", "--message-id"):
        done = pipeline(written, "erase", option, "")
        assert (done.returncode, "an id is not empty" in done.stderr) == (2, True), done.stderr


def test_an_ingest_that_goes_on_keeps_nothing_of_reads_that_broke_off(tmp_path: Path) -> None:
    archive, sink = Archive(tmp_path), Sink(str(tmp_path), "run", 0, "{}")
    sink.folder(archive).mkdir(parents=True)
    (sink.folder(archive) / "torn.parquet").write_bytes(ANNA.encode())
    sink.put(archive, [], {}, {})
    assert standing_in(tmp_path, ANNA) == []


def test_an_id_is_looked_for_as_a_whole_word() -> None:
    """In lines that are no events; else the id "1" would take the text of all that were written in this century."""
    lines = pa.chunked_array([[b'{"id":"1","n":21}', b'{"id":"x1","n":21}', b'not "1"', None]])
    assert bad_lines.naming(lines, {"1"}).to_pylist() == [True, False, True, False]
