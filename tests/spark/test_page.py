"""docs/pipeline.md says what the code does: its tables are made from it."""

import re
from pathlib import Path

import pytest

from dlx_router.spark import docs_tables, schemas

PATH = Path(__file__).parents[2] / "docs/pipeline.md"
PARTS = {
    "place": docs_tables.columns(schemas.PLACE_COLUMNS),
    "event": docs_tables.event(),
    "added": docs_tables.columns(schemas.ADDED_COLUMNS),
    "partition": docs_tables.columns(schemas.PARTITION_COLUMNS),
    "bad": docs_tables.columns(schemas.BAD_COLUMNS),
    "source": docs_tables.columns(schemas.SOURCE_COLUMNS),
    "options": docs_tables.options(),
}


@pytest.mark.parametrize("name", PARTS)
def test_the_tables_of_the_page_are_those_of_the_code(name: str) -> None:
    text = PATH.read_text(encoding="utf-8")
    block = re.search(rf"<!-- {name} -->\n(.*?)<!-- end -->", text, re.DOTALL)
    assert block, f"docs/pipeline.md lacks <!-- {name} --> … <!-- end -->"
    assert block[1].strip() == PARTS[name]
