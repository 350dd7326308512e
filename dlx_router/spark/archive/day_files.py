"""Tables → Parquet files of one task: a file a day, and one of lines that are no events. No Spark in here."""

import secrets
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from dlx_router.spark.archive.lines import DAY_MS

BAD: Final = ""  # in the place of a day
GONE: Final = "gone"  # as above: no file, but messages that retention took before they were read
_OPEN: Final = 8  # files at once; of more days, those that were begun first are closed
_TIMESTAMPS: Final = {"use_deprecated_int96_timestamps": True}  # as Spark writes them where it is not told otherwise


class Written(NamedTuple):
    """A file that is whole: its day (BAD: lines that are no events), where it is, and its rows.

    Of GONE there is no file: so many offsets were lost, and that was allowed.
    """

    day: str
    path: str
    rows: int


class DayFiles:
    """Files that are being written. What is written twice has another name each time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._open: dict[str, tuple[Any, Path, int]] = {}  # by day: its writer, file and rows

    def write(self, table: pa.Table) -> Iterator[Written]:
        """The rows to where they belong; → files that are whole."""
        if "ts_ms" not in table.column_names:
            self._put(BAD, table)
            return
        days = np.asarray(table["ts_ms"]) // DAY_MS
        for day in np.unique(days).tolist():
            if len(self._open) >= _OPEN:
                yield self._close(next(iter(self._open)))
            same = days == day
            self._put(_name(day), table if same.all() else table.filter(pa.array(same)))

    def close(self) -> Iterator[Written]:
        """The rest."""
        for day in [*self._open]:
            yield self._close(day)

    def _put(self, day: str, table: pa.Table) -> None:
        writer, path, rows = self._open.get(day) or self._new(day, table.schema)
        writer.write_table(table)
        self._open[day] = writer, path, rows + table.num_rows

    def _new(self, day: str, schema: pa.Schema) -> tuple[Any, Path, int]:
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{day or 'bad'}-{secrets.token_hex(8)}.parquet"
        return pq.ParquetWriter(path, schema, compression="zstd", store_schema=False, **_TIMESTAMPS), path, 0

    def _close(self, day: str) -> Written:
        writer, path, rows = self._open.pop(day)
        writer.close()
        return Written(day, str(path), rows)


def _name(day: int) -> str:
    return datetime.fromtimestamp(day * DAY_MS / 1000, UTC).date().isoformat()
