"""Fingerprints in Spark: the group of each event, by the router's own function (core.fingerprint)."""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StringType, StructField, StructType

from dlx_router.core.fingerprint import of_event

_CACHED: Final = 100_000
_ASKED: Final = ("vhost", "failed_queue", "reason", "kind", "detail")
_group = lru_cache(maxsize=_CACHED)(
    lambda vhost, queue, reason, kind, detail, type_, message, frame: of_event(
        {
            "vhost": vhost, "failed_queue": queue, "reason": reason, "kind": kind, "detail": detail,
            "error": {"type": type_, "message": message, "frame": frame},
        }
    )
)  # fmt: skip


def with_fingerprints(events: DataFrame) -> DataFrame:
    """The events with columns `fingerprint` and `error_template`, made anew; null for events about no letter.

    For events that were archived without them; at ingest they are made once, and kept.
    """
    bare = events.drop("fingerprint", "error_template")
    added = [StructField("fingerprint", StringType()), StructField("error_template", StringType())]
    return bare.mapInArrow(_fingerprinted, StructType([*bare.schema.fields, *added]))


def _fingerprinted(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        asked = [batch.column(name).to_pylist() for name in _ASKED]
        error = batch.column("error")
        said = [error.field(name).to_pylist() for name in ("type", "message", "frame")]
        found = [_group(*row) if row[1] is not None else None for row in zip(*asked, *said, strict=True)]
        ids = pa.array([one.id if one else None for one in found], pa.string())
        templates = pa.array([_template(one.error_type, one.message) if one else None for one in found], pa.string())
        yield batch.append_column("fingerprint", ids).append_column("error_template", templates)


def _template(error_type: str, message: str) -> str | None:
    return ": ".join(part for part in (error_type, message) if part) or None
