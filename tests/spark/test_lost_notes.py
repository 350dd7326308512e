"""Notes of an archive that were lost: nothing that they told of is deleted, and everybody says what is missing."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dlx_router.spark.archive.files import ArchiveError
from dlx_router.spark.archive.folding import alone
from dlx_router.spark.archive.layout import Archive, Day, Entry, State
from dlx_router.spark.archive.verify import verify

DATE, NEXT = "2026-03-10", "2026-03-11"


def put(archive: Archive, number: int) -> Path:
    """A segment of DATE with an event and a line that is none, as ingest leaves it."""
    seg = f"{number:010}-run"
    for folder in (archive.raw(DATE, seg), archive.bad(seg)):
        fill(folder, 1)
    at = {"s": {"next": number + 1, "seen": number, "mark": "", "lost": 0}}
    archive.commit(Entry(number, seg, {DATE: 1}, 1, {}, at, 0))
    return archive.raw(DATE, seg)


def fill(folder: Path, rows: int) -> None:
    folder.mkdir(parents=True)
    table = pa.table({"event_id": [f"{folder.name}-{row}" for row in range(rows)], "signature": ["ok"] * rows})
    pq.write_table(table, folder / "part-0.parquet")


def files(archive: Archive) -> list[Path]:
    return sorted(archive.root.rglob("*.parquet"))


def notes(root: Path, name: str) -> list[Path]:
    """Files of this kind, whatever its folder is called."""
    paths = [*root.glob(f"*{name}/*.json"), *root.glob(f"*{name}")]
    return sorted(path for path in paths if path.is_file() and path.parent.name != "_copies")


def without_copies(root: Path) -> None:
    """As a version left it that made none."""
    shutil.rmtree(root / "_copies", ignore_errors=True)


@pytest.mark.parametrize("lost", [[0, 1, 2], [1, 2], [2], [1], [0]])
def test_segments_whose_manifests_are_lost_are_not_cleared_away(lost: list[int], tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    for number in range(3):
        put(archive, number)
    before, manifests = files(archive), notes(tmp_path, "manifest")
    for number in lost:
        manifests[number].unlink()
    with pytest.raises(ArchiveError, match=rf"{min(lost):010}\.json is missing.*restore it from its copy"):
        archive.clear()
    assert files(archive) == before


def test_they_are_not_without_copies_either(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    for number in range(2):
        put(archive, number)
    without_copies(tmp_path)
    shutil.rmtree(notes(tmp_path, "manifest")[0].parent)
    with pytest.raises(ArchiveError, match=r"0000000000\.json is missing.*from a backup"):
        archive.clear()
    assert len(files(archive)) == 4


def test_manifests_of_compacted_segments_are_missed_too(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    shutil.rmtree(put(archive, 0))
    fill(archive.compacted(DATE, "c-1"), 1)
    archive.commit_day(Day(DATE, "c-1", 1, ("0000000000-run",), 0))
    without_copies(tmp_path)
    notes(tmp_path, "manifest")[0].unlink()
    with pytest.raises(ArchiveError, match="is missing"):
        archive.clear()


@pytest.mark.parametrize("ask", [Archive.parts, Archive.end, Archive.files, lambda archive: verify(archive.root)])
def test_who_only_reads_does_not_take_it_for_empty(ask: Callable[[Archive], object], tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    put(archive, 0)
    notes(tmp_path, "manifest")[0].unlink()
    with pytest.raises(ArchiveError, match="is missing"):
        ask(archive)


def test_what_is_restored_as_the_error_says_is_whole(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    put(archive, 0)
    lost = notes(tmp_path, "manifest")[0]
    lost.unlink()
    with pytest.raises(ArchiveError, match="is missing") as error:
        archive.entries()
    shutil.copy(str(error.value).rpartition("copy, ")[2], lost)
    assert verify(tmp_path).findings == ()
    assert archive.clear() == []


def test_a_killed_run_is_still_cleared_away(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    kept = put(archive, 0)
    left = [archive.raw(DATE, "0000000001-dead"), archive.bad("0000000001-dead")]
    for folder in left:
        fill(folder, 1)
    assert archive.clear() == left
    assert kept.exists()


@pytest.mark.parametrize("has_copies", [True, False])
def test_a_compacted_day_whose_note_is_lost_is_not_deleted(has_copies: bool, tmp_path: Path) -> None:  # noqa: FBT001 - a parameter of the test
    archive = Archive(tmp_path)
    shutil.rmtree(put(archive, 0))  # it is older than --keep-raw
    fill(archive.compacted(DATE, "c-1"), 1)
    archive.commit_day(Day(DATE, "c-1", 1, ("0000000000-run",), 0))
    put(archive, 1)
    shutil.rmtree(put(archive, 2).parent)
    archive.commit_state(State(squashed=2))
    if not has_copies:
        without_copies(tmp_path)
    notes(tmp_path, "days")[0].unlink()
    with pytest.raises(ArchiveError, match=rf"{DATE}"), alone(archive):
        raise AssertionError("compact went on")
    assert archive.compacted(DATE, "c-1").exists()


def test_a_day_that_was_never_finished_is_a_leftover(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    put(archive, 0)
    fill(archive.compacted(DATE, "c-killed"), 1)
    with alone(archive):
        assert [path.name for path, _ in archive.unnamed()] == ["seg=c-killed"]
    assert verify(tmp_path).findings == ()


def test_a_state_that_is_lost_is_missed(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    archive.commit_state(State(squashed=0, before=NEXT))
    notes(tmp_path, "state.json")[0].unlink()
    with pytest.raises(ArchiveError, match="is missing"):
        archive.state()


def test_a_killed_writers_note_gets_its_copy_from_the_next(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    put(archive, 0)
    archive.commit_day(Day(NEXT, "c-1", 0, (), 0))
    without_copies(tmp_path)
    with archive.lease("ingest"):
        pass
    for name in ("manifest", "days"):
        (note,) = notes(tmp_path, name)
        assert note.samefile(next((tmp_path / "_copies").glob(f"{name}/*.json")))


# -- names that a VACUUM passes over --------------------------------------------------------------------------------


def as_it_was(root: Path) -> Archive:
    """An archive of the names that it had at first."""
    archive = Archive(root)
    for number in range(2):
        put(archive, number)
    archive.commit_day(Day(NEXT, "c-1", 0, (), 0))
    archive.commit_state(State(before="2026-01-01"))
    without_copies(root)
    for name in ("manifest", "days", "bad", "state.json"):
        (root / f"_{name}").rename(root / name)
    return archive


def contents(archive: Archive) -> tuple[object, ...]:
    return archive.entries(), archive.days(), archive.state(), archive.parts(), len(archive.bad_files())


def test_an_archive_of_the_first_names_is_read_as_it_is_and_renamed_by_who_writes(tmp_path: Path) -> None:
    archive = as_it_was(tmp_path)
    before = contents(archive)
    assert before[-1] == 2
    with archive.lease("ingest"):
        assert contents(archive) == before
        assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir() and path.name[0] != "_") == [
            "raw", "state.json",
        ]  # fmt: skip


def test_it_is_renamed_only_where_nobody_else_writes(tmp_path: Path) -> None:
    archive = as_it_was(tmp_path)
    with archive.lease("compact"):
        pass
    shutil.rmtree(tmp_path)
    archive = as_it_was(tmp_path)
    (tmp_path / "_compact.lock").touch()
    holder = Archive(tmp_path)
    with holder.lease("compact"):
        with holder.lease("ingest"):
            before = contents(archive)
            archive.commit(Entry(2, "0000000002-run", {}, 0, {}, {}, 0))
        assert len(archive.entries()) == 3
    assert contents(archive)[1:] == before[1:]


def test_the_first_version_does_not_take_a_renamed_archive_for_an_empty_one(tmp_path: Path) -> None:
    with Archive(tmp_path).lease("ingest"):
        pass
    assert (tmp_path / "state.json").exists()  # which it reads before it deletes anything,
    with pytest.raises(OSError, match="Is a directory"):
        (tmp_path / "state.json").read_text(encoding="utf-8")  # and says that it cannot be read
