"""Days that are over: one file, each event once; what is too old or unwanted is gone from the disk."""

import shutil
import time
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from dlx_router.journal.audit import COMMENT, audit
from dlx_router.spark.archive import reading
from dlx_router.spark.archive.compact import Compacted, Rules, compact
from dlx_router.spark.archive.erase import Erased, Erasure, erase
from dlx_router.spark.archive.files import ArchiveError
from dlx_router.spark.archive.folding import by_spark
from dlx_router.spark.archive.layout import Archive, Entry, Part
from dlx_router.spark.archive.lookback import near
from dlx_router.spark.archive.sink import segment
from dlx_router.spark.archive.verify import verify
from dlx_router.spark.tables.database import fold
from tests.core.core_samples import letter
from tests.journal.journal_samples import line, props
from tests.spark.rows import message, written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY = datetime(2026, 3, 10, tzinfo=UTC)
LATER = DAY + timedelta(days=2)


def ms(hours: float) -> int:
    return int((DAY + timedelta(hours=hours)).timestamp() * 1000)


def event(name: str, hours: float, user: str = "anna") -> bytes:
    """An event of a letter, so many hours after DAY began."""
    dead = letter(id=name * 32)
    return line(dead, now_ms=ms(hours), props=props(user_id=user.encode()))


class Book:
    """An archive that segments are put into as ingest puts them, without a broker."""

    def __init__(self, spark: "SparkSession", root: Path, *, is_by_spark: bool = False) -> None:
        self.spark, self.archive, self.is_by_spark = spark, Archive(root), is_by_spark

    def put(self, *lines: bytes) -> None:
        number = self.archive.next_number()
        seg = f"{number:010}-test"
        counts = segment(self.archive, seg, written([message(number, b"".join(lines))], self.archive.work / "files"))
        read_ms = time.time_ns() // 1_000_000
        ends = {"s": {"next": number + 1, "seen": number, "mark": "", "lost": 0, "complete_ms": read_ms}}
        starts = {"s": {"next": number, "seen": -1, "mark": "", "lost": 0}}
        self.archive.commit(Entry(number, seg, counts, 0, starts, ends, 0))

    def letters(self) -> list[str]:
        """The letters of all events, each as its one character, sorted."""
        rows = reading.read(self.spark, self.archive.root, repeated=True).collect()
        return sorted(row["id"][0] for row in rows)

    def read(self, since: date | None = None) -> list[str]:
        """The same as analyses see them."""
        return sorted(row["id"][0] for row in reading.read(self.spark, self.archive.root, since=since).collect())

    def compact(self, now: datetime = LATER, **rules: float) -> Compacted:
        folded = by_spark(self.spark, self.archive.root) if self.is_by_spark else fold
        return compact(folded, self.archive.root, Rules(**rules), now=now)  # type: ignore[arg-type]  # ints among them


@pytest.fixture(params=["by Spark", "by DuckDB"])
def book(spark: "SparkSession", tmp_path: Path, request: pytest.FixtureRequest) -> Book:
    return Book(spark, tmp_path / "archive", is_by_spark=request.param == "by Spark")


def test_a_day_that_is_over_is_one_file_with_each_event_once(book: Book) -> None:
    book.put(event("a", 1), event("b", 2), event("c", 30))
    book.put(event("a", 3), event("d", 23.9))
    book.put(event("d", 24.1))  # decided again after a crash, and after midnight
    assert book.letters() == ["a", "a", "b", "c", "d", "d"]
    assert book.compact() == Compacted(days=2, events=4, repeated=2, expired=0, segments=0)
    assert book.letters() == ["a", "b", "c", "d"]
    assert verify(book.archive.root, deep=True).findings == ()
    assert book.compact().days == 0


def test_a_late_event_that_a_later_compacted_day_has_already_stands_once(book: Book) -> None:
    book.put(event("d", 24.1))
    book.compact()
    book.put(event("d", 23.9), event("a", 1))
    assert book.compact() == Compacted(days=1, events=1, repeated=1, expired=0, segments=0)
    assert book.letters() == ["a", "d"]
    assert verify(book.archive.root, deep=True).findings == ()


@pytest.mark.slow
def test_what_came_twice_is_read_once_compacted_or_not(book: Book) -> None:
    book.put(event("a", 1), event("b", 2))
    book.put(event("a", 1))
    assert (book.read(), book.letters()) == (["a", "b"], ["a", "a", "b"])
    book.compact(DAY + timedelta(hours=25))
    book.put(event("a", 3), event("c", 25))
    book.put(event("b", 26))
    assert book.letters() == ["a", "a", "b", "b", "c"]
    assert book.read() == ["a", "b", "c"]
    assert book.read(date(2026, 3, 11)) == ["c"]


def test_days_beyond_the_first_date_are_kept(book: Book) -> None:
    book.put(event("a", 1))
    assert book.compact(keep=1_000_000_000_000).expired == 0
    assert book.letters() == ["a"]


@pytest.mark.slow
def test_raw_goes_when_nobody_can_be_reading_it_any_more(book: Book) -> None:
    book.put(event("a", 1))
    book.compact()
    assert [*book.archive.root.glob("raw/*/*")]
    assert book.compact(datetime.now(UTC) + timedelta(days=2)).segments == 0
    assert not [*book.archive.root.glob("raw/*/*")]
    book.put(event("b", 2))
    assert (book.letters(), book.archive.end()["s"]["next"]) == (["a", "b"], 2)
    assert book.compact().segments == 1
    assert [path.stem for path in book.archive.root.glob("_manifest/*.json")] == ["0000000001"]  # the newest stays
    assert book.letters() == ["a", "b"]
    report = verify(book.archive.root, deep=True)
    assert (report.segments, report.events, report.findings) == (2, 2, ())


def test_today_is_left_alone(book: Book) -> None:
    book.put(event("a", 1))
    assert book.compact(DAY + timedelta(hours=5)).days == 0


def test_a_day_that_lies_far_ahead_keeps_no_manifest_and_is_deleted_in_its_time(book: Book) -> None:
    """Of a clock that is wrong, or of an archive of before such times were refused."""
    now = datetime.now(UTC)
    book.put(event("a", 1), event("e", (now - DAY) / timedelta(hours=1) + 24 * 300))
    book.put(event("b", 2))
    book.put(event("c", 3))
    assert book.compact().days == 2
    assert book.compact(keep_raw=-1e6).segments == 2  # that which the day ahead is in, too
    assert book.letters() == ["a", "b", "c", "e"]
    assert book.compact(keep=9_000).expired == 0
    assert book.compact(now + timedelta(days=2), keep=1).expired == 2
    assert book.letters() == []
    assert b"eeeeeeee" not in b"".join(file.read_bytes() for file in book.archive.root.rglob("*.parquet"))
    assert verify(book.archive.root).findings == ()


def test_an_old_day_that_came_now_is_looked_for_near_itself_only() -> None:
    def part(day: str, *, is_compacted: bool) -> Part:
        return Part(Path(day), day, "s", 1, is_compacted=is_compacted)

    days = ["2020-01-05", "2026-03-02", "2026-03-03", "2026-03-10", "2026-03-17", "2026-03-18"]
    every = [part(day, is_compacted=True) for day in days]
    fresh = [part("2020-01-01", is_compacted=False), part("2026-03-10", is_compacted=False)]
    assert [candidate.date for candidate in near(fresh, every)] == [
        "2020-01-05",
        "2026-03-03",
        "2026-03-10",
        "2026-03-17",
    ]
    assert near([part("9999-12-31", is_compacted=False), part("0001-01-01", is_compacted=False)], every) == []


def test_what_is_older_than_its_time_is_deleted_and_stays_away(book: Book) -> None:
    book.put(event("a", 1), event("b", 30))
    book.put(event("c", 50))
    assert book.compact(keep=1).expired == 1
    assert book.letters() == ["b", "c"]
    assert sorted(path.name for path in book.archive.root.glob("*/event_date=2026-03-10")) == []
    assert verify(book.archive.root).findings == ()


@pytest.mark.slow
def test_every_event_of_a_persons_letters_is_erased_from_the_disk(book: Book) -> None:
    book.put(event("a", 1), event("b", 2, user="bert"))
    book.compact()
    book.put(event("a", 3, user="somebody"), event("b", 50, user="bert"), event("a", 51, user="x"))
    (whole,) = (part.folder for part in book.archive.parts() if part.is_compacted)
    for killed in (whole.with_name("seg=c-killed"), book.archive.compacting / "c-killed"):  # before or after its note
        shutil.copytree(whole, killed)
    assert erase(book.spark, book.archive.root, "props.user_id = 'anna'") == Erased(1, 3, 0)
    assert book.letters() == ["b"]  # what came again stands in the day before, as `compact` would have left it
    left = b"".join(file.read_bytes() for file in book.archive.root.rglob("*.parquet"))
    assert b"aaaaaaaa" not in left
    assert b"bbbbbbbb" in left
    assert verify(book.archive.root, deep=True).findings == ()


@pytest.mark.slow
def test_what_was_noted_on_a_letter_is_erased_with_it_and_other_audits_stay(book: Book) -> None:
    def noted(letter: str, action: str = COMMENT) -> bytes:
        details = {"letter": letter, "queue": "work", "text": f"about {letter[:8]}"}
        return audit("r", "/", actor="ann", action=action, details=details, ts_ms=ms(2))

    book.put(event("a", 1), event("b", 1), noted("a" * 32), noted("b" * 32), noted("a" * 32, "other.thing"))
    assert erase(book.spark, book.archive.root, Erasure(letters=("a" * 32,))) == Erased(1, 2, 0)
    rows = reading.read(book.spark, book.archive.root, repeated=True).where("kind = 'audit'").collect()
    assert sorted((row["action"], row["details"]["letter"][0]) for row in rows) == [
        (COMMENT, "b"),
        ("other.thing", "a"),
    ]


def test_a_condition_that_cannot_be_read_changes_nothing(book: Book) -> None:
    book.put(event("a", 1))
    with pytest.raises(ArchiveError, match="--where 'nobody = 1'"):
        erase(book.spark, book.archive.root, "nobody = 1")
    assert book.letters() == ["a"]


def test_a_day_whose_file_is_lost_is_not_compacted_without_it(spark: "SparkSession", tmp_path: Path) -> None:
    book = Book(spark, tmp_path / "archive")
    book.put(event("a", 1))
    book.put(event("b", 2))
    for file in book.archive.parts()[0].files:
        file.unlink()
    (left,) = book.compact().left
    assert "0 of 1 events can be read; restore" in left
    assert not book.archive.days()


def test_a_day_that_lost_one_of_several_files_is_neither_compacted_nor_erased(
    spark: "SparkSession", tmp_path: Path
) -> None:
    """What came of it would look whole, and the lost events like ones that had come twice."""
    book = Book(spark, tmp_path / "archive")
    book.put(event("a", 1), event("b", 2), event("c", 3))
    (file,) = book.archive.parts()[0].files
    rows = pq.read_table(file)
    pq.write_table(rows.slice(0, 2), file)
    pq.write_table(rows.slice(2), file.with_name("part-1.parquet"))
    file.with_name("part-1.parquet").unlink()
    (left,) = book.compact().left
    assert "2 of 3 events can be read; restore" in left
    with pytest.raises(ArchiveError, match="2 rows, 3 were written; restore"):
        erase(spark, book.archive.root, Erasure(letters=tuple(name * 32 for name in "abc")))
    assert (book.archive.days(), len(verify(book.archive.root).findings)) == ({}, 1)
