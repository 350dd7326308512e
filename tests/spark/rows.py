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
    entries: Rows = [entry for each in tables for entry in each.to_pylist(maps_as_pydicts="lossy")]
    return sorted(entries, key=lambda entry: (entry["offset"], entry["idx"]))


def one_by_one(every: Iterable[Message]) -> Rows:
    """The same, of lines of format 1 only."""
    parsed: list[lines.Row] = []
    for delivery in every:
        place = lines.Place(STREAM, delivery.offset, "none", 0)
        try:
            body = b"\n".join(reading.lines(delivery.body, properties_v(delivery)))
        except FormatError as error:
            parsed += [lines.unreadable(place, delivery.body, str(error))] if delivery.body else []
            continue
        if reading.is_plain(delivery.body, properties_v(delivery)):
            body = delivery.body
        places = [(place._replace(idx=idx), line) for idx, line in enumerate(lines.split(body)) if line]
        parsed += [lines.row(*each, latest=lines.latest_ms(time.time_ns() // 1000)) for each in places]
    events = [row for row in parsed if not row.bad]
    bad = [
        {"stream": STREAM, "offset": row.place.offset, "idx": row.place.idx, "reason": row.bad, "line": row.line}
        for row in parsed
        if row.bad
    ]
    return sorted(
        [*(listed([lines.table(events, 0)]) if events else []), *bad], key=lambda entry: (entry["offset"], entry["idx"])
    )


def properties_v(delivery: Message) -> int:
    """Its header `v`."""
    headers = properties.parse(delivery.header, properties.PROPERTIES_AT).headers
    return int(table.decode_value(headers, table.entries(headers)[b"v"][1]))


def written(every: Iterable[Message], folder: Path) -> list[Written]:
    """Their files, as a task of ingest writes them."""
    files = DayFiles(folder)
    return [*(file for each in made(every) for file in files.write(each)), *files.close()]


def frame(spark: "SparkSession", every: Iterable[Message], place: Path) -> "DataFrame":
    """Events as the archive has them, without `seg`: read from files below `place`."""
    for file in written(every, place / "files"):
        assert file.day != BAD, "lines that are no events"
        folder = place / "rows" / f"event_date={file.day}"
        folder.mkdir(parents=True, exist_ok=True)
        Path(file.path).rename(folder / Path(file.path).name)
    wanted = StructType([field for field in schemas.ARCHIVE if field.name != "seg"])
    return spark.read.schema(wanted).parquet(str(place / "rows")).select(*wanted.names)


def archived(spark: "SparkSession", journal: bytes, place: Path) -> "DataFrame":
    """Lines of a journal as the archive has them."""
    return frame(spark, messages(journal), place).withColumn("signature", f.lit("ok"))


def mixed(journal: list[bytes]) -> bytes:
    """Lines of it, each second hundred of them read from a message in format 2."""
    merged: list[bytes] = []
    for at in range(0, len(journal), 100):
        some = journal[at : at + 100]
        merged += reading.lines(rows_of(some)) if at % 200 else [raw.rstrip() for raw in some]
    return b"\n".join(merged) + b"\n"
