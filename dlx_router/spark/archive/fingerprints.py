"""The failure group of each event, computed once, when it is archived, by the function that the index uses too.

Few of a batch's rows differ in what a group is made of, so only those that do are computed.
"""

import json
import time
from functools import lru_cache
from typing import Any, Final, cast

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as f
from pyspark.sql import types as t
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import to_arrow_type

from dlx_router.core.fingerprint import fingerprint

_GROUP: Final = t.StructType().add("fingerprint", t.StringType()).add("error_template", t.StringType())
_TYPE: Final = t.StructType([*_GROUP.fields, t.StructField("read_ms", t.LongType())])
_ARROW: Final = to_arrow_type(_GROUP)


def group(event: str) -> Column:
    """`fingerprint` and `error_template` of the struct `event`, null for what is no letter's; and `read_ms`, now."""
    said = f.col(f"{event}.error.message")
    detail = f.when(f.col(f"{event}.kind") == "quarantined", f.col(f"{event}.detail"))
    names = ("vhost", "failed_queue", "reason", "error.type", "error.frame")
    parts = [*(f.col(f"{event}.{name}") for name in names), f.coalesce(said, detail)]
    told = f.to_json(f.array(*(f.coalesce(part, f.lit("")) for part in parts)))  # names hold any character
    key = f.when(f.col(f"{event}.failed_queue").isNotNull() & f.col(f"{event}.reason").isNotNull(), told)
    make: Any = arrow_udf  # its types know no more than its name
    return cast("Column", make(_computed, _TYPE)(key))


def _computed(keys: pa.Array) -> pa.Array:
    """Arrow array of JSON arrays of the parts → array of structs."""
    encoded = pc.dictionary_encode(keys)
    found = [_one(key) for key in encoded.dictionary.to_pylist()]
    told = pa.array(found, _ARROW).take(encoded.indices)
    read_ms = pa.repeat(pa.scalar(time.time_ns() // 1_000_000, pa.int64()), len(keys))
    return pa.StructArray.from_arrays([*told.flatten(), read_ms], _TYPE.names)


@lru_cache(maxsize=10_000)
def _one(key: str) -> dict[str, str]:
    vhost, queue, reason, kind, frame, message = json.loads(key)
    found = fingerprint(vhost, queue, reason, error_type=kind, frame=frame, message=message)
    return {"fingerprint": found.id, "error_template": found.message}
