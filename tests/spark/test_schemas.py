"""The columns are those of docs/journal.md, one for one."""

import re

from pyspark.sql import types as t

from dlx_router.journal import fields
from dlx_router.spark import schemas

KINDS = {
    "int": (t.IntegerType, t.LongType),
    "string": (t.StringType,),
    "bool": (t.BooleanType,),
    "float": (t.DoubleType,),
    "object": (t.StructType, t.MapType),
    "array": (t.ArrayType,),
}


def test_every_field_of_the_journal_is_a_column_of_its_type() -> None:
    assert schemas.EVENT.names == [field.name for field in fields.FIELDS]
    wrong = [
        field.name for field in fields.FIELDS if not isinstance(schemas.EVENT[field.name].dataType, KINDS[field.type])
    ]
    assert wrong == []


def test_members_that_the_journal_names_are_there() -> None:
    meaning = {field.name: field.meaning for field in fields.FIELDS}
    assert re.findall(r"\w+", meaning["props"].partition(": ")[2]) == schemas.PROPS.names
    for name in ("target", "first", "digest", "error"):
        kind = schemas.EVENT[name].dataType
        assert isinstance(kind, t.StructType)
        assert {member for member in kind.names if member not in meaning[name]} == set()
    assert {member for member in schemas.DEATH.names if member not in meaning["deaths"]} == set()


def test_what_every_event_needs_is_what_a_gap_has_too() -> None:
    assert {*schemas.NEEDED} <= {field.name for field in fields.FIELDS if not field.when}
    assert schemas.VERSIONS[0] < schemas.VERSION == fields.VERSION < schemas.VERSIONS[1]


def test_no_column_is_there_twice() -> None:
    assert len({*schemas.ARCHIVE.names}) == len(schemas.ARCHIVE.names)
