"""What the analyses share: a result has exactly its schema's columns and types, a share its interval."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from dlx_router.spark.intervals import Z


def shaped(frame: DataFrame, schema: str) -> DataFrame:
    """The columns of the schema (DDL), in its order and of its types; anything else is left out."""
    wanted = struct(schema)
    return frame.select(*(f.col(field.name).cast(field.dataType).alias(field.name) for field in wanted))


def share(good: Column, of: Column) -> Column:
    """Good / of, null where `of` is 0."""
    return f.when(of > 0, good / of)


def low(good: Column, of: Column) -> Column:
    """Lower end of Wilson's 95 % interval of the share; null where `of` is 0. Source: E. B. Wilson, JASA 22 (1927)."""
    return f.when(of > 0, f.greatest(f.lit(0.0), _centre(good, of) - _half(good, of)))


def high(good: Column, of: Column) -> Column:
    """Upper end of Wilson's 95 % interval of the share; null where `of` is 0."""
    return f.when(of > 0, f.least(f.lit(1.0), _centre(good, of) + _half(good, of)))


def rated(name: str, good: Column, of: Column) -> dict[str, Column]:
    """Columns: the share under `name`, and its interval as `low` and `high`."""
    return {name: share(good, of), "low": low(good, of), "high": high(good, of)}


def _centre(good: Column, of: Column) -> Column:
    return (good + Z * Z / 2) / (of + Z * Z)


def _half(good: Column, of: Column) -> Column:
    return Z * f.sqrt(good * (of - good) / of + Z * Z / 4) / (of + Z * Z)


def quantiles(of: Column, name: str) -> list[Column]:
    """Exact p50, p95 and p99 as `<name>_p50_ms` and so on; null where there is none."""
    return [
        f.percentile(of, point).cast("long").alias(f"{name}_p{round(point * 100)}_ms") for point in (0.5, 0.95, 0.99)
    ]


def struct(ddl: str) -> StructType:
    """The schema that DDL says."""
    schema = StructType.fromDDL(ddl)
    assert isinstance(schema, StructType)
    return schema
