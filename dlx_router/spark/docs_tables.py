"""The generated tables of docs/pipeline.md, from the columns and options themselves."""

from pyspark.sql.types import DataType

from dlx_router.spark import schemas
from dlx_router.spark.options import MEANINGS


def columns(given: schemas.Columns) -> str:
    """Columns as a table."""
    rows = [f"| `{name}` | {_kind(kind)} | {meaning} |" for name, kind, meaning in given]
    return "\n".join(["| column | type | meaning |", "|---|---|---|", *rows])


def options() -> str:
    """Options of the source as a table."""
    rows = [f"| `{name}` | {default and f'`{default}`'} | {meaning} |" for name, (default, meaning) in MEANINGS.items()]
    return "\n".join(["| option | default | meaning |", "|---|---|---|", *rows])


def event() -> str:
    """Types of the journal's fields as columns, one line."""
    return ", ".join(f"`{field.name}` {_kind(field.dataType)}" for field in schemas.EVENT.fields)


def _kind(kind: DataType) -> str:
    return str(kind.simpleString())
