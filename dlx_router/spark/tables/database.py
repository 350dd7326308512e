"""An archive as a database of DuckDB in memory: views with the names and columns of the dictionary. No Java.

A view reads the files that count when the database was opened. Files of other versions are read as far as they go: a
column that they lack is null, one that this version does not know stands behind the others, and a value that is of
another type than the dictionary says is null where it cannot be converted.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import duckdb
from duckdb.sqltypes import DuckDBPyType
from pyspark.sql import types as t

from dlx_router.core.signature import Signature
from dlx_router.spark.archive.complete import read_to_end
from dlx_router.spark.archive.files import ArchiveError
from dlx_router.spark.archive.layout import Archive, Part
from dlx_router.spark.archive.lookback import near
from dlx_router.spark.duckdb_session import connected, in_a_line, listed, pattern, text
from dlx_router.spark.schemas import Columns
from dlx_router.spark.tables import sql
from dlx_router.spark.tables.dictionary import BY_NAME, duckdb_type, quoted

MEMORY: Final = "2GB"
_MEMORY_OF_A_DAY: Final = "1500MB"
_FILE: Final = "_file"
_PLACES: Final = {  # what stands in a file's path only
    "event_date": f"CAST(regexp_extract({_FILE}, '.*/event_date=([^/]+)/seg=[^/]+/[^/]+$', 1) AS DATE)",
    "seg": f"regexp_extract({_FILE}, '.*/seg=([^/]+)/[^/]+$', 1)",
}
_OK: Final = f"'{Signature.OK.value}'"
_SORTED: Final = (
    "SELECT * EXCLUDE (event_date, seg) FROM events ORDER BY failed_queue NULLS FIRST, event_ts NULLS FIRST"
)
# Hardly any comes twice: hashes are counted of all, texts of those only that may.
_REPEATED: Final = """\
SELECT event_id FROM _raw
WHERE hash(event_id) IN (SELECT hash(event_id) AS number FROM _raw GROUP BY number HAVING count(*) > 1)
GROUP BY event_id HAVING count(*) > 1"""


@contextmanager
def opened(root: Path | str) -> Iterator[duckdb.DuckDBPyConnection]:
    """The database, whose SQL may read these files and no others, and may write none; nothing turns that off.

    ArchiveError where there is no archive, or its notes cannot be read.
    """
    with connected(memory=MEMORY) as db:
        files = _defined(db, Archive(root))
        db.execute(f"SET allowed_paths = {listed({*files, *map(pattern, files)})}")
        db.execute("SET enable_external_access = false")
        db.execute("SET python_enable_replacements = false")
        db.execute("SET lock_configuration = true")
        yield db


@contextmanager
def writable(root: Path | str, *, since: str = "") -> Iterator[duckdb.DuckDBPyConnection]:
    """The same for SQL of ours, that writes files, of the days from `since` on. Repetitions are looked for once."""
    with connected(memory=MEMORY) as db:
        _defined(db, Archive(root), since=since, kept=True)
        yield db


def fold(own: Sequence[Part], near_parts: Sequence[Part], folder: Path) -> None:
    """Write the events of `own`, each once and none that the others have, as one sorted file into a new folder.

    As `archive.compact.by_spark` does; columns that this version does not know are kept. ArchiveError.
    """
    _require_files([*own, *near_parts])
    files = [str(file) for part in own for file in part.files]
    others = [str(file) for part in near_parts for file in part.files]
    with connected(memory=_MEMORY_OF_A_DAY) as db:
        try:
            _define_events(db, files, [], others, kept=True)
            folder.mkdir(parents=True)
            db.execute(f"COPY ({_SORTED}) TO {text(folder / 'part-0.parquet')} (FORMAT parquet, COMPRESSION zstd)")
        except (duckdb.Error, OSError) as error:
            where = own[0].folder
            message = (
                f"{where}: cannot be compacted: {in_a_line(error)}; `dlx-router pipeline verify` says what is wrong"
            )
            raise ArchiveError(message) from None


def _defined(db: duckdb.DuckDBPyConnection, archive: Archive, *, since: str = "", kept: bool = False) -> list[str]:
    try:
        return _define(db, archive, since=since, kept=kept)
    except duckdb.Error as error:
        message = f"{archive.root}: {in_a_line(error)}; `dlx-router pipeline verify` says what else is wrong"
        raise ArchiveError(message) from None


def _define(db: duckdb.DuckDBPyConnection, archive: Archive, *, since: str, kept: bool) -> list[str]:
    """Make the views; the files that they read."""
    archive.require_folder()
    every = archive.parts()
    parts = [part for part in every if part.date >= since]
    _require_files(parts)
    raw, compacted = _files(parts, is_compacted=False), _files(parts, is_compacted=True)
    bad = [str(file) for folder in archive.bad_folders() for file in sorted(folder.glob("*.parquet"))]
    _define_events(db, raw, compacted, _files(near(parts, every), is_compacted=True), kept=kept)
    _view(db, "raw_events", "SELECT * FROM _compacted UNION ALL BY NAME SELECT * FROM _raw")
    db.execute("CREATE TEMP MACRO unix_millis(moment) AS epoch_ms(moment)")
    _view(db, sql.ASKED, _asked(archive))
    _view(db, "letters", sql.LETTERS)
    _view(db, "groups", sql.GROUPS)
    _view(db, "bad_lines", _rows(db, bad, BY_NAME["bad_lines"].columns))
    _view(db, "segments", _segments(parts))
    return [*raw, *compacted, *bad]


def _define_events(
    db: duckdb.DuckDBPyConnection,
    raw: Sequence[str],
    compacted: Sequence[str],
    near_files: Sequence[str],
    *,
    kept: bool,
) -> None:
    """The view `events`: all of `compacted`, and each of `raw` once that does not stand in `near_files`."""
    columns = BY_NAME["events"].columns
    _view(db, "_raw", _rows(db, raw, columns))
    _view(db, "_compacted", _rows(db, compacted, columns))
    db.execute(f"CREATE TEMP {'TABLE' if kept else 'VIEW'} _repeated AS {_REPEATED}")
    _view(db, "_near", _rows(db, near_files, columns))
    _view(db, "events", _once(has_raw=bool(raw), has_near=bool(near_files)))


def _view(db: duckdb.DuckDBPyConnection, name: str, body: str) -> None:
    db.execute(f"CREATE TEMP VIEW {name} AS {body}")


def _require_files(parts: Iterable[Part]) -> None:
    """ArchiveError where a part that counts has none: its events would be missing from every answer, without a word."""
    for part in parts:
        if part.rows and not part.files:
            why = "erased or compacted just now (run it again), or lost (`dlx-router pipeline verify`)"
            raise ArchiveError(f"{part.folder}: none of its files is there, of {part.rows} events: {why}")


def _files(parts: Iterable[Part], *, is_compacted: bool) -> list[str]:
    return [str(file) for part in parts if part.is_compacted is is_compacted for file in part.files]


def _rows(db: duckdb.DuckDBPyConnection, files: Sequence[str], columns: Columns) -> str:
    """All rows of these files, with these columns and behind them those that nobody knows."""
    if not files:
        nothing = (f"{_as('', kind, None)} AS {quoted(name)}" for name, kind, _ in columns)
        return f"SELECT {', '.join(nothing)} WHERE false"
    return " UNION ALL BY NAME ".join(_of_one_schema(db, some, columns) for some in _alike(db, files))


def _alike(db: duckdb.DuckDBPyConnection, files: Sequence[str]) -> list[list[str]]:
    """The files, those of one schema together: to read them by name DuckDB would read each footer for every view."""
    element = "concat_ws(' ', name, type, converted_type, logical_type, num_children)"
    every = f"parquet_schema({listed(map(pattern, files))})"
    schemas = f"SELECT file_name, hash(list_sort(list({element}))) FROM {every} GROUP BY file_name"
    by_schema: dict[int, list[str]] = {}
    for file, schema in db.execute(f"{schemas} ORDER BY file_name").fetchall():
        by_schema.setdefault(schema, []).append(file)
    return [*by_schema.values()]


def _of_one_schema(db: duckdb.DuckDBPyConnection, files: Sequence[str], columns: Columns) -> str:
    read = f"read_parquet({listed(map(pattern, files))}, hive_partitioning = false, filename = '{_FILE}')"
    shape = db.sql(f"SELECT * FROM {read}")
    there = dict(zip(shape.columns, shape.types, strict=True))
    known = [f"{_column(name, kind, there.get(name))} AS {quoted(name)}" for name, kind, _ in columns]
    more = [quoted(name) for name in there if name not in {column for column, _, _ in columns} and name != _FILE]
    return f"SELECT {', '.join([*known, *more])} FROM {read}"


def _column(name: str, kind: t.DataType, there: DuckDBPyType | None) -> str:
    return _PLACES.get(name) or _as(quoted(name), kind, there)


def _as(value: str, kind: t.DataType, there: DuckDBPyType | None) -> str:
    """An expression of the kind that is wanted, of a value that is of the type that is there; members by name."""
    wanted = duckdb_type(kind)
    if there is None:
        return f"CAST(NULL AS {wanted})"
    if str(there).replace('"', "") == wanted.replace('"', ""):
        return value
    match kind:
        case t.StructType() if there.id == "struct":
            members = _children(there)
            each = (f"{quoted(field.name)} := {_member(value, field, members)}" for field in kind.fields)
            return f"CASE WHEN {value} IS NOT NULL THEN struct_pack({', '.join(each)}) END"
        case t.ArrayType() if there.id == "list" and isinstance(kind.elementType, t.StructType):
            (inner,) = _children(there).values()
            return f"list_transform({value}, lambda one: {_as('one', kind.elementType, inner)})"
    return f"TRY_CAST({value} AS {wanted})"


def _children(there: DuckDBPyType) -> dict[str, DuckDBPyType]:
    return {name: child for name, child in there.children if isinstance(child, DuckDBPyType)}


def _member(value: str, field: t.StructField, members: dict[str, DuckDBPyType]) -> str:
    return _as(f"{value}.{quoted(field.name)}", field.dataType, members.get(field.name))


def _once(*, has_raw: bool, has_near: bool) -> str:
    """Each event once, as `archive.reading` has it: of several the one that was decided first, a signed one before.

    One that nobody is known to have signed never stands for one that is.
    """
    if not has_raw:
        return "SELECT * FROM _compacted"
    first = f'CASE WHEN signature = {_OK} THEN 0 ELSE 1 END, event_ts, stream, "offset", idx'
    known = (
        "EXISTS (SELECT 1 FROM _near WHERE _near.event_id = told.event_id AND"
        f" (_near.signature IS NULL OR _near.signature = {_OK} OR coalesce(told.signature, '') <> {_OK}))"
    )
    unknown = f" AND NOT {known}" if has_near else ""
    single = "NOT EXISTS (SELECT 1 FROM _repeated WHERE _repeated.event_id = told.event_id)"
    ranked = (
        f"SELECT *, row_number() OVER (PARTITION BY event_id ORDER BY {first}) AS _nth FROM _raw"
        " WHERE event_id IN (SELECT event_id FROM _repeated)"
    )
    several = f"SELECT * EXCLUDE (_nth) FROM ({ranked}) AS told WHERE _nth = 1"
    return (
        f"SELECT * FROM _compacted UNION ALL BY NAME SELECT * FROM _raw AS told WHERE {single}{unknown}"
        f" UNION ALL BY NAME {several}{unknown}"
    )


def _asked(archive: Archive) -> str:
    rows = [f"({text(stream)}, {ms})" for stream, ms in read_to_end(archive).items()]
    values = ", ".join(rows or ["(NULL, NULL)"])
    of_streams = "SELECT CAST(stream AS VARCHAR) AS stream, CAST(complete_ms AS BIGINT) AS complete_ms"
    return f"{of_streams} FROM (VALUES {values}) AS each(stream, complete_ms) WHERE stream IS NOT NULL"


def _segments(parts: list[Part]) -> str:
    names = [(name, duckdb_type(kind)) for name, kind, _ in BY_NAME["segments"].columns]
    rows = [f"({text(part.date)}, {text(part.seg)}, {part.rows}, {part.is_compacted})" for part in parts]
    values = ", ".join(rows or ["(NULL, NULL, NULL, NULL)"])
    each = ", ".join(f"CAST({name} AS {kind}) AS {name}" for name, kind in names)
    return f"SELECT {each} FROM (VALUES {values}) AS part({', '.join(name for name, _ in names)}) WHERE seg IS NOT NULL"
