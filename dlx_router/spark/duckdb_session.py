"""A database of DuckDB in memory, and texts and lists of files in SQL for it. DuckDB is imported when it is used."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from dlx_router.core.printable import printable_lines
from dlx_router.spark import scratch
from dlx_router.spark.options import OptionError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_FULL: Final = ("max_temp_directory_size", "No space left", "quota exceeded")


@contextmanager
def connected(*, memory: str) -> "Iterator[DuckDBPyConnection]":
    """A new one, in UTC, that downloads nothing and takes so much memory; more is spilled to a folder of `scratch`.

    OptionError where DuckDB is missing, or there is no place for that folder.
    """
    try:
        import duckdb  # noqa: PLC0415 - an extra
    except ModuleNotFoundError:
        raise OptionError("DuckDB is missing: install dlx-router with its extra `spark`") from None
    with scratch.folder() as aside, duckdb.connect(":memory:") as database:
        database.execute("SET TimeZone = 'UTC'")
        database.execute(f"SET temp_directory = {text(aside)}")
        database.execute(f"SET max_temp_directory_size = '{scratch.bound(aside)}B'")
        database.execute(f"SET memory_limit = {text(memory)}")
        database.execute("SET autoinstall_known_extensions = false")
        database.execute("SET autoload_known_extensions = false")
        yield database


def database_error() -> type[Exception]:
    """What DuckDB raises."""
    import duckdb  # noqa: PLC0415 - an extra

    return duckdb.Error


def reason(error: Exception) -> str:
    """What DuckDB says, and what now where a disk is full."""
    message = printable_lines(str(error)).rstrip()
    return f"{message}\n{scratch.MORE_ROOM}" if any(phrase in message for phrase in _FULL) else message


def in_a_line(error: Exception) -> str:
    """The same without where in the SQL of ours it was."""
    first, *others = reason(error).splitlines() or [""]
    return "; ".join([first, *(line for line in others if line == scratch.MORE_ROOM)])


def text(value: str | Path) -> str:
    """A text of SQL, whatever is in it."""
    return "'" + str(value).replace("'", "''") + "'"


def listed(values: Iterable[str | Path]) -> str:
    """Texts, as a list of SQL."""
    return f"[{', '.join(map(text, values))}]"


def pattern(file: str | Path) -> str:
    """This file and no other: DuckDB takes each name of a file for a pattern, also a folder `archive[1]`."""
    return "".join(f"[{character}]" if character in "*?[" else character for character in str(file))
