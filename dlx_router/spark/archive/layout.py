"""What lies where in an archive, and which of it counts. No Spark in here.

    _manifest/0000000042.json  segment 42 is complete: its rows by day, and the positions in the streams behind it
    raw/event_date=D/seg=S/    its events, as they came; written elsewhere and moved here whole
    _bad/seg=S/                its lines that are no events
    _days/D.json               day D is compacted: its file, the segments of raw that are in it, and what of it is lost
    events/event_date=D/seg=C/ the events of day D, each once, sorted
    _state.json                manifests that were folded into one, and what retention took
    _copies/                   a second name of each of these JSON files

A file counts if a manifest or a day says so; the rest is what a killed process left, and the next one clears it away.
So that a note which was lost is never taken for one that was not written yet, each has a copy (a hard link): where only
that is left, every reader and writer refuses. Manifests are numbered without holes and made by link(2), so of two
writers of one number one fails. All paths are those of a file system that every machine of Spark mounts at the same
place.

What is no event's file has a name with _, which a VACUUM of Delta passes over.
"""

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from dlx_router.spark.archive.files import (
    ArchiveError,
    linked,
    loaded,
    locked,
    require_path,
    require_readable,
    require_writable,
    settle,
    written,
)

_DAYS: Final = "event_date="
_LEASES: Final = ("ingest", "compact")
_RENAMED: Final = ("bad", "days", "manifest", "state.json")  # what had no _ at first


@dataclass(frozen=True, slots=True)
class Entry:
    """A manifest: segment `seg` is complete. `rows`: events by day. `start`, `end`: positions by stream."""

    number: int
    seg: str
    rows: Mapping[str, int]
    bad: int
    start: Mapping[str, Any]
    end: Mapping[str, Any]
    written_ms: int
    lost: bool = False  # what was between the positions was gone, and that was allowed


@dataclass(frozen=True, slots=True)
class Loss:
    """So many `events` of a folder are lost, and `by` accepted that: they are of this time, and of these `offsets`.

    `offsets`: by stream the first, and the one behind the last; of a stream that is not named nobody knows them any
    more.
    """

    folder: str
    events: int
    offsets: Mapping[str, Sequence[int]]
    from_ms: int
    to_ms: int
    accepted_ms: int
    by: str


@dataclass(frozen=True, slots=True)
class Day:
    """A compacted day: its `rows` are in `seg` of events/; the raw segments `folded` are in them, but for `lost`."""

    date: str
    seg: str
    rows: int
    folded: tuple[str, ...]
    written_ms: int
    lost: tuple[Loss, ...] = ()


@dataclass(frozen=True, slots=True)
class State:
    """Of the whole archive. `squashed`: so many manifests are only counted here. `before`: earlier days are gone."""

    squashed: int = 0
    end: Mapping[str, Any] = field(default_factory=dict)
    events: int = 0
    bad: int = 0
    before: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """A folder whose files count: the events of one day in raw or compacted form, and how many they are."""

    folder: Path
    date: str
    seg: str
    rows: int
    is_compacted: bool
    without: frozenset[str] = frozenset()  # names of files that cannot be read, and that nobody is to read

    @property
    def files(self) -> list[Path]:
        """Its Parquet files."""
        return sorted(file for file in self.folder.glob("*.parquet") if file.name not in self.without)


class Archive:
    """An archive in a folder; it need not be there yet. ArchiveError where an address is given instead."""

    def __init__(self, root: Path | str) -> None:
        require_path(root)
        self.root = Path(root).absolute()

    def require_folder(self) -> None:
        """ArchiveError where there is none, or this user may not read it."""
        if not self.root.is_dir():
            raise ArchiveError(f"--archive {self.root}: no such folder; name the one that `pipeline ingest` writes")
        notes = [self._own(name) for name in _RENAMED]
        require_readable([self.root, *notes, *(self.root / name for name in ("_copies", "raw", "events"))])

    # -- where ------------------------------------------------------------------------------------------------------

    def raw(self, date: str, seg: str) -> Path:
        """Events of a segment."""
        return self.root / "raw" / f"{_DAYS}{date}" / f"seg={seg}"

    def compacted(self, date: str, seg: str) -> Path:
        """Events of a compacted day."""
        return self.root / "events" / f"{_DAYS}{date}" / f"seg={seg}"

    def bad(self, seg: str) -> Path:
        """Lines of a segment that are no events."""
        return self.bad_lines / f"seg={seg}"

    @property
    def bad_lines(self) -> Path:
        """Of all segments."""
        return self._own("bad")

    def _own(self, name: str) -> Path:
        """Where this is: under its old name in an archive that was not renamed yet, see `lease`."""
        new, old = self.root / f"_{name}", self.root / name
        is_old = old.is_file() if old.suffix else old.is_dir()
        return old if is_old and not new.exists() else new

    def manifest(self, number: int) -> Path:
        """The file of this manifest."""
        return self._own("manifest") / f"{number:010}.json"

    def day(self, date: str) -> Path:
        """The file that says how this day is compacted."""
        return self._own("days") / f"{date}.json"

    def _copy(self, path: Path) -> Path:
        """The second name of a file that counts."""
        return self.root / "_copies" / str(path.relative_to(self.root)).removeprefix("_")

    @property
    def work(self) -> Path:
        """What ingest is writing. Of no meaning to readers; they skip names that begin with _."""
        return self.root / "_ingest"

    @property
    def compacting(self) -> Path:
        """What compact is writing."""
        return self.root / "_compact"

    # -- what counts --------------------------------------------------------------------------------------------------

    def entries(self) -> list[Entry]:
        """The manifests from `state.squashed` on, in order. ArchiveError where one is missing or cannot be read."""
        known = self._known()  # before their names: what is committed meanwhile is not missed
        numbers = self._numbers()
        first = self.state().squashed  # read after the names: what is squashed meanwhile is left out
        try:
            entries = [self.entry(number) for number in numbers if number >= first]
        except ArchiveError:
            if self.state().squashed == first:
                raise
            return self.entries()  # compact folded some away since; that goes on for so many only
        for number, entry in enumerate(entries, first):
            if entry.number != number:
                raise self._missing(self.manifest(number))
        if known >= first + len(entries):
            raise self._missing(self.manifest(first + len(entries)))
        return entries

    def entry(self, number: int) -> Entry:
        """One manifest."""
        return Entry(**loaded(self.manifest(number)))

    def _numbers(self) -> list[int]:
        return sorted(_number(path.stem) for path in self._own("manifest").glob("[0-9]*.json"))

    def _known(self) -> int:
        """The newest segment that was committed: it has a copy, or is in a day, or a later one has files."""
        copies = (_number(path.stem) for path in (self.root / "_copies/manifest").glob("[0-9]*.json"))
        folded = (_number(seg) for day in self.days().values() for seg in day.folded)
        begun = (_number(path.name.removeprefix("seg=")) - 1 for path in self._segments())
        return max([-1, *copies, *folded, *begun])

    def _segments(self) -> Iterator[Path]:
        yield from self.root.glob("raw/*/seg=*")
        yield from self.bad_lines.glob("seg=*")

    def _missing(self, path: Path) -> ArchiveError:
        copy = self._copy(path)
        where = f"it from its copy, {copy}" if copy.exists() else "it from a backup"
        return ArchiveError(f"{path} is missing, and what it told of is not deleted: restore {where}")

    def days(self) -> dict[str, Day]:
        """The compacted days, by date. ArchiveError where one is missing."""
        copies = sorted(path.stem for path in (self.root / "_copies/days").glob("*.json"))
        documents = [loaded(path) for path in sorted(self._own("days").glob("*.json"))]
        days = {document["date"]: _day(document) for document in documents}
        before = self.state().before  # read after the days: those that are expired meanwhile are not missed
        for date in copies:
            if date not in days and date >= before:
                raise self._missing(self.day(date))
        return days

    def state(self) -> State:
        """The archive's state; that of an empty one where there is none."""
        path = self._own("state.json")
        if path.exists():
            return State(**loaded(path))
        if self._copy(path).exists():
            raise self._missing(path)
        return State()

    def end(self) -> dict[str, Any]:
        """Where the next segment begins in each stream."""
        entries = self.entries()
        return dict(self.state().end) | {stream: at for entry in entries for stream, at in entry.end.items()}

    @property
    def is_empty(self) -> bool:
        """Nothing was ever committed here."""
        return not self._numbers() and not self._own("state.json").exists()

    def next_number(self) -> int:
        """Of the next manifest."""
        return max([self.state().squashed, *(number + 1 for number in self._numbers())])

    def parts(self) -> list[Part]:
        """Every folder whose files count, each event of raw once: as it came, or compacted."""
        days, before = self.days(), self.state().before
        parts = [
            Part(self.compacted(day.date, day.seg), day.date, day.seg, day.rows, is_compacted=True)
            for day in days.values()
            if day.rows and day.date >= before
        ]
        for entry in self.entries():
            for date, rows in entry.rows.items():
                if date >= before and not (date in days and entry.seg in days[date].folded):
                    parts.append(Part(self.raw(date, entry.seg), date, entry.seg, rows, is_compacted=False))
        return sorted(parts, key=lambda part: (part.date, not part.is_compacted, part.seg))

    def files(self) -> list[Path]:
        """The Parquet files that count, for engines other than Spark."""
        return [file for part in self.parts() for file in part.files]

    def bad_folders(self) -> list[Path]:
        """The folders of lines that are no events, of segments that count."""
        known, squashed = {entry.seg for entry in self.entries()}, self.state().squashed
        folders = [(path, path.name.removeprefix("seg=")) for path in sorted(self.bad_lines.glob("seg=*"))]
        return [path for path, seg in folders if seg in known or _number(seg) < squashed]

    def bad_files(self) -> list[Path]:
        """The files of lines that are no events, whether they count or not."""
        return sorted(self.bad_lines.glob("seg=*/*.parquet"))

    # -- writing ------------------------------------------------------------------------------------------------------

    def commit(self, entry: Entry) -> None:
        """From now on the segment counts. ArchiveError where somebody else has taken its number."""
        path = self.manifest(entry.number)
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = written(path.parent, asdict(entry))
        try:
            os.link(temporary, path)
        except FileExistsError:
            raise ArchiveError(
                f"{self.root}: another ingest has written segment {entry.number}; let only one run"
            ) from None
        finally:
            temporary.unlink()
        settle(path.parent)
        linked(path, self._copy(path))

    def commit_day(self, day: Day) -> None:
        """From now on the day counts as it is compacted."""
        document = asdict(day)
        if not day.lost:
            del document["lost"]  # which earlier versions cannot read
        self._replace(self.day(day.date), document)

    def commit_state(self, state: State) -> None:
        """From now on this is the state."""
        self._replace(self._own("state.json"), asdict(state))

    def _replace(self, path: Path, document: dict[str, Any]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        written(path.parent, document).replace(path)
        settle(path.parent)
        linked(path, self._copy(path))

    def forget(self, path: Path) -> None:
        """A manifest or a day is not needed any more: the state says what is known of it."""
        path.unlink()
        self._copy(path).unlink(missing_ok=True)

    @contextmanager
    def lease(self, what: str) -> Iterator[None]:
        """Held while one process does this (`ingest`, `compact`).

        ArchiveError at once where another one does, or where nothing can be written.
        """
        require_writable(self.root, what)
        self.root.mkdir(parents=True, exist_ok=True)
        with (self.root / f"_{what}.lock").open("a+") as file:
            locked(file, f"{self.root}: {what}")
            if any(self._own(name).name == name for name in _RENAMED):
                self._rename(next(other for other in _LEASES if other != what))
            else:
                self._warn_off()
            self._copy_all()
            yield

    def _rename(self, other: str) -> None:
        """The names of now, if nobody else writes; else the next one does it."""
        with (self.root / f"_{other}.lock").open("a+") as file, suppress(ArchiveError):
            locked(file, other)
            for name in _RENAMED:
                if (old := self._own(name)).name == name:
                    old.rename(self.root / f"_{name}")
            self._warn_off()
            settle(self.root)

    def _warn_off(self) -> None:
        """An empty folder `state.json`: earlier versions, which look for that file, cannot read it and give up.

        They would take this archive for an empty one, and delete what no manifest that they know of names.
        """
        with suppress(FileExistsError):  # a file of a backup does as well
            (self.root / "state.json").mkdir()

    def _copy_all(self) -> None:
        """What a killed process, an earlier version or a restored backup left without a copy, or with an old one."""
        paths = [*self._own("manifest").glob("[0-9]*.json"), *self._own("days").glob("*.json"), self._own("state.json")]
        for path in paths:
            if path.exists() and not (self._copy(path).exists() and path.samefile(self._copy(path))):
                linked(path, self._copy(path))

    def clear(self) -> list[Path]:
        """Remove the segment that no manifest tells of: an ingest was killed before it could. Only under its lease.

        ArchiveError, and nothing is removed, where it may be that the manifest was lost, see `entries`.
        """
        known = {entry.seg for entry in self.entries()}
        folded = {(day.date, seg) for day in self.days().values() for seg in day.folded}
        gone = []
        for path in [*self._segments()]:
            seg, date = path.name.removeprefix("seg="), path.parent.name.removeprefix(_DAYS)
            if seg not in known and (date, seg) not in folded and _number(seg) >= self.state().squashed:
                shutil.rmtree(path)
                gone.append(path)
        return gone

    def unnamed(self) -> list[tuple[Path, int]]:
        """Compacted folders that no day names any more or yet, and since when (ms); 0: nobody can be reading it."""
        days = self.days()
        folders = [(path, days.get(path.parent.name.removeprefix(_DAYS))) for path in self.root.glob("events/*/seg=*")]
        others = [(path, day) for path, day in folders if day is None or path.name != f"seg={day.seg}"]
        return [(path, 0 if day is None else day.written_ms) for path, day in others]


def _day(document: Mapping[str, Any]) -> Day:
    lost = tuple(Loss(**loss) for loss in document.get("lost", ()))
    return Day(**{**document, "folded": tuple(document["folded"]), "lost": lost})


def _number(name: str) -> int:
    """Of a segment or a manifest."""
    return int(name.partition("-")[0])
