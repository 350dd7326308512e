"""The messages of a range of a stream, as they come or as record batches: all of them, or an error."""

from collections.abc import Callable, Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from dlx_router.core.signature import Signer, judged
from dlx_router.journal import reading
from dlx_router.journal.fields import MEDIA_TYPE
from dlx_router.journal.packing import FormatError
from dlx_router.spark import schemas
from dlx_router.spark.amqp import Message
from dlx_router.spark.envelope import described
from dlx_router.spark.offsets import DataLoss, Range
from dlx_router.spark.options import Options

_BATCH_ROWS: Final = 2000
_BATCH_BYTES: Final = 8 << 20
_ARROW: Final[pa.Schema] = to_arrow_schema(schemas.SOURCE)
_JOURNAL: Final = MEDIA_TYPE.decode()


def read(options: Options, wanted: Range) -> Iterator[pa.RecordBatch]:
    """Every message of the range as record batches of `schemas.SOURCE`; StreamError or DataLoss, never less."""
    signer = options.signers().get(wanted.stream)
    kept: list[Message] = []
    size = 0
    for messages in whole(options, wanted):
        kept += messages
        size += sum(len(message.body) for message in messages)
        if len(kept) >= _BATCH_ROWS or size >= _BATCH_BYTES:
            yield _batch(wanted.stream, kept, signer)
            kept, size = [], 0
    if kept:
        yield _batch(wanted.stream, kept, signer)


def whole(
    options: Options, wanted: Range, on_loss: Callable[[Range], None] = lambda _gone: None
) -> Iterator[list[Message]]:
    """Every message of the range as they come; StreamError or DataLoss. `on_loss` hears of less that is allowed."""
    with options.connect() as connection:
        is_first = True
        for messages in connection.read(wanted.stream, wanted.start, wanted.end, prefetch=options.prefetch):
            if is_first and (gone := _gone(options, wanted, messages)):
                on_loss(gone)
            is_first = False
            yield messages


def _gone(options: Options, wanted: Range, messages: list[Message]) -> Range | None:
    """What of the range went: a stream that begins later than asked does not say so. DataLoss where none may.

    A gap between offsets is natural, a lost beginning is not.
    """
    first = messages[0].offset if messages else wanted.end
    if first <= wanted.start:
        return None
    with options.connect() as other:
        begin = min(other.probe(wanted.stream).begin, first)
    if begin <= wanted.start:
        return None
    if options.fail_on_data_loss:
        raise DataLoss(
            f"stream {wanted.stream!r}: offsets {wanted.start} to {begin - 1} went while they were to be read"
        )
    return wanted._replace(end=begin)


def _batch(stream: str, messages: list[Message], signer: Signer | None) -> pa.RecordBatch:
    kinds, headers, signatures, bodies, reasons = [], [], [], [], []
    for message in messages:
        kind, plain, mac, version = described(message.header)
        signatures.append(str(judged(signer, message.body, mac)))
        kinds.append(kind)
        headers.append(plain)
        body, reason = _opened(kind, message.body, version)
        bodies.append(body)
        reasons.append(reason)
    columns = [
        pa.array([stream] * len(messages), pa.string()),
        pa.array([message.offset for message in messages], pa.int64()),
        pa.array(kinds, pa.string()),
        pa.array(headers, _ARROW.field("headers").type),
        pa.array(bodies, pa.binary()),
        pa.array(signatures, pa.string()),
        pa.array(reasons, pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=_ARROW)


def _opened(kind: str | None, body: bytes, version: int | None) -> tuple[bytes, str | None]:
    """The lines of a journal's message in any format, or the body as it is and, where it is one, why that is so."""
    if kind != _JOURNAL or reading.is_plain(body, version):
        return body, None
    try:
        return b"\n".join(reading.lines(body, version)), None
    except FormatError as error:
        return body, str(error)
