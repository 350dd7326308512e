"""The archive as a Delta table too: its log names exactly the files that count, so every engine that reads Delta can.

Written by delta-rs (extra `spark-delta`), because pip's Spark has no Delta. The manifests stay the truth: the table is
brought up to them, whatever was left out before. Once there is a table, every ingest, compact and erase does so: a
VACUUM deletes what the log does not name.
"""

import json
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.pandas.types import to_arrow_schema

from dlx_router.spark import schemas
from dlx_router.spark.archive.files import ArchiveError, awaited
from dlx_router.spark.archive.layout import Archive, Part

_KEYS: Final = ["event_date", "seg"]


def require(root: Path) -> None:
    """ArchiveError where delta-rs is not installed, or cannot make a table of this folder."""
    if find_spec("deltalake") is None:
        raise ArchiveError("a Delta table needs the extra `spark-delta`: pip install '.[spark-delta]' in a clone")
    folder = str(root.resolve())
    if unquote(folder) != folder:  # it would write one folder and read another
        why = "delta-rs reads % and two digits in a path as one character"
        raise ArchiveError(f"{folder}: {why}; a Delta table needs a folder of another name")


def is_wanted(archive: Archive) -> bool:
    """Whether the archive is a Delta table already. ArchiveError where it is, and delta-rs cannot write it."""
    if not (archive.root / "_delta_log").exists():
        return False
    require(archive.root)
    return True


def mirror(archive: Archive, *, by_file: bool = False) -> tuple[int, int]:
    """Make the table name the files that count now, with all columns; how many files came and went.

    `by_file`: look into each folder, for files that were lost and read again under other names. ArchiveError where the
    log cannot be written.
    """
    from deltalake.exceptions import DeltaError  # noqa: PLC0415 - an extra

    require(archive.root)
    try:
        with awaited(archive.root / "_delta.lock"):  # ingest and compact may both come here: one looks after the other
            return _mirrored(archive, by_file=by_file)
    except DeltaError as error:
        anew = "move _delta_log away and make the table anew by `ingest --table delta`"
        now = f"the archive is whole; run this again, or {anew}"
        raise ArchiveError(f"{archive.root}: its Delta table: {str(error).splitlines()[0]}; {now}") from None


def _mirrored(archive: Archive, *, by_file: bool) -> tuple[int, int]:
    from deltalake import DeltaTable  # noqa: PLC0415 - an extra
    from deltalake.transaction import RemoveAction, create_table_with_add_actions  # noqa: PLC0415 - an extra

    wanted = {str(part.folder.relative_to(archive.root)): part for part in archive.parts()}
    if not DeltaTable.is_deltatable(str(archive.root)):
        added = _added(archive, wanted.values())
        create_table_with_add_actions(str(archive.root), _schema(), added, partition_by=_KEYS, name="dlx-router events")
        return len(added), 0
    table = DeltaTable(archive.root)
    _widen(table)
    gone, folders = _stale(archive, wanted, _present(table), by_file=by_file)
    now = time.time_ns() // 1_000_000
    removed: list[Any] = [RemoveAction(path, True, now) for path in gone]  # noqa: FBT003 - data changes
    new = _added(archive, [part for folder, part in wanted.items() if folder not in folders])
    if new or removed:
        table.create_write_transaction([*new, *removed], "append", _schema(), partition_by=_KEYS)
    return len(new), len(removed)


def _present(table: Any) -> set[str]:  # noqa: ANN401 - an extra's type
    """Paths of the files that the log names, below the table's folder; its URIs are of the folder behind a link."""
    return {str(path) for path in pa.table(table.get_add_actions())["path"].to_pylist()}


def _stale(
    archive: Archive, wanted: Mapping[str, Part], present: set[str], *, by_file: bool
) -> tuple[list[str], set[str]]:
    """Paths that the log is not to name any more, and the folders of which it names all that it should."""
    known = {path: str(Path(path).parent) for path in present}
    folders = {*known.values()}
    if by_file:
        known = {path: folder if (archive.root / path).exists() else "" for path, folder in known.items()}
        folders = {folder for folder in folders if folder not in wanted or _names_all(archive, wanted[folder], present)}
    return [path for path in sorted(present) if known[path] not in wanted], folders


def _names_all(archive: Archive, part: Part, present: set[str]) -> bool:
    return all(str(file.relative_to(archive.root)) in present for file in part.files)


def _widen(table: Any) -> None:  # noqa: ANN401 - an extra's type
    """The columns that a newer version has and the table lacks: to write a transaction of another schema adds none."""
    have = {field.name for field in table.schema().fields}
    if new := [field for field in _schema().fields if field.name not in have]:
        table.alter.add_columns(new)


def _schema() -> Any:  # noqa: ANN401 - an extra's type
    from deltalake import Schema  # noqa: PLC0415 - an extra

    return Schema.from_arrow(to_arrow_schema(schemas.ARCHIVE, timezone="UTC"))


def _added(archive: Archive, parts: Iterable[Part]) -> list[Any]:
    return [
        added(archive.root, file, {"event_date": part.date, "seg": part.seg})
        for part in sorted(parts, key=lambda part: part.folder)
        for file in part.files
    ]


def added(root: Path, file: Path, keys: dict[str, str]) -> Any:  # noqa: ANN401 - an extra's type
    """What a log says of a new file, whose partition is `keys`."""
    from deltalake.transaction import AddAction  # noqa: PLC0415 - an extra

    status, path, stats = file.stat(), str(file.relative_to(root)), json.dumps(_statistics(file))
    return AddAction(path, status.st_size, keys, int(status.st_mtime * 1000), data_change=True, stats=stats)


def _statistics(file: Path) -> dict[str, Any]:
    """Rows of a file, and from when to when its events are: so engines leave out what is of another time.

    Told by `ts_ms`, since Spark keeps no bounds of a timestamp; it has never more than milliseconds.
    """
    footer = pq.ParquetFile(file).metadata
    statistics: dict[str, Any] = {"numRecords": footer.num_rows}
    groups = [footer.row_group(at) for at in range(footer.num_row_groups)]
    columns = (group.column(at) for group in groups for at in range(group.num_columns))
    bounds = [column.statistics for column in columns if column.path_in_schema == "ts_ms"]
    if bounds and all(bound is not None and bound.has_min_max for bound in bounds):
        statistics["minValues"] = {"event_ts": _moment(min(bound.min for bound in bounds))}
        statistics["maxValues"] = {"event_ts": _moment(max(bound.max for bound in bounds))}
    return statistics


def _moment(ms: int) -> str:
    """As the protocol of Delta writes it."""
    at = datetime.fromtimestamp(ms / 1000, UTC)
    return f"{at.replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"
