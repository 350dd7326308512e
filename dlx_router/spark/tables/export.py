"""`pipeline export`: the events, each once, as a table that other engines read and own: Parquet, Delta or Iceberg.

One sorted file a day, written by DuckDB, then named by the log of the format. The bounds that a log keeps are those of
`event_ts` only where that can be chosen (Delta): a log should not tell what its files do not any more.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import to_arrow_schema

from dlx_router.spark import schemas
from dlx_router.spark.archive import delta
from dlx_router.spark.archive.files import ArchiveError
from dlx_router.spark.archive.layout import Archive
from dlx_router.spark.duckdb_session import in_a_line, text
from dlx_router.spark.tables.database import writable
from dlx_router.spark.tables.dictionary import quoted

FORMATS: Final = ("parquet", "delta", "iceberg")
EVER: Final = "~"  # behind every date, that of the year 9999 too
_TABLE: Final = "dlx_router.events"


@dataclass(frozen=True, slots=True)
class Days:
    """From day `since` on, up to the one before `until`; ISO dates."""

    since: str = ""
    until: str = EVER


@dataclass(frozen=True, slots=True)
class Exported:
    """What was copied, and what a reader has to name."""

    events: int
    days: int
    where: Path


def export(root: Path | str, out: Path, form: str, days: Days) -> Exported:
    """Copy the events of these days. ArchiveError where `out` has something already; what is half done is removed."""
    if form == "delta":
        delta.require(out)
    elif form == "iceberg" and (find_spec("pyiceberg") is None or find_spec("sqlalchemy") is None):
        raise ArchiveError(
            "a table of Iceberg needs the extra `spark-iceberg`: pip install '.[spark-iceberg]' in a clone"
        )
    archive, out = Archive(root), out.absolute()
    if out.resolve().is_relative_to(archive.root.resolve()):
        raise ArchiveError(f"{out}: lies in the archive, where no `erase` would look for it; name a folder outside")
    with _filled(out):
        files = list(_written(archive, out, days, is_whole=form == "iceberg"))
        if not files:
            raise ArchiveError(f"--archive {archive.root}: no event in these days; nothing was written")
        where = {"parquet": _plain, "delta": _delta, "iceberg": _iceberg}[form](out, files)
    return Exported(sum(pq.ParquetFile(file).metadata.num_rows for file in files), len(files), where)


@contextmanager
def _filled(out: Path) -> Iterator[None]:
    """A new folder, or an empty one; gone again where something fails."""
    claim = out / ".dlx-router-export"
    is_there = ArchiveError(f"{out}: is there already; name a new folder, or delete it")
    try:
        out.mkdir(parents=True, exist_ok=True)
        claim.mkdir()  # by one of two that began together
    except FileExistsError:
        raise is_there from None
    except OSError as error:
        raise ArchiveError(f"{out}: cannot be written ({error})") from None
    if [*out.iterdir()] != [claim]:  # the other has ended meanwhile
        claim.rmdir()
        raise is_there
    try:
        yield
        claim.rmdir()
    except BaseException as error:
        shutil.rmtree(out, ignore_errors=True)
        if isinstance(error, duckdb.Error | OSError):
            problem = in_a_line(error)
            raise ArchiveError(f"{out}: cannot be written ({problem}); nothing was left there") from None
        raise


def _written(archive: Archive, out: Path, days: Days, *, is_whole: bool) -> Iterator[Path]:
    """The files, a day each; `is_whole`: the day is a column too, not only in the path."""
    dates = sorted({part.date for part in archive.parts() if days.since <= part.date < days.until})
    left_out = {"seg"} if is_whole else {"seg", "event_date"}
    named = [name for name in schemas.ARCHIVE.names if name not in left_out]
    columns = ", ".join(map(quoted, named))
    with writable(archive.root) as db:
        for day in dates:
            file = out / f"event_date={day}" / "part-0.parquet"
            file.parent.mkdir()
            rows = f"SELECT {columns} FROM events WHERE event_date = DATE '{day}' ORDER BY failed_queue, event_ts"
            db.execute(f"COPY ({rows}) TO {text(file)} (FORMAT parquet, COMPRESSION zstd)")
            yield file


def _plain(out: Path, _files: list[Path]) -> Path:
    return out


def _delta(out: Path, files: list[Path]) -> Path:
    from deltalake import Schema  # noqa: PLC0415 - an extra
    from deltalake.transaction import create_table_with_add_actions  # noqa: PLC0415 - an extra

    actions = [delta.added(out, file, {"event_date": file.parent.name.partition("=")[2]}) for file in files]
    schema = Schema.from_arrow(_without("seg"))
    create_table_with_add_actions(str(out), schema, actions, partition_by=["event_date"], name=_TABLE)
    return out


def _iceberg(out: Path, files: list[Path]) -> Path:
    """The newest metadata, which is what an engine without a catalog reads; none is left behind."""
    from pyiceberg.catalog.sql import SqlCatalog  # noqa: PLC0415 - an extra

    catalog: Any = SqlCatalog("export", uri="sqlite:///:memory:", warehouse=f"file://{out}")
    catalog.create_namespace("dlx_router")
    table = catalog.create_table(_TABLE, schema=_without("seg"), location=f"file://{out}")
    table.add_files([f"file://{file}" for file in files])
    return Path(table.metadata_location.removeprefix("file://"))


def _without(name: str) -> pa.Schema:
    return pa.schema([field for field in to_arrow_schema(schemas.ARCHIVE, timezone="UTC") if field.name != name])
