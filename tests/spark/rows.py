"""Messages of a stream → rows of the archive, without a broker: as ingest makes them, and each line by itself."""

import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from dlx_router.journal import reading
from dlx_router.journal.fields import MEDIA_TYPE
from dlx_router.journal.packing import FormatError
from dlx_router.spark import schemas
from dlx_router.spark.amqp import Message
from dlx_router.spark.archive import lines
from dlx_router.spark.archive.day_files import BAD, DayFiles, Written
from dlx_router.spark.archive.tables import Tables
from dlx_router.wire import properties, table
from tests.journal.rows_of import rows_of
from tools.pipeline import week
from tools.pipeline.causes import WEEK_S

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STREAM = "s"
AS_OF_MS = week.MONDAY_MS + (WEEK_S + 86_400) * 1000
Rows = list[dict[str, Any]]


def message(offset: int, body: bytes, version: int = 1, kind: bytes = MEDIA_TYPE) -> Message:
    """As it comes from the stream."""
    headers = table.long_(b"v", version)
    return Message(offset, bytes(12) + properties.build(content_type=kind, headers=headers), body)


def messages(*bodies: bytes) -> list[Message]:
    """One of each body, at the offsets from 0 on."""
    return [message(at, body, 2 if body.startswith(b"\x28\xb5\x2f\xfd") else 1) for at, body in enumerate(bodies)]


def made(every: Iterable[Message], **how: Any) -> list[pa.Table]:
    """The tables that ingest makes of them."""
    tables = Tables(STREAM, **how)
    return [*tables.add(every), *tables.rest()]


def rows(*bodies: bytes, **how: Any) -> Rows:
    """All of them in the order of their places: events, and lines that are none, with `reason`."""
    return listed(made(messages(*bodies), **how))


def listed(tables: Iterable[pa.Table]) -> Rows:
    """The same of tables."""
    found: Rows = [one for each in tables for one in each.to_pylist(maps_as_pydicts="lossy")]
    return sorted(found, key=lambda one: (one["offset"], one["idx"]))


def one_by_one(every: Iterable[Message]) -> Rows:
    """The same, of lines of format 1 only."""
    found: list[lines.Row] = []
    for one in every:
        place = lines.Place(STREAM, one.offset, "none", 0)
        try:
            body = b"\n".join(reading.lines(one.body, properties_v(one)))
        except FormatError as error:
            found += [lines.unreadable(place, one.body, str(error))] if one.body else []
            continue
        if reading.is_plain(one.body, properties_v(one)):
            body = one.body
        told = [(place._replace(idx=idx), line) for idx, line in enumerate(lines.split(body)) if line]
        found += [lines.row(*each, latest=lines.latest_ms(time.time_ns() // 1000)) for each in told]
    events = [one for one in found if not one.bad]
    bad = [
        {"stream": STREAM, "offset": one.place.offset, "idx": one.place.idx, "reason": one.bad, "line": one.line}
        for one in found
        if one.bad
    ]
    return sorted(
        [*(listed([lines.table(events, 0)]) if events else []), *bad], key=lambda one: (one["offset"], one["idx"])
    )


def properties_v(one: Message) -> int:
    """Its header `v`."""
    found = properties.parse(one.header, properties.PROPERTIES_AT).headers
    return int(table.decode_value(found, table.entries(found)[b"v"][1]))


def written(every: Iterable[Message], folder: Path) -> list[Written]:
    """Their files, as a task of ingest writes them."""
    files = DayFiles(folder)
    return [*(one for each in made(every) for one in files.write(each)), *files.close()]


def frame(spark: "SparkSession", every: Iterable[Message], place: Path) -> "DataFrame":
    """Events as the archive has them, without `seg`: read from files below `place`."""
    for one in written(every, place / "files"):
        assert one.day != BAD, "lines that are no events"
        folder = place / "rows" / f"event_date={one.day}"
        folder.mkdir(parents=True, exist_ok=True)
        Path(one.path).rename(folder / Path(one.path).name)
    wanted = StructType([field for field in schemas.ARCHIVE if field.name != "seg"])
    return spark.read.schema(wanted).parquet(str(place / "rows")).select(*wanted.names)


def archived(spark: "SparkSession", journal: bytes, place: Path) -> "DataFrame":
    """Lines of a journal as the archive has them."""
    return frame(spark, messages(journal), place).withColumn("signature", f.lit("ok"))


def mixed(journal: list[bytes]) -> bytes:
    """Lines of it, each second hundred of them read from a message in format 2."""
    told: list[bytes] = []
    for at in range(0, len(journal), 100):
        some = journal[at : at + 100]
        told += reading.lines(rows_of(some)) if at % 200 else [one.rstrip() for one in some]
    return b"\n".join(told) + b"\n"
