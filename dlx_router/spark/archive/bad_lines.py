"""Lines that are no events, when they have to be forgotten. No Spark in here.

Their text goes; row and reason stay, because manifests count them and nobody may wonder where a message went.
"""

import json
import re
from collections.abc import Collection
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from dlx_router.spark.archive.files import settle, token
from dlx_router.spark.archive.layout import Archive


def blank(
    archive: Archive, names: Collection[str] = (), *, since_ms: int | None = None, until_ms: int | None = None
) -> None:
    """Take the text from lines in which one of these names stands, and of those that were read in this time.

    Only under the lease of `compact`. A file is replaced whole.
    """
    if not names and since_ms is None and until_ms is None:
        return
    for file in archive.bad_files():
        table = pq.ParquetFile(file).read()
        is_meant = naming(table["line"], names) if names else _read_within(table["ingest_ts"], since_ms, until_ms)
        is_meant = pc.and_(is_meant, pc.is_valid(table["line"]))
        if pc.any(is_meant).as_py():
            line = pc.if_else(is_meant, pa.scalar(None, table["line"].type), table["line"])
            _replace(archive, file, table.set_column(table.schema.get_field_index("line"), "line", line))


def count(archive: Archive) -> int:
    """Lines that have their text still."""
    tables = (pq.ParquetFile(file).read(columns=["line"]) for file in archive.bad_files())
    return sum(len(table) - table["line"].null_count for table in tables)


def naming(lines: pa.ChunkedArray, names: Collection[str]) -> pa.Array:
    """Whether one of the names stands in the line as a whole word, as it is or as JSON writes it."""
    forms = {json.dumps(name, ensure_ascii=is_ascii)[1:-1].encode() for name in names for is_ascii in (True, False)}
    forms |= {name.encode() for name in names}
    named = re.compile(rb"(?<!\w)(?:" + b"|".join(map(re.escape, sorted(forms))) + rb")(?!\w)")
    return pa.array([line is not None and named.search(line) is not None for line in lines.to_pylist()])


def _read_within(read: pa.ChunkedArray, since_ms: int | None, until_ms: int | None) -> pa.ChunkedArray:
    ms = read.cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
    return pc.and_(pc.greater_equal(ms, since_ms or 0), pc.less(ms, until_ms if until_ms is not None else 1 << 62))


def _replace(archive: Archive, file: Path, table: pa.Table) -> None:
    """The file is this table, on the disk; the one of before is gone."""
    archive.compacting.mkdir(parents=True, exist_ok=True)
    staged = archive.compacting / f"{token()}.parquet"
    pq.write_table(table, staged, compression="zstd")
    settle(staged)
    staged.replace(file)
    settle(file.parent)
