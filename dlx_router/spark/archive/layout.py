"""What lies where in an archive, and which of it counts. No Spark in here.

    manifest/0000000042.json   segment 42 is complete: its rows by day, and the positions in the streams behind it
    raw/event_date=D/seg=S/    its events, as they came; written elsewhere and moved here whole
    bad/seg=S/                 its lines that are no events
    days/D.json                day D is compacted: its file, and the segments of raw that are in it
    events/event_date=D/seg=C/ the events of day D, each once, sorted
    state.json                 manifests that were folded into one, and what retention took

A file counts if a manifest or a day says so; the rest is what a killed process left, and the next one clears it away.
Manifests are numbered without holes and made by link(2), so of two writers of one number one fails. All paths are those
of a file system that every machine of Spark mounts at the same place.
"""

import fcntl
import json
import os
import secrets
import shutil
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any, Final

FORMAT: Final = 1
_DAYS: Final = "event_date="


class ArchiveError(Exception):
    """The archive cannot be used so; says where, why and what now."""


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
class Day:
    """A compacted day: its `rows` are in `seg` of events/, and the raw segments `folded` are in them."""

    date: str
    seg: str
    rows: int
    folded: tuple[str, ...]
    written_ms: int


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


class Archive:
    """An archive in a folder; it need not be there yet."""

    def __init__(self, root: Path | str) -> None:
        self.root = Path(root).absolute()

    # -- where ------------------------------------------------------------------------------------------------------

    def raw(self, date: str, seg: str) -> Path:
        """Events of a segment."""
        return self.root / "raw" / f"{_DAYS}{date}" / f"seg={seg}"

    def compacted(self, date: str, seg: str) -> Path:
        """Events of a compacted day."""
        return self.root / "events" / f"{_DAYS}{date}" / f"seg={seg}"

    def bad(self, seg: str) -> Path:
        """Lines of a segment that are no events."""
        return self.root / "bad" / f"seg={seg}"

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
        numbers = self._numbers()
        first = self.state().squashed  # read after the names: what is squashed meanwhile is left out
        try:
            found = [self.entry(number) for number in numbers if number >= first]
        except ArchiveError:
            if self.state().squashed == first:
                raise
            return self.entries()  # compact folded some away since; that goes on for so many only
        for number, entry in enumerate(found, first):
            if entry.number != number:
                raise ArchiveError(f"{self.root}/manifest: {number:010}.json is missing; restore it from a backup")
        return found

    def entry(self, number: int) -> Entry:
        """One manifest."""
        return Entry(**_loaded(self.root / "manifest" / f"{number:010}.json"))

    def _numbers(self) -> list[int]:
        return sorted(int(path.stem) for path in (self.root / "manifest").glob("[0-9]*.json"))

    def days(self) -> dict[str, Day]:
        """The compacted days, by date."""
        found = [_loaded(path) for path in sorted((self.root / "days").glob("*.json"))]
        return {one["date"]: Day(**{**one, "folded": tuple(one["folded"])}) for one in found}

    def state(self) -> State:
        """The archive's state; that of an empty one where there is none."""
        path = self.root / "state.json"
        return State(**_loaded(path)) if path.exists() else State()

    def end(self) -> dict[str, Any]:
        """Where the next segment begins in each stream."""
        entries = self.entries()
        return dict(self.state().end) | {stream: at for entry in entries for stream, at in entry.end.items()}

    def next_number(self) -> int:
        """Of the next manifest."""
        return max([self.state().squashed, *(number + 1 for number in self._numbers())])

    def parts(self) -> list[Part]:
        """Every folder whose files count, each event of raw once: as it came, or compacted."""
        days, before = self.days(), self.state().before
        found = [
            Part(self.compacted(day.date, day.seg), day.date, day.seg, day.rows, is_compacted=True)
            for day in days.values()
            if day.rows and day.date >= before
        ]
        for entry in self.entries():
            for date, rows in entry.rows.items():
                if date >= before and not (date in days and entry.seg in days[date].folded):
                    found.append(Part(self.raw(date, entry.seg), date, entry.seg, rows, is_compacted=False))
        return sorted(found, key=lambda part: (part.date, not part.is_compacted, part.seg))

    def files(self) -> list[Path]:
        """The Parquet files that count, for engines other than Spark."""
        return [file for part in self.parts() for file in sorted(part.folder.glob("*.parquet"))]

    def bad_files(self) -> list[Path]:
        """The files of lines that are no events."""
        return sorted((self.root / "bad").glob("seg=*/*.parquet"))

    # -- writing ------------------------------------------------------------------------------------------------------

    def commit(self, entry: Entry) -> None:
        """From now on the segment counts. ArchiveError where somebody else has taken its number."""
        folder = self.root / "manifest"
        folder.mkdir(parents=True, exist_ok=True)
        written = _written(folder, asdict(entry))
        try:
            os.link(written, folder / f"{entry.number:010}.json")
        except FileExistsError:
            raise ArchiveError(
                f"{self.root}: another ingest has written segment {entry.number}; let only one run"
            ) from None
        finally:
            written.unlink()
        _settle(folder)

    def commit_day(self, day: Day) -> None:
        """From now on the day counts as it is compacted."""
        self._replace(self.root / "days" / f"{day.date}.json", asdict(day))

    def commit_state(self, state: State) -> None:
        """From now on this is the state."""
        self._replace(self.root / "state.json", asdict(state))

    def _replace(self, path: Path, told: dict[str, Any]) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        _written(path.parent, told).replace(path)
        _settle(path.parent)

    @contextmanager
    def lease(self, what: str) -> Iterator[None]:
        """Held while one process does this (`ingest`, `compact`). ArchiveError at once where another one does."""
        self.root.mkdir(parents=True, exist_ok=True)
        with (self.root / f"_{what}.lock").open("a+") as file:
            _lock(file, f"{self.root}: {what}")
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}")
            file.flush()
            yield

    def clear(self) -> list[Path]:
        """Remove segments that no manifest tells of: an ingest was killed before it could. Only under its lease."""
        known = {entry.seg for entry in self.entries()}
        folded = {(day.date, seg) for day in self.days().values() for seg in day.folded}
        gone = []
        for path in [*self.root.glob("raw/*/seg=*"), *self.root.glob("bad/seg=*")]:
            seg, date = path.name.removeprefix("seg="), path.parent.name.removeprefix(_DAYS)
            number = int(seg.partition("-")[0])
            if seg not in known and (date, seg) not in folded and number >= self.state().squashed:
                shutil.rmtree(path)
                gone.append(path)
        return gone

    def unnamed(self) -> list[tuple[Path, int]]:
        """Compacted folders that no day names any more or yet, and since when (ms); 0: nobody can be reading it."""
        days = self.days()
        found = [(path, days.get(path.parent.name.removeprefix(_DAYS))) for path in self.root.glob("events/*/seg=*")]
        others = [(path, day) for path, day in found if day is None or path.name != f"seg={day.seg}"]
        return [(path, 0 if day is None else day.written_ms) for path, day in others]


def token() -> str:
    """A name that no other process has."""
    return secrets.token_hex(4)


def removed(folder: Path) -> None:
    """The folder is gone, if it was there. ArchiveError where it cannot be deleted."""
    try:
        if folder.exists():
            shutil.rmtree(folder)
    except OSError as error:
        said = f"cannot be deleted ({error}), so events that should be gone are still on the disk"
        raise ArchiveError(f"{folder}: {said}; make it deletable and run this again") from None


def moved(source: Path, target: Path) -> None:
    """The folder is at its place, whole, and stays there if the power goes."""
    for file in source.iterdir():
        _settle(file)
    target.parent.mkdir(parents=True, exist_ok=True)
    source.rename(target)
    _settle(target.parent)


def _loaded(path: Path) -> dict[str, Any]:
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
        found = told.pop("format")
    except (OSError, ValueError, LookupError, AttributeError) as error:
        raise ArchiveError(f"{path}: cannot be read ({error}); restore it from a backup") from None
    if found != FORMAT:
        raise ArchiveError(f"{path}: format {found}; this version of dlx-router knows {FORMAT}")
    return dict(told)


def _written(folder: Path, told: Mapping[str, Any]) -> Path:
    path = folder / f".{token()}.tmp"
    with path.open("w", encoding="utf-8") as file:
        json.dump({"format": FORMAT, **told}, file)
        file.flush()
        os.fsync(file.fileno())
    return path


def _settle(path: Path) -> None:
    """What is in this file or folder is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        with suppress(OSError):  # some network file systems sync no folders
            os.fsync(handle)
    finally:
        os.close(handle)


def _lock(file: IO[str], what: str) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        raise ArchiveError(f"{what} is already running: {file.read() or 'another process'}") from None
