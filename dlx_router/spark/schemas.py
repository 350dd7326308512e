"""Every table's columns, once: the journal's event, the source, the archive, what could not be read.

`EVENT` follows docs/journal.md field by field (a test compares them); docs/pipeline.md is made of these lists. Columns
are only ever added: what was archived years ago is read by the newest code.
"""

from typing import Final

from pyspark.sql import types as t

Columns = tuple[tuple[str, t.DataType, str], ...]  # name, type, meaning


def _struct(**fields: t.DataType) -> t.StructType:
    return t.StructType([t.StructField(name, kind) for name, kind in fields.items()])


_TEXT: Final = t.StringType()
_INT: Final = t.IntegerType()
_LONG: Final = t.LongType()
_TEXTS: Final = t.ArrayType(_TEXT)
_MAP: Final = t.MapType(_TEXT, _TEXT)

DEATH: Final = _struct(
    queue=_TEXT,
    reason=_TEXT,
    count=_LONG,
    time_ms=_LONG,
    exchange=_TEXT,
    routing_keys=_TEXTS,
    original_expiration=_TEXT,
)
FRESH: Final = _struct(queue=_TEXT, reason=_TEXT, count=_LONG)
FIRST: Final = _struct(queue=_TEXT, exchange=_TEXT, routing_keys=_TEXTS, reason=_TEXT)
PROPS: Final = _struct(
    message_id=_TEXT,
    correlation_id=_TEXT,
    content_type=_TEXT,
    content_encoding=_TEXT,
    type=_TEXT,
    app_id=_TEXT,
    reply_to=_TEXT,
    user_id=_TEXT,
    expiration=_TEXT,
    priority=_INT,
    delivery_mode=_INT,
    timestamp_s=t.DecimalType(20, 0),  # unsigned, 64 bits
)

EVENT: Final = _struct(
    v=_INT,
    event_id=_TEXT,
    id=_TEXT,
    serial=_LONG,
    possible_copy=t.BooleanType(),
    kind=_TEXT,
    observed=t.BooleanType(),
    router_id=_TEXT,
    vhost=_TEXT,
    source=_TEXT,
    arrival=_TEXT,
    exchange=_TEXT,
    routing_key=_TEXT,
    failed_queue=_TEXT,
    reason=_TEXT,
    cause=_TEXT,
    detail=_TEXT,
    attempts=_LONG,
    base_attempts=_LONG,
    redrives=_LONG,
    tries=_LONG,
    policy=_TEXT,
    revision=_TEXT,
    target=_struct(exchange=_TEXT, routing_key=_TEXT),
    rung_ms=_LONG,
    refused=_TEXT,
    state=_TEXT,
    said_cause=_TEXT,
    known_before=t.BooleanType(),
    rejected_since=t.BooleanType(),
    breaker=_TEXT,
    redrive_id=_TEXT,
    lease=_struct(id=_TEXT, by=_TEXT, receives=_LONG, ended=_TEXT, key=_TEXT),
    parent=_TEXT,
    deaths=t.ArrayType(DEATH),
    fresh=t.ArrayType(FRESH),
    first=FIRST,
    ts_ms=_LONG,
    draw=t.DoubleType(),
    due_ms=_LONG,
    first_death_ms=_LONG,
    since_ms=_LONG,
    last_death_ms=_LONG,
    props=PROPS,
    digest=_struct(crc32=_LONG, size=_LONG),
    headers=_MAP,
    body_values=_MAP,
    redacted=_TEXTS,
    declared=_struct(never=t.BooleanType(), retry_after_ms=_LONG, tag=_TEXT),
    error=_struct(type=_TEXT, message=_TEXT, frame=_TEXT),
    body_mode=_TEXT,
    body_sha256=_TEXT,
    body=_TEXT,
    events=_LONG,
    from_ms=_LONG,
    to_ms=_LONG,
    actor=_TEXT,
    action=_TEXT,
    details=_MAP,
)
"""One line of the journal, as docs/journal.md has it. Archived, `fresh` and `first` are always told, see there."""

SOURCE_COLUMNS: Final[Columns] = (
    ("stream", _TEXT, "name of the stream"),
    ("offset", _LONG, "offset of the message in it; grows, with gaps"),
    ("content_type", _TEXT, "as the publisher set it"),
    ("headers", _MAP, "headers with a plain value, each as JSON"),
    ("body", t.BinaryType(), "the message; of a compressed one of a journal its lines, as format 1 has them"),
    ("signature", _TEXT, "whether a router signed it: ok, none, bad; unknown_key: not with `provenanceKeyFile`"),
    ("unreadable", _TEXT, "why a compressed message of a journal cannot be read; `body` is then as it came; else null"),
)
PLACE_COLUMNS: Final[Columns] = (
    ("stream", _TEXT, "stream that the event was read from"),
    ("offset", _LONG, "offset of the message that had it"),
    ("idx", _INT, "its line in that message, from 0; (stream, offset, idx) is unique in raw"),
    ("event_ts", t.TimestampType(), "`ts_ms` as a timestamp, UTC"),
    ("ingest_ts", t.TimestampType(), "when it was read from the stream; null of a loss that was accepted"),
)
ADDED_COLUMNS: Final[Columns] = (
    ("error_template", _TEXT, "the error without what differs from letter to letter"),
    ("fingerprint", _TEXT, "the failure group: letters that failed for one cause have one"),
    ("line", _TEXT, "the line as it came, where the columns do not hold all of it; else null"),
    ("signature", _TEXT, "of the message that had it, as the source says; null: archived before it was looked at"),
)
PARTITION_COLUMNS: Final[Columns] = (
    ("event_date", t.DateType(), "day of `event_ts`, UTC"),
    ("seg", _TEXT, "the segment: one micro-batch of ingest, or `compacted`"),
)
PARTITIONS: Final = tuple(name for name, _, _ in PARTITION_COLUMNS)
BAD_COLUMNS: Final[Columns] = (
    ("stream", _TEXT, "as in raw"),
    ("offset", _LONG, "as in raw"),
    ("idx", _INT, "as in raw"),
    ("reason", _TEXT, "why it is no event: not JSON, a field that is missing, a version that is too new"),
    ("line", t.BinaryType(), "the line as it came; null: erased, or older than is kept"),
    ("ingest_ts", t.TimestampType(), "when it was read from the stream"),
    ("seg", _TEXT, "as in raw"),
)
NEEDED: Final = ("v", "event_id", "kind", "router_id", "vhost", "ts_ms")  # of every event
VERSION: Final = 1
VERSIONS: Final = (0, 2)  # readers accept one more and one less than 1


def schema(columns: Columns) -> t.StructType:
    """The columns as a Spark schema; all may be null, as in every Parquet file that Spark writes."""
    return t.StructType([t.StructField(name, kind) for name, kind, _ in columns])


SOURCE: Final = schema(SOURCE_COLUMNS)
ARCHIVE: Final = t.StructType(
    [*schema(PLACE_COLUMNS).fields, *EVENT.fields, *schema(ADDED_COLUMNS).fields, *schema(PARTITION_COLUMNS).fields]
)
"""What `archive.read(spark, path)` gives: one row an event."""
BAD: Final = schema(BAD_COLUMNS)
