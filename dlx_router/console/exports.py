"""A list as CSV or JSON: the same rows as the page, for a sheet or a script."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from starlette.responses import Response

from dlx_router.core.nested_json import in_a_line, in_lines
from dlx_router.core.printable import no_formula


def cell(value: object) -> str:
    """A value that a spreadsheet takes for text; a number as it is."""
    is_json = isinstance(value, dict | list | bool)
    text = "" if value is None else in_a_line(value, ensure_ascii=True) if is_json else str(value)
    text = text.replace("\0", "\\x00").encode(errors="backslashreplace").decode()
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return text if is_number else no_formula(text)


def as_csv(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> str:
    """The rows as RFC 4180 says, each cell in quotes."""
    written = io.StringIO()
    writer = csv.writer(written, quoting=csv.QUOTE_ALL)
    writer.writerow(columns)
    writer.writerows([cell(row.get(column)) for column in columns] for row in rows)
    return written.getvalue()


def exported(form: str, name: str, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> Response:
    """The rows as a file; `form` is csv or json."""
    text = as_csv(columns, rows) if form == "csv" else in_lines(rows, ensure_ascii=True)
    kind = "text/csv; charset=utf-8" if form == "csv" else "application/json"
    return Response(
        text, headers={"content-type": kind, "content-disposition": f'attachment; filename="{name}.{form}"'}
    )
