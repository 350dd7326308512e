"""What a part of the archive lacks of the events that its manifest counts. Reads files only; needs no Spark."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from dlx_router.spark.archive.files import ArchiveError
from dlx_router.spark.archive.layout import Archive, Loss, Part
from dlx_router.spark.archive.verify import counted
from dlx_router.spark.duckdb_session import connected, database_error, pattern, text

NOW: Final = "restore it from a backup, or `dlx-router pipeline repair` (docs/pipeline.md, Lost files)"
_MEMORY: Final = "1GB"
_WHOLE: Final = "SELECT bit_xor(hash(event)) FROM read_parquet({file}, hive_partitioning = false) AS event"


@dataclass(frozen=True, slots=True)
class Lacking:
    """A part that is not whole: what can be read of it, how many events that is, and what is wrong, in a sentence."""

    part: Part
    readable: Part
    events: int
    problem: str

    @property
    def lost(self) -> int:
        """Events that are missing; below 0: there are more than were written."""
        return self.part.rows - self.events


def require_whole(parts: Iterable[Part]) -> None:
    """ArchiveError where a file is lost: what is written without its events would look whole."""
    if problems := uncounted(parts):
        raise ArchiveError(f"{'; '.join(problems)}; {NOW}")


def uncounted(parts: Iterable[Part]) -> list[str]:
    """What is wrong with the number of events of these parts: of footers only, so it costs little."""
    return [problem for part in parts for problem in counted(part)]


def lacking(parts: Iterable[Part]) -> list[Lacking]:
    """Those that are not whole. Each value is read, so that a file is noticed whose footer alone can be."""
    return [state for part in parts if (state := _examined(part)) is not None]


def readable(parts: Iterable[Part]) -> list[Part]:
    """The same parts without what cannot be read. What is lost of them is lost: only for where repetitions stand."""
    by_folder = {state.part.folder: state.readable for state in lacking(parts)}
    return [part for part in (by_folder.get(part.folder, part) for part in parts) if part.files]


def described(loss: Loss) -> str:
    """A loss that was accepted, in a sentence."""
    spans = [f"offsets {first} to {end - 1} of {stream!r}" for stream, (first, end) in loss.offsets.items()]
    among = ", ".join(spans) or "offsets not known any more"
    when = datetime.fromtimestamp(loss.accepted_ms / 1000, UTC)
    return f"{loss.folder}: {loss.events} events are lost, of {among}; accepted {when:%Y-%m-%dT%H:%MZ} by {loss.by}"


def accepted(archive: Archive, since: str = "") -> list[str]:
    """Each loss that was accepted, of the days from `since` on."""
    return [described(loss) for day in archive.days().values() if day.date >= since for loss in day.lost]


def _examined(part: Part) -> Lacking | None:
    damaged = {file.name: why for file in part.files if (why := _damage(file))}
    rest = replace(part, without=part.without | damaged.keys())
    events = sum(pq.ParquetFile(file).metadata.num_rows for file in rest.files)
    if events == part.rows and not damaged:
        return None
    problem = "; ".join([f"{events} of {part.rows} events can be read", *damaged.values()])
    return Lacking(part, rest, events, f"{part.folder}: {problem}")


def _damage(file: Path) -> str:
    """Why a file cannot be read to its end; "" where it can, by both that read it here."""
    try:
        pq.ParquetFile(file)
        with connected(memory=_MEMORY) as database:
            database.execute(_WHOLE.format(file=text(pattern(file)))).fetchall()
    except (OSError, pa.ArrowException, database_error()) as error:
        return f"{file.name} is damaged: {str(error).splitlines()[0]}"
    return ""
