"""Messages of a stream → tables of the archive: in columns where that can be, line by line where it cannot.

Each line of each message is in one of them, whatever it is: an event, or a line that is none, with the reason.
"""

import time
from collections.abc import Iterable, Iterator
from typing import Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from dlx_router.core.signature import Signer, judged
from dlx_router.journal import reading
from dlx_router.journal.packing import FormatError
from dlx_router.spark import schemas
from dlx_router.spark.amqp import Message
from dlx_router.spark.archive import columns, lines
from dlx_router.spark.envelope import envelope

BAD: Final[pa.Schema] = to_arrow_schema(schemas.BAD, timezone="UTC").remove(len(schemas.BAD) - 1)  # seg is the folder's
_TEXT_BYTES: Final = 16 << 20  # of messages that are made into columns at once
_ROWS: Final = 5_000  # that are kept as Python objects


class Tables:
    """Messages of one stream on their way. `keep_lines`: rows have their line, so all go the slow way.

    `read_ms`: when they were read; None: now.
    """

    def __init__(
        self, stream: str, signer: Signer | None = None, *, keep_lines: bool = False, read_ms: int | None = None
    ) -> None:
        self._stream, self._signer, self._keep_lines = stream, signer, keep_lines
        self._read_us = None if read_ms is None else read_ms * 1000
        self._latest = lines.latest_ms(self._now())
        self._texts: list[columns.Text] = []
        self._size = 0
        self._kept = 0  # bytes of the lines behind rows and bad
        self._rows: list[lines.Row] = []
        self._bad: list[lines.Row] = []

    def add(self, messages: Iterable[Message]) -> Iterator[pa.Table]:
        """Take them; → events as tables of `columns.COLUMNS`, lines that are none as tables of `BAD`, now and then."""
        for message in messages:
            yield from self._add(message)
            if self._size >= _TEXT_BYTES:
                yield from self._columns()
            yield from self._full()

    def rest(self) -> Iterator[pa.Table]:
        """What has not been given out yet."""
        yield from self._columns()
        yield from self._slow()

    def _add(self, message: Message) -> Iterator[pa.Table]:
        is_journal, mac, version = envelope(message.header)
        place = lines.Place(self._stream, message.offset, str(judged(self._signer, message.body, mac)), 0)
        if not is_journal:
            yield from self._split(place, message.body)
            return
        try:
            text = reading.text_of(message.body, version)
            if text is message.body:
                yield from self._split(place, text)
            elif self._keep_lines:
                yield from self._written(place, text)
            else:
                self._texts.append(columns.Text(*place[:3], message.body, text))
                self._size += len(text)
        except FormatError as error:
            self._unreadable(place, message.body, error)

    def _columns(self) -> Iterator[pa.Table]:
        texts, self._texts, self._size = self._texts, [], 0
        if not texts:
            return
        fast = columns.read(texts, self._now())
        for place, line in fast.rows:
            self._line(place, line)
        for text in fast.messages:
            place = lines.Place(*text[:3], 0)
            try:
                yield from self._written(place, text.text)
            except FormatError as error:
                self._unreadable(place, text.body, error)
        if fast.table is not None:
            yield fast.table

    def _full(self) -> Iterator[pa.Table]:
        """What is read line by line, once it is much: by rows, and by bytes, because anybody may write large lines."""
        if len(self._rows) + len(self._bad) >= _ROWS or self._kept >= _TEXT_BYTES:
            yield from self._slow()

    def _slow(self) -> Iterator[pa.Table]:
        self._kept = 0
        rows, self._rows, bad, self._bad = self._rows, [], self._bad, []
        if rows:
            yield columns.encoded(lines.table(rows, self._now()))
        if bad:
            yield _bad(bad, self._now())

    def _written(self, place: lines.Place, text: bytes) -> Iterator[pa.Table]:
        """The text of a message in format 2, line by line."""
        yield from self._split(place, b"".join(reading.lines_of(text))[:-1])

    def _split(self, place: lines.Place, body: bytes) -> Iterator[pa.Table]:
        for idx, line in enumerate(lines.split(body)):
            if line:
                self._line(place._replace(idx=idx), line)
                yield from self._full()

    def _line(self, place: lines.Place, line: bytes) -> None:
        row = lines.row(place, line, keep_line=self._keep_lines, latest=self._latest)
        self._kept += len(line)
        (self._bad if row.bad else self._rows).append(row)

    def _now(self) -> int:
        """When they are read, in microseconds."""
        return time.time_ns() // 1000 if self._read_us is None else self._read_us

    def _unreadable(self, place: lines.Place, body: bytes, why: FormatError) -> None:
        if body:
            self._kept += len(body)
            self._bad.append(lines.unreadable(place, body, str(why)))


def _bad(rows: list[lines.Row], read_us: int) -> pa.Table:
    values = [(*row.place[:2], row.place.idx, row.bad, row.line, read_us) for row in rows]
    columns_ = zip(zip(*values, strict=True), BAD.types, strict=True)
    return pa.table([pa.array(column, kind) for column, kind in columns_], schema=BAD)
