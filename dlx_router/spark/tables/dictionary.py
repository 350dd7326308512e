"""The data dictionary: every table that SQL finds in an archive, its columns, their types and meanings, once.

The views of DuckDB and of Spark have exactly these columns (a test compares them), and docs/data-dictionary.md is made
of this module.
"""

from dataclasses import dataclass
from typing import Final

from pyspark.sql import types as t

from dlx_router.journal.fields import FIELDS
from dlx_router.spark import schemas
from dlx_router.spark.schemas import Columns


@dataclass(frozen=True, slots=True)
class Table:
    """One table: what a row of it is, and its columns."""

    name: str
    row: str
    columns: Columns

    @property
    def schema(self) -> t.StructType:
        """The columns as a Spark schema."""
        return schemas.schema(self.columns)


_TEXT: Final = t.StringType()
_LONG: Final = t.LongType()
_TOLD_ALWAYS: Final = {"fresh", "first"}  # what the journal leaves out of them because it is plain, ingest adds


def _of_the_journal() -> Columns:
    """The fields of an event, with what docs/journal.md says of them."""
    return tuple(
        (field.name, schemas.EVENT[field.name].dataType, field.meaning + _unless(field.when, field.name))
        for field in FIELDS
    )


def _unless(when: str, name: str) -> str:
    return f"; null unless: {when}" if when and name not in _TOLD_ALWAYS else ""


_EVENT: Final[Columns] = (
    *schemas.PLACE_COLUMNS, *_of_the_journal(), *schemas.ADDED_COLUMNS, *schemas.PARTITION_COLUMNS,
)  # fmt: skip
_LETTER: Final[Columns] = (
    ("vhost", _TEXT, "vhost of the letter"),
    ("id", _TEXT, "letter id; with `vhost` and `failed_queue` the key"),
    ("failed_queue", _TEXT, "queue that it failed in"),
    ("reason", _TEXT, "why it failed, by its newest event"),
    ("policy", _TEXT, "its policy, by its newest event"),
    ("first_death_ms", _LONG, "its oldest death that is known"),
    ("last_ms", _LONG, "its newest event"),
    ("deaths", _LONG, "failures that were decided, of all its stays"),
    ("attempts", _LONG, "failed deliveries that count, by its newest event"),
    ("redrives", _LONG, "how often it was sent back by hand or by a task"),
    ("redrive_id", _TEXT, "a task that did something to it"),
    ("given_back_ms", _LONG, "when its newest event gives it back to its queue; null: it does not"),
    ("recovered_ms", _LONG, "the same, of a letter that has recovered"),
    (
        "outcome",
        _TEXT,
        (
            "`recovered`: given back, and silent for max(1 h, 2 × the longest wait seen) until when all is known; "
            "`open`: not silent for so long; else the kind of its newest event: where it lies, or that it is gone"
        ),
    ),
)
_GROUP: Final[Columns] = (
    ("vhost", _TEXT, "vhost of the letters"),
    ("failed_queue", _TEXT, "queue that they failed in"),
    ("fingerprint", _TEXT, "the group: letters that failed for one cause have one"),
    ("reason", _TEXT, "why they failed"),
    ("error_type", _TEXT, "type of their error, where it is known"),
    ("error_template", _TEXT, "their error without what differs from letter to letter"),
    ("letters", _LONG, "letters that died so; one counts in every group that it died in"),
    ("deaths", _LONG, "how often they did"),
    ("recovered", _LONG, "letters of them whose `outcome` is recovered"),
    ("open", _LONG, "of which it is not known yet: open or held"),
    ("lost", _LONG, "all others"),
    ("first_ms", _LONG, "the first of these deaths"),
    ("last_ms", _LONG, "the last"),
)
_SEGMENT: Final[Columns] = (
    ("event_date", t.DateType(), "the day, UTC"),
    ("seg", _TEXT, "as in `raw_events`"),
    ("events", _LONG, "its rows"),
    ("is_compacted", t.BooleanType(), "the day as `pipeline compact` wrote it; else a micro-batch of ingest"),
)
TABLES: Final = (
    Table("events", "one event of the journal, each `event_id` once", _EVENT),
    Table("letters", "one letter, and what became of it", _LETTER),
    Table("groups", "one failure group of one queue", _GROUP),
    Table("raw_events", "as `events`, but what came twice and is not compacted yet stands twice; cheaper", _EVENT),
    Table("bad_lines", "one line of the journal that is no event, or that was erased", schemas.BAD_COLUMNS),
    Table("segments", "one part of the archive that counts", _SEGMENT),
)
BY_NAME: Final = {table.name: table for table in TABLES}


def duckdb_type(kind: t.DataType) -> str:
    """The type of DuckDB that holds the same values."""
    match kind:
        case t.StructType():
            return (
                f"STRUCT({', '.join(f'{quoted(field.name)} {duckdb_type(field.dataType)}' for field in kind.fields)})"
            )
        case t.ArrayType():
            return f"{duckdb_type(kind.elementType)}[]"
        case t.MapType():
            return f"MAP({duckdb_type(kind.keyType)}, {duckdb_type(kind.valueType)})"
        case t.DecimalType():
            return f"DECIMAL({kind.precision},{kind.scale})"
    return _DUCKDB[type(kind)]


_DUCKDB: Final[dict[type[t.DataType], str]] = {
    t.StringType: "VARCHAR",
    t.IntegerType: "INTEGER",
    t.LongType: "BIGINT",
    t.BooleanType: "BOOLEAN",
    t.DoubleType: "DOUBLE",
    t.DateType: "DATE",
    t.TimestampType: "TIMESTAMP WITH TIME ZONE",
    t.BinaryType: "BLOB",
}


def quoted(name: str) -> str:
    """A name for SQL of DuckDB, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'


def markdown() -> str:
    """The tables of docs/data-dictionary.md."""
    return "\n\n".join(map(_section, TABLES))


def _section(table: Table) -> str:
    rows = [f"| `{name}` | {_shown(kind)} | {meaning} |" for name, kind, meaning in table.columns]
    head = [f"## {table.name}", "", f"A row is {table.row}.", ""]
    if table.name == "raw_events":
        return "\n".join([*head, "The columns of [events](#events)."])
    return "\n".join([*head, "| column | type | meaning |", "|---|---|---|", *rows])


def _shown(kind: t.DataType) -> str:
    """As Spark writes it; DuckDB's names are other words for the same."""
    return str(kind.simpleString())
