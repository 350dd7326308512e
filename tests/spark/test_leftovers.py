"""What compact and erase take away, and what they must leave: files and manifests only, no Spark session."""

import time
from pathlib import Path

import pytest

from dlx_router.spark.archive.compact import _squash
from dlx_router.spark.archive.files import ArchiveError, removed
from dlx_router.spark.archive.folding import drop_old
from dlx_router.spark.archive.layout import Archive, Day, Entry
from dlx_router.spark.archive.sink import Sink

DATE = "2026-03-10"


def put(archive: Archive, number: int, run: str = "run") -> str:
    """A segment of DATE with one event, as ingest leaves it."""
    seg = f"{number:010}-{run}"
    archive.raw(DATE, seg).mkdir(parents=True)
    at = {"s": {"next": number + 1, "seen": number, "mark": "", "lost": 0}}
    archive.commit(Entry(number, seg, {DATE: 1}, 0, {}, at, 0))
    return seg


def fold(archive: Archive, *segs: str) -> None:
    """The day is compacted with these segments too, and nobody reads them any more."""
    old = archive.days().get(DATE)
    segs = (*(old.folded if old else ()), *segs)
    archive.commit_day(Day(DATE, "c-1", len(segs), segs, time.time_ns() // 1_000_000))
    drop_old(archive, time.time_ns())


def test_an_ingest_goes_on_after_all_its_segments_were_compacted(tmp_path: Path) -> None:
    archive, sink = Archive(tmp_path), Sink(str(tmp_path), "run", 0, "{}")
    fold(archive, put(archive, 0), put(archive, 1))
    assert _squash(archive) == 1
    assert sink._number(archive) == 2
    fold(archive, put(archive, 2))
    assert _squash(archive) == 1  # what was kept goes when it is not the newest any more
    assert sink._number(archive) == 3


class Overtaken(Archive):
    """compact folds manifests away after their names were read and before they are."""

    def entry(self, number: int) -> Entry:
        if number == 0:
            _squash(Archive(self.root))
        return super().entry(number)


def test_who_reads_the_manifests_meanwhile_reads_those_that_are_left(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    fold(archive, put(archive, 0), put(archive, 1))
    assert [entry.number for entry in Overtaken(tmp_path).entries()] == [1]
    archive.manifest(1).write_text("damaged")
    with pytest.raises(ArchiveError, match=r"0000000001\.json: cannot be read"):
        archive.entries()


def test_a_compacted_folder_that_no_day_names_goes_once_its_readers_are_done(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    for date, seg in ((DATE, "c-1"), (DATE, "c-old"), ("2026-03-11", "c-killed")):
        archive.compacted(date, seg).mkdir(parents=True)
    archive.commit_day(Day(DATE, "c-1", 1, (), written_ms=5000))
    drop_old(archive, 4999)  # c-old may be read by who began before 5000; c-killed was never read
    assert left(archive) == ["c-1", "c-old"]
    drop_old(archive, 5000)
    assert left(archive) == ["c-1"]


def left(archive: Archive) -> list[str]:
    return sorted(path.name.removeprefix("seg=") for path in archive.root.glob("events/*/seg=*"))


def test_what_cannot_be_deleted_is_said(tmp_path: Path) -> None:
    folder = tmp_path / "seg=c-1"
    folder.write_text("not a folder: root could delete one whatever its rights are")
    with pytest.raises(ArchiveError, match=r"seg=c-1: cannot be deleted .*run this again"):
        removed(folder)
