"""The archive as a Delta table too: its log names exactly the files that count, so every engine that reads Delta can.

Written by delta-rs (extra `spark-delta`), because pip's Spark has no Delta. The manifests stay the truth: the table is
brought up to them in one transaction, whatever was left out before.
"""

import json
import os
import time
from importlib.util import find_spec
from typing import Any, Final

from pyspark.sql.pandas.types import to_arrow_schema

from dlx_router.spark import schemas
from dlx_router.spark.archive.layout import Archive, ArchiveError, Part

_KEYS: Final = ["event_date", "seg"]


def require() -> None:
    """ArchiveError where delta-rs is not installed."""
    if find_spec("deltalake") is None:
        raise ArchiveError("a Delta table needs the extra `spark-delta`: pip install '.[spark-delta]' in a clone")


def mirror(archive: Archive) -> tuple[int, int]:
    """Make the table name the files that count now; how many files came and went."""
    from deltalake import DeltaTable  # noqa: PLC0415 - an extra
    from deltalake.transaction import RemoveAction, create_table_with_add_actions  # noqa: PLC0415 - an extra

    wanted = {path: part for part in archive.parts() for path in _paths(archive, part)}
    if not DeltaTable.is_deltatable(str(archive.root)):
        create_table_with_add_actions(
            str(archive.root), _schema(), _added(archive, wanted), partition_by=_KEYS, name="dlx-router events"
        )
        return len(wanted), 0
    table = DeltaTable(archive.root)
    present = {os.path.relpath(uri.removeprefix("file://"), archive.root) for uri in table.file_uris()}
    now = time.time_ns() // 1_000_000
    gone: list[Any] = [RemoveAction(path, True, now) for path in sorted(present - {*wanted})]  # noqa: FBT003 - data changes
    new = _added(archive, {path: part for path, part in wanted.items() if path not in present})
    if new or gone:
        table.create_write_transaction([*new, *gone], "append", _schema(), partition_by=_KEYS)
    return len(new), len(gone)


def _schema() -> Any:  # noqa: ANN401 - an extra's type
    from deltalake import Schema  # noqa: PLC0415 - an extra

    return Schema.from_arrow(to_arrow_schema(schemas.ARCHIVE, timezone="UTC"))


def _paths(archive: Archive, part: Part) -> list[str]:
    return [str(file.relative_to(archive.root)) for file in part.folder.glob("*.parquet")]


def _added(archive: Archive, files: dict[str, Part]) -> list[Any]:
    from deltalake.transaction import AddAction  # noqa: PLC0415 - an extra

    actions = []
    for path, part in sorted(files.items()):
        told = (archive.root / path).stat()
        keys = {"event_date": part.date, "seg": part.seg}
        actions.append(
            AddAction(path, told.st_size, keys, int(told.st_mtime * 1000), data_change=True, stats=json.dumps({}))
        )
    return actions
