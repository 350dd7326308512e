"""Files of an archive that are lost or damaged: made again, or accepted as lost; other days never wait for them."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow.parquet as pq
import pytest

from dlx_router.spark.archive import delta
from dlx_router.spark.archive.compact import Compacted, Rules, compact
from dlx_router.spark.archive.erase import Erasure, erase
from dlx_router.spark.archive.files import ArchiveError
from dlx_router.spark.archive.folding import Fold, by_spark
from dlx_router.spark.archive.ingest import Ingest, ingest
from dlx_router.spark.archive.layout import Entry
from dlx_router.spark.archive.repair import accept, from_stream, repair
from dlx_router.spark.archive.verify import verify
from dlx_router.spark.report import by_duckdb
from dlx_router.spark.tables.database import fold, opened
from tests.journal.journal_samples import line
from tests.spark.conftest import Stream
from tests.spark.tables.scene import HOUR_MS, MONDAY_MS, Written, event

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MONDAY, TUESDAY, WEDNESDAY = "2026-03-09", "2026-03-10", "2026-03-11"
LATER: Final = datetime(2026, 3, 20, tzinfo=UTC)
AT_ONCE: Final = Rules(keep_raw=-1e6)  # segments that were compacted are not kept


def gone(entry: Entry, _folder: Path) -> list[Any]:
    """A stream whose retention was faster."""
    raise ArchiveError(f"stream 's': offset {entry.start['s']['next']} is gone")


@pytest.fixture
def made(tmp_path: Path) -> Written:
    """Three days, a segment each; and what came twice, after midnight."""
    made = Written(tmp_path / "archive")
    made.put(event("a", 1), event("b", 2))
    made.put(event("c", 25), event("d", 26))
    made.put(event("e", 49), {**event("b", 48.5), "event_id": event("b", 2)["event_id"]})
    return made


def folder_of(made: Written, day: str) -> Path:
    (folder,) = (part.folder for part in made.archive.parts() if part.date == day)
    return folder


def lose(folder: Path) -> None:
    """Its only file."""
    (file,) = folder.glob("*.parquet")
    file.unlink()


def damage_footer(folder: Path) -> None:
    (file,) = folder.glob("*.parquet")
    file.write_bytes(file.read_bytes()[:-20])


def damage_values(folder: Path) -> None:
    """What only who reads all of it notices: the footer is whole."""
    (file,) = folder.glob("*.parquet")
    data = bytearray(file.read_bytes())
    data[4:400] = bytes(396)
    file.write_bytes(data)


def compacted(made: Written, how: Fold = fold, rules: Rules = AT_ONCE) -> Compacted:
    return compact(how, made.archive.root, rules, now=LATER)


def asked(made: Written, query: str) -> list[tuple[Any, ...]]:
    with opened(made.archive.root) as db:
        return db.execute(query).fetchall()


def ids(made: Written) -> list[str]:
    return [row[0] for row in asked(made, "SELECT id FROM events WHERE id IS NOT NULL ORDER BY id")]


def command(root: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    argv = [sys.executable, "-m", "dlx_router", "pipeline", arguments[0], "--archive", str(root), *arguments[1:]]
    environment = {**os.environ, "COLUMNS": "1000"}
    return subprocess.run(argv, capture_output=True, text=True, check=False, env=environment)


@pytest.mark.parametrize("harm", [lose, damage_footer, damage_values])
def test_a_day_that_cannot_be_read_is_left_and_the_days_behind_it_are_compacted(
    made: Written, harm: Callable[[Path], None]
) -> None:
    """What came again after midnight stands there still, though nobody can know whether it stood before."""
    harm(folder_of(made, MONDAY))
    done = compacted(made)
    assert (done.days, done.events, [*made.archive.days()]) == (2, 4, [TUESDAY, WEDNESDAY])
    (left,) = done.left
    assert left.startswith(f"{MONDAY} is not compacted: {folder_of(made, MONDAY)}: ")
    assert "`dlx-router pipeline repair`" in left
    assert ("part-0.parquet" in left) == (harm is not lose)
    assert compacted(made).left == done.left


def test_by_spark_other_days_are_compacted_too(spark: "SparkSession", made: Written) -> None:
    lose(folder_of(made, MONDAY))
    done = compacted(made, by_spark(spark, made.archive.root))
    assert (done.days, done.events, len(done.left)) == (2, 4, 1)


@pytest.mark.slow
def test_the_command_says_what_was_left_and_what_to_do(made: Written) -> None:
    folder = folder_of(made, TUESDAY)
    lose(folder)
    done = command(made.archive.root, "compact")
    assert (done.returncode, done.stdout) == (1, "2 days, 3 events; 1 had come twice; 0 days deleted\n")
    assert f"{TUESDAY} is not compacted: {folder}: 0 of 2 events can be read; restore it from a backup" in done.stderr
    checked = command(made.archive.root, "repair")
    assert checked.returncode == 1
    assert f"{folder}: 0 of 2 events can be read; it cannot be made again: " in checked.stderr
    name = str(folder.relative_to(made.archive.root))
    assert f"`dlx-router pipeline repair --accept-loss {name}`" in checked.stderr
    accepted = command(made.archive.root, "repair", "--accept-loss", name)
    assert (accepted.returncode, accepted.stderr) == (0, "")
    assert accepted.stdout.startswith(f"{name}: 2 events are lost, of offsets 1 to 1 of 's'; accepted 20")
    assert command(made.archive.root, "repair").stdout == "nothing is lost or damaged\n"


@pytest.mark.slow
@pytest.mark.parametrize("harm", [lose, damage_footer, damage_values])
def test_an_accepted_loss_is_told_wherever_gaps_are(made: Written, harm: Callable[[Path], None]) -> None:
    folder = folder_of(made, MONDAY)
    harm(folder)
    root, name = made.archive.root, str(folder.relative_to(made.archive.root))
    (loss,) = accept(root, [name], fold)
    assert (loss.folder, loss.events, loss.offsets) == (name, 2, {"s": [0, 1]})
    assert made.archive.days()[MONDAY].lost == (loss,)
    columns = "kind, events, event_date::text, detail LIKE '%offsets 0 to 0 of ''s''%accepted%', actor, vhost"
    assert asked(made, f"SELECT {columns} FROM events WHERE id IS NULL") == [("gap", 2, MONDAY, True, loss.by, "/")]
    assert asked(made, f"SELECT from_ms >= epoch_ms(DATE '{MONDAY}'), to_ms < epoch_ms(DATE '{TUESDAY}')"
                       " FROM events WHERE kind = 'gap'") == [(True, True)]  # fmt: skip
    assert compacted(made) == Compacted(days=2, events=4, repeated=0, expired=0, segments=2)
    assert not folder.exists()
    assert verify(root, deep=True).findings == ()
    assert f"{name}: 2 events are lost" in command(root, "verify").stdout
    assert f"not counted here: {name}: 2 events are lost" in command(root, "groups", "--since", "2026-01-01").stderr
    page = root.with_name("report.html")
    assert command(root, "report", "--since", "2026-01-01", "--out", str(page)).returncode == 0
    assert "2 events of this time are missing in the journal, or lost from the archive" in page.read_text()
    assert accept(root, [name], fold) == [loss]  # once more: nothing is left to be done


def known(made: Written) -> tuple[int, list[tuple[Any, ...]]]:
    """Until when the archive tells everything, and what became of its letters."""
    with by_duckdb.opened(made.archive.root) as opened:
        return opened.complete_ms, asked(made, "SELECT id, outcome FROM letters ORDER BY id")


def test_a_loss_that_is_accepted_does_not_say_that_the_journal_is_known_until_now(made: Written) -> None:
    """It had the time of its acceptance, and letters that were open became recovered."""
    at_ms = MONDAY_MS + (49 + 200) * HOUR_MS  # when the newest event of the scene was read
    ingest_ts = datetime.fromtimestamp(at_ms / 1000, UTC)
    made.put(event("open", 0, kind="retried", ts_ms=at_ms - HOUR_MS // 2, ingest_ts=ingest_ts))
    complete_ms, letters = known(made)
    assert (complete_ms, ("open", "open") in letters) == (at_ms, True)
    lose(folder_of(made, MONDAY))
    accept(made.archive.root, [str(folder_of(made, MONDAY))], fold)
    assert known(made) == (complete_ms, [row for row in letters if row[0] != "a"])


def test_doctor_tells_what_is_lost_and_what_was_accepted(made: Written) -> None:
    from dlx_router.spark.doctor import State, _whole  # noqa: PLC0415 - beside the one test of it

    root = made.archive.root
    assert _whole(root).state is State.OK
    lose(folder_of(made, MONDAY))
    lost = _whole(root)
    assert (lost.state, "0 rows, 2 were written" in lost.said) == (State.FAIL, True)
    accept(root, [str(folder_of(made, MONDAY))], fold)
    accepted = _whole(root)
    assert (accepted.state, "2 events are lost, of offsets 0 to 0" in accepted.said) == (State.NOTE, True)


def test_two_lost_files_of_a_day_are_accepted_together_only(made: Written) -> None:
    made.put(event("f", 5))
    made.put(event("g", 6))
    lost = [part.folder for part in made.archive.parts() if part.date == MONDAY][:2]
    for folder in lost:
        lose(folder)
    (left,) = compacted(made).left
    assert all(str(folder) in left for folder in lost)
    with pytest.raises(ArchiveError, match=rf"{lost[1]}.*it is of the same day"):
        accept(made.archive.root, [str(lost[0])], fold)
    assert MONDAY not in made.archive.days()
    losses = accept(made.archive.root, [*map(str, lost)], fold)
    assert [loss.events for loss in losses] == [2, 1]
    assert ids(made) == ["b", "c", "d", "e", "g"]
    assert asked(made, "SELECT sum(events)::INT FROM events WHERE kind = 'gap'") == [(3,)]
    assert verify(made.archive.root, deep=True).findings == ()


def test_of_a_damaged_file_beside_others_their_events_are_kept_also_when_more_come_late(made: Written) -> None:
    folder = folder_of(made, MONDAY)
    (file,) = folder.glob("*.parquet")
    rows = pq.ParquetFile(file).read()
    pq.write_table(rows.slice(0, 1), file)
    pq.write_table(rows.slice(1), other := file.with_name("part-1.parquet"))
    other.write_bytes(b"PAR1 nothing PAR1")
    (loss,) = accept(made.archive.root, [str(folder)], fold)
    assert loss.events == 1
    made.put(event("late", 3))
    compacted(made)
    assert ids(made) == ["a", "b", "c", "d", "e", "late"]
    assert made.archive.days()[MONDAY].lost == (loss,)
    assert asked(made, "SELECT events FROM events WHERE kind = 'gap'") == [(1,)]


def test_only_what_is_lost_can_be_accepted(made: Written, tmp_path: Path) -> None:
    root, whole = made.archive.root, folder_of(made, MONDAY)
    lose(lost := folder_of(made, TUESDAY))
    outside = tmp_path / "outside/seg=1"
    outside.mkdir(parents=True)
    refused = {
        str(whole): "each of its events can be read",
        str(outside): "not in ",
        "../outside/seg=1": "not in ",
        f"raw/../{lost.relative_to(root)}": "not in ",
        f"{lost}/../{lost.name}": "not in ",
        "raw/event_date=2026-03-10": "no folder of events that count",
        "_manifest": "no folder of events that count",
        "": "no folder of events that count",
    }
    for name, why in refused.items():
        with pytest.raises(ArchiveError, match=why):
            accept(root, [str(lost), name], fold)
    assert made.archive.days() == {}
    assert sorted(path.name for path in root.glob("events/*")) == []
    assert command(root, "repair", "--accept-loss", "../outside").returncode == 2


@pytest.mark.parametrize("when", ["before its folder is in its place", "before its note is there"])
def test_a_kill_while_a_loss_is_accepted_accepts_nothing_or_all(made: Written, when: str) -> None:
    folder = folder_of(made, MONDAY)
    lose(folder)
    name = "moved" if when.startswith("before its folder") else "commit_day"
    code = f"""
import os, signal
from dlx_router.spark.archive import folding, layout
from dlx_router.spark.archive.repair import accept
from dlx_router.spark.tables.database import fold
def kill(*_):
    os.kill(os.getpid(), signal.SIGKILL)
setattr({"folding" if name == "moved" else "layout.Archive"}, {name!r}, kill)
accept({str(made.archive.root)!r}, [{str(folder)!r}], fold)
"""
    made.put(event("f", 5))
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -signal.SIGKILL
    assert made.archive.days() == {}
    assert len(compacted(made).left) == 1
    accept(made.archive.root, [str(folder)], fold)
    assert ids(made) == ["b", "c", "d", "e", "f"]
    assert asked(made, "SELECT events FROM events WHERE kind = 'gap'") == [(2,)]
    assert verify(made.archive.root, deep=True).findings == ()


def test_a_day_whose_compacted_file_is_lost_is_made_again_of_its_segments_while_they_are_kept(made: Written) -> None:
    compacted(made, rules=Rules(keep_raw=1e9))
    before = ids(made)
    lose(folder_of(made, MONDAY))
    done = repair(made.archive.root, gone, fold)
    assert (len(done.restored), done.left, ids(made)) == (1, (), before)
    assert verify(made.archive.root, deep=True).findings == ()


def test_a_compacted_day_without_its_segments_can_only_be_accepted(made: Written) -> None:
    compacted(made)
    compacted(made)
    lose(folder := folder_of(made, MONDAY))
    done = repair(made.archive.root, gone, fold)
    assert "the segments of that day are not kept any more" in done.left[0]
    (loss,) = accept(made.archive.root, [str(folder)], fold)
    assert (loss.events, loss.offsets) == (2, {})
    assert ids(made) == ["c", "d", "e"]
    assert "offsets not known any more" in command(made.archive.root, "verify").stdout


def test_an_older_version_reads_the_note_of_a_day_that_lost_nothing(made: Written) -> None:
    compacted(made)
    assert "lost" not in json.loads(made.archive.day(MONDAY).read_text())


def test_who_asks_for_groups_of_a_part_that_lost_a_file_is_told(made: Written) -> None:
    """What would be made of the rest would count as that of the whole, also when the file is back."""
    folder = folder_of(made, MONDAY)
    (file,) = folder.glob("*.parquet")
    rows = pq.ParquetFile(file).read()
    pq.write_table(rows.slice(0, 1), file)
    done = command(made.archive.root, "groups")
    assert (done.returncode, f"{folder}: 1 rows, 2 were written" in done.stderr) == (2, True)
    pq.write_table(rows, file)
    assert command(made.archive.root, "groups", "--json").returncode == 0


def test_an_erase_says_what_is_lost_and_goes_on_once_that_is_accepted(spark: "SparkSession", made: Written) -> None:
    folder = folder_of(made, TUESDAY)
    lose(folder)
    what = Erasure(letters=("a",))
    with pytest.raises(ArchiveError, match=rf"{folder}: 0 rows, 2 were written; restore.*pipeline repair"):
        erase(spark, made.archive.root, what)
    accept(made.archive.root, [str(folder)], fold)
    assert erase(spark, made.archive.root, what).events == 1
    assert made.archive.days()[TUESDAY].lost[0].events == 2


def tell(stream: Stream, numbers: range, hours: float = 0.0) -> None:
    at_ms = int((datetime.now(UTC) - timedelta(hours=hours)).timestamp() * 1000)
    for start in range(numbers.start, numbers.stop, 5):
        stream.put(*(line(size=number, now_ms=at_ms) for number in range(start, min(start + 5, numbers.stop))))


@pytest.mark.parametrize("harm", [lose, damage_footer])
def test_what_the_stream_still_has_is_read_again(
    newest: object, stream: Stream, connection: str, tmp_path: Path, harm: Callable[[Path], None]
) -> None:
    root = tmp_path / "archive"
    job = Ingest(root, connection, stream.name, with_delta=True)
    for numbers in (range(20), range(20, 40), range(40, 60)):
        tell(stream, numbers, hours=48)
        tell(stream, range(100 + numbers.start, 103 + numbers.start))
        ingest(None, job)
    made = Written(root)
    lost = [part.folder for part in made.archive.parts()][1:3]
    before = asked(made, 'SELECT stream, "offset", idx, event_id FROM raw_events ORDER BY ALL')
    (complete_ms, letters), read_ms = known(made), made.archive.entries()[-1].written_ms
    for folder in lost:
        harm(folder)
    read = from_stream({"connection": connection})
    done = repair(root, read, fold)
    assert ([text.partition(":")[0] for text in done.restored], done.left) == ([*map(str, lost)], ())
    assert asked(made, 'SELECT stream, "offset", idx, event_id FROM raw_events ORDER BY ALL') == before
    assert verify(root, deep=True).findings == ()
    assert delta.mirror(made.archive) == delta.mirror(made.archive, by_file=True) == (0, 0)
    assert repair(root, read, fold).restored == ()
    assert complete_ms <= known(made)[0] <= read_ms
    assert known(made)[1] == letters
    assert compact(fold, root, AT_ONCE).left == ()
    tell(stream, range(200, 203))
    assert ingest(None, job).events == 3


def test_a_stream_that_was_made_anew_has_other_events(
    newest: object, stream: Stream, connection: str, tmp_path: Path
) -> None:
    tell(stream, range(10))
    ingest(None, Ingest(tmp_path / "archive", connection, stream.name))
    made = Written(tmp_path / "archive")
    (part,) = made.archive.parts()
    lose(part.folder)
    stream.remake()
    tell(stream, range(50, 60))
    done = repair(made.archive.root, from_stream({"connection": connection}), fold)
    assert "the stream was deleted and made anew" in done.left[0]
    assert "failOnDataLoss" not in done.left[0]
    assert not part.files
