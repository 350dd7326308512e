"""`pipeline sql`: one SELECT over an archive, its rows as a table, CSV or JSON. It reads; nothing else is let in."""

import csv
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import partial
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any, Final, NamedTuple

import duckdb

from dlx_router.core.printable import no_formula
from dlx_router.spark.archive.files import ArchiveError
from dlx_router.spark.duckdb_session import reason
from dlx_router.spark.tables.database import opened
from dlx_router.spark.tables.dictionary import TABLES


class Column(NamedTuple):
    """A column of an answer, as a table shows it."""

    name: str
    is_number: bool


Table = Callable[[Sequence[Column], Sequence[Sequence[str]]], None]
FORMATS: Final = ("table", "csv", "json")
TABLE_ROWS: Final = 1000  # a table is laid out whole; who wants more wants a file
_AT_ONCE: Final = 1000
_INFINITE: Final = ("-Infinity", "Infinity")
_ENDS: Final = {  # as DuckDB gives them out
    datetime.max.replace(tzinfo=UTC): "infinity",
    datetime.min.replace(tzinfo=UTC): "-infinity",
}
_NULL: Final = "–"  # as in every table of ours: what is below a narrow one is left out
_INTEGERS: Final = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
_NUMBERS: Final = {*_INTEGERS, *(f"U{kind}" for kind in _INTEGERS), "FLOAT", "DOUBLE", "DECIMAL"}


@dataclass(frozen=True, slots=True)
class Answer:
    """Columns, and rows as they come; a table has at most TABLE_ROWS, and says whether there are more."""

    columns: tuple[Column, ...]
    rows: Iterator[tuple[Any, ...]]

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]


def run(root: Path, text: str, form: str, out: IO[str], table: Table) -> bool:
    """Write the answer to `out`, or give it to `table(columns, rows)`; whether rows were left out.

    ArchiveError for SQL that is not one SELECT or cannot be run: what, and where in it.
    """
    with opened(root) as db:
        try:
            answer = _asked(db, text)
            if form == "table":
                return _tabled(answer, table)
            (_csv if form == "csv" else _json)(answer, out)
        except duckdb.Error as error:
            raise ArchiveError(_wrong(error)) from None
    return False


def _asked(db: duckdb.DuckDBPyConnection, text: str) -> Answer:
    statements = db.extract_statements(text)
    kinds = [statement.type for statement in statements]
    if kinds != [duckdb.StatementType.SELECT]:
        names = ", ".join(kind.name for kind in kinds) or "nothing"
        raise ArchiveError(f"one SELECT is what is run, and the archive is only read; this is {names}")
    cursor = db.execute(statements[0])
    columns = ((name, str(kind).partition("(")[0]) for name, kind, *_ in cursor.description or ())
    return Answer(tuple(Column(name, kind in _NUMBERS) for name, kind in columns), _fetched(cursor))


def _fetched(cursor: duckdb.DuckDBPyConnection) -> Iterator[tuple[Any, ...]]:
    while rows := cursor.fetchmany(_AT_ONCE):
        yield from rows


def _wrong(error: duckdb.Error) -> str:
    """What DuckDB says, with the line and the place that it points to, and what may be meant."""
    text = reason(error)
    if isinstance(error, duckdb.CatalogException) and "Table with name" in text:
        text += f"\ntables: {', '.join(table.name for table in TABLES)}; their columns: docs/data-dictionary.md"
    if "No files found" in text or "No such file" in text:
        text += "\nthe archive was compacted or erased from while it was read: run it again"
    return text


def _tabled(answer: Answer, table: Table) -> bool:
    rows = [[_cell(value, _NULL) for value in row] for row in islice(answer.rows, TABLE_ROWS)]
    table(answer.columns, rows)
    return next(answer.rows, None) is not None


def _csv(answer: Answer, out: IO[str]) -> None:
    # By this end of a line a cell with a lone \r is quoted too: a reader would take what is behind it for a new row.
    lines = SimpleNamespace(write=lambda line: out.write(f"{line[:-2]}\n"))
    writer = csv.writer(lines, lineterminator="\r\n")
    writer.writerow(answer.names)
    writer.writerows([_harmless(value) for value in row] for row in answer.rows)


def _harmless(value: Any) -> str:  # noqa: ANN401 - of any type
    """A cell; text that a spreadsheet would run as a formula begins with a quote mark."""
    text = _cell(value, "")
    return text if isinstance(value, int | float | Decimal | date | datetime) else no_formula(text)


def _json(answer: Answer, out: IO[str]) -> None:
    """One array of objects, a row a line."""
    names = answer.names
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ArchiveError(f"JSON has each name once, and there are several columns {twice[0]!r}: name them with AS")
    before = "[\n"
    for row in answer.rows:
        record = {name: _plain(value) for name, value in zip(names, row, strict=True)}
        out.write(before + _document(record))
        before = ",\n"
    out.write("[]\n" if before == "[\n" else "\n]\n")


def _document(value: Any, *, ascii_only: bool = True) -> str:  # noqa: ANN401 - of `_plain`
    """As `json.dumps`, which has no number that is as exact as a Decimal."""
    try:
        return json.dumps(value, ensure_ascii=ascii_only)
    except TypeError:
        pass  # a Decimal is in it, which hardly a query asks for
    inner = partial(_document, ascii_only=ascii_only)
    match value:
        case Decimal():
            return format(value, "f")
        case dict():
            return f"{{{', '.join(f'{inner(name)}: {inner(member)}' for name, member in value.items())}}}"
        case _:
            return f"[{', '.join(map(inner, value))}]"


def _cell(value: Any, null: str) -> str:  # noqa: ANN401 - of any type
    plain = _plain(value)
    if plain is None or isinstance(plain, str):
        return null if plain is None else plain
    return _document(plain, ascii_only=False)


def _plain(value: Any) -> Any:  # noqa: ANN401 - of any type
    """The value as JSON has it: times as text in UTC, numbers with all digits, what is no number by its name."""
    match value:
        case float() if not math.isfinite(value):
            return "NaN" if math.isnan(value) else _INFINITE[value > 0]
        case bool() | int() | float() | str() | Decimal() | None:
            return value
        case dict():
            return {_cell(name, "null"): _plain(item) for name, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
    return _text(value)


def _text(value: Any) -> str:  # noqa: ANN401 - of any type
    if isinstance(value, datetime) and (end := _ENDS.get(value.replace(tzinfo=UTC))):
        return end
    if isinstance(value, datetime | date):
        return value.isoformat()
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)
