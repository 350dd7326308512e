"""Whoever writes a reader in another language has a schema and examples, and both are true."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.journal.audit import audit
from dlx_router.journal.fields import FIELDS, KINDS, ROW
from dlx_router.journal.packing import unpacked
from dlx_router.journal.reading import lines
from tests.core.core_samples import law
from tests.journal import plain_reader
from tests.journal.test_formats import Told, message, tellings

jsonschema: Any = pytest.importorskip("jsonschema")
EXAMPLES = Path(__file__).parents[2] / "docs/examples/journal"
SCHEMA: Any = json.loads((EXAMPLES.parents[1] / "journal.schema.json").read_text(encoding="utf-8"))
LINE = jsonschema.Draft202012Validator(SCHEMA)
EVENT = jsonschema.Draft202012Validator({**SCHEMA, "anyOf": [{"$ref": "#/$defs/event"}]})


def test_the_schema_names_the_fields_of_the_table_in_its_order() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert [*SCHEMA["$defs"]["members"]["properties"]] == [field.name for field in FIELDS]
    row = [cell["description"].partition(":")[0] for cell in SCHEMA["$defs"]["row"]["prefixItems"]]
    assert row == [field.name for field in ROW]
    kinds = SCHEMA["$defs"]["members"]["properties"]["kind"]["enum"]
    assert kinds == [*KINDS]


def of_a_letter(entry: Told) -> Told:
    """Gaps and audits tell of none."""
    died, ruling, now_ms, own = entry
    return died, ruling._replace(kind="parked") if ruling.kind in {"gap", "audit"} else ruling, now_ms, own


@law
@given(st.lists(tellings.map(of_a_letter), min_size=1, max_size=4))
def test_every_line_of_both_formats_fits_the_schema(entries: list[Told]) -> None:
    for line in unpacked(message(entries).body).splitlines():
        LINE.validate(json.loads(line))
    for line in message(entries, of_task=True).body.splitlines():
        EVENT.validate(json.loads(line))
    EVENT.validate(json.loads(audit("r", "/", actor="a", action="b.c", details={}, ts_ms=1)))


def test_what_is_no_line_does_not_fit_it() -> None:
    (event, *_), row = json.loads((EXAMPLES / "events.json").read_text()), [0, "a", "b", 1, None, 1, 1, 1, 1, [], {}]
    LINE.validate(row)
    for odd in ({**event, "ts_ms": "now"}, {**event, "kind": "lost"}, [*row, {}, {}], row[:-1], [-1, *row[1:]], "x"):
        assert not LINE.is_valid(odd), odd


def test_the_examples_are_read_as_they_say_by_two_readers() -> None:
    """They never change: readers of others are tested with them."""
    wanted = json.loads((EXAMPLES / "events.json").read_text())
    first, second = ((EXAMPLES / name).read_bytes() for name in ("format-1.ndjson", "format-2.zst"))
    assert plain_reader.events(None, first) == plain_reader.events("zstd", second) == wanted
    assert [json.loads(line) for line in lines(first, 1)] == [json.loads(line) for line in lines(second, 2)] == wanted
    kinds = {type(json.loads(line)).__name__ + str(b"event_id" in line) for line in unpacked(second).splitlines()}
    assert kinds == {"dictFalse", "dictTrue", "listFalse"}, "all three kinds of lines"
