"""docs/data-dictionary.md, whole; `make pages` writes it."""

from typing import Final

from dlx_router.spark.tables.dictionary import TABLES, markdown

_HEAD: Final = """# Data dictionary

<!-- made by `make pages` (with the packages of the pipeline), checked by a test; do not edit -->

The tables that [SQL](pipeline-sql.md) finds in an archive: by `dlx-router pipeline sql`, and as views of Spark. Types
are named as Spark names them; DuckDB's BIGINT, VARCHAR, TIMESTAMP WITH TIME ZONE hold the same. Columns are only ever
added. Those that a newer version wrote, and this one does not know, stand behind these in DuckDB.

| table | a row is |
|---|---|
"""


def page() -> str:
    """The page."""
    rows = "".join(f"| [`{table.name}`](#{table.name}) | {table.row} |\n" for table in TABLES)
    return f"{_HEAD}{rows}\n{markdown()}\n"
