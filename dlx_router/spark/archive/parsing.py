"""Messages of the journal → rows of the archive. DataFrame to DataFrame; of Python only the fingerprints run.

Each line becomes one row: with `event_date` an event, without one a line that is none, and `bad_reason` says why.
"""

from functools import lru_cache
from typing import Any, Final

from pyspark import SparkContext
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t

from dlx_router.spark import schemas
from dlx_router.spark.archive.fingerprints import group

BAD_REASON: Final = "bad_reason"
_CORRUPT: Final = "_corrupt"
_READ: Final = t.StructType([*schemas.EVENT.fields, t.StructField(_CORRUPT, t.StringType())])
_OPTIONS: Final = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
_END_MS: Final = 253_402_300_800_000  # the year 10000
_SURROGATE: Final = r"\\u[dD][89a-fA-F]"  # Java has no text for half of a pair, which is how a byte is told
_FIRST_UNKNOWN: Final = r'[{,]\s*"first"\s*:\s*null'  # null and absent differ here; inside of text a quote is escaped


def lines(source: DataFrame) -> DataFrame:
    """`schemas.SOURCE` → stream, offset, signature, idx, text: each line that is not empty.

    A line's bytes that are no UTF-8 are replaced, so behind the lines of such a message comes the whole, as it came.
    """
    text = f.col("body").cast("string")
    split = f.split(text, "\n")
    told = f.when(f.is_valid_utf8(text), split).otherwise(f.concat(split, f.array(text)))
    return source.select("stream", "offset", "signature", f.posexplode(told).alias("idx", "text")).where(
        f.length("text") > 0
    )


def rows(source: DataFrame, *, keep_lines: bool = False) -> DataFrame:
    """`schemas.SOURCE` → the columns of the archive without `seg`, and `bad_reason`. No row less than there are lines.

    `keep_lines`: column `line` in every row, for archives that should hold fields that this version does not know.
    """
    steps = _steps(type(source).__module__, SparkContext._active_spark_context, keep_lines)  # noqa: SLF001 - they live in it
    found = lines(source)
    for columns in steps:
        found = found.select(*columns)
    return found


@lru_cache(maxsize=2)
def _steps(_kind: str, _context: Any, keep_lines: bool) -> list[list[Column]]:  # noqa: ANN401, FBT001 - Spark's own; and what it keeps is the key of a cache
    """What is selected, one upon the other; the same objects for every batch.

    To make them takes half a second. And a lambda gets another name each time that it is made: Spark would then compile
    the whole anew for each batch, and Java never run it long enough to make it fast. For the same reason the time of
    reading is no `current_timestamp()`, which is a constant of the code.
    """
    place = [f.col(name) for name in ("stream", "offset", "idx", "text", "signature")]
    event = f.from_json(f.when(f.is_valid_utf8("text"), f.col("text")), _READ, _OPTIONS).alias("e")
    told = [_told(name) for name in schemas.EVENT.names]
    is_bad = f.col(BAD_REASON).isNotNull()
    at = f.timestamp_millis(f.when(~is_bad, f.col("e.ts_ms")))
    kept = f.when(is_bad | f.lit(keep_lines) | _is_more(), f.col("text"))
    flat = [
        *place[:3], at.alias("event_ts"), f.timestamp_millis("g.read_ms").alias("ingest_ts"), *told,
        f.col("g.error_template"), f.col("g.fingerprint"), kept.alias("line"), f.col("signature"),
        f.to_date(at).alias("event_date"), f.col(BAD_REASON),
    ]  # fmt: skip
    e = f.col("e")
    return [[*place, event], [*place, e, _bad().alias(BAD_REASON), group("e").alias("g")], flat]


def _bad() -> Column:
    """Why the line is no event; null where it is one."""
    v, at = f.col("e.v"), f.col("e.ts_ms")
    lacks = f.concat_ws(", ", *(f.when(f.col(f"e.{name}").isNull(), f.lit(name)) for name in schemas.NEEDED))
    low, high = schemas.VERSIONS
    return (
        f.when(
            ~f.is_valid_utf8("text"), f.lit("a message that is not UTF-8, whole; its lines are read as far as they go")
        )
        .when(f.col("e").isNull() | (lacks == ", ".join(schemas.NEEDED)), f.lit("not a JSON object with an event"))
        .when((v < low) | (v > high), f.concat(f.lit("version "), v, f.lit(f"; {low} to {high} are known")))
        .when(lacks != "", f.concat(f.lit("lacks "), lacks))
        .when((at < 0) | (at >= _END_MS), f.lit("ts_ms is no time"))
    )


def _is_more() -> Column:
    """The columns do not hold all that the line says."""
    return f.col(f"e.{_CORRUPT}").isNotNull() | (f.col("e.v") != schemas.VERSION) | _says("\\u", _SURROGATE)


def _says(part: str, pattern: str) -> Column:
    """The line fits the pattern, which is only tried where it has the part that the pattern cannot do without."""
    return f.col("text").contains(part) & f.col("text").rlike(pattern)


def _told(name: str) -> Column:
    """The column of a field; what the journal leaves out because it is plain is told here."""
    field = f.col(f"e.{name}")
    deaths = f.col("e.deaths")
    if name == "fresh":
        field = f.coalesce(field, f.transform(deaths, _fresh))
    elif name == "first":
        oldest = f.get(deaths, f.size(deaths) - 1)
        known = f.when(oldest.isNotNull(), f.struct(*(oldest[one].alias(one) for one in schemas.FIRST.names)))
        field = f.when(field.isNotNull(), field).when(~_says('"first"', _FIRST_UNKNOWN), known)
    return field.alias(name)


def _fresh(death: Column) -> Column:
    return f.struct(*(death[one].alias(one) for one in schemas.FRESH.names))
