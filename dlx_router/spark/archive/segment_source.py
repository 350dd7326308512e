"""The journal's streams as files of the archive: a source whose tasks read, make the rows, and write them.

What Spark carries are the names of files; it gives out the work, tries again what failed, and keeps the positions. A
task that is tried again writes other files, and only those of the one that came to its end are told.
"""

from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa
from pyspark.sql import types as t
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema

from dlx_router.spark.archive.day_files import GONE, DayFiles, Written
from dlx_router.spark.archive.tables import Tables
from dlx_router.spark.offsets import Position, Range, checked
from dlx_router.spark.options import Options
from dlx_router.spark.range_reader import whole
from dlx_router.spark.source import StreamReader

NAME: Final = "dlx_router_segments"
FOLDER: Final = "folder"
KEEP_LINES: Final = "keeplines"  # Spark lowers them
FILES: Final = t.StructType().add("day", t.StringType()).add("path", t.StringType()).add("rows", t.LongType())
_ARROW: Final[pa.Schema] = to_arrow_schema(FILES)


class SegmentSource(DataSource):
    """Options: those of `rabbitmq_stream`; FOLDER, which every task can write into; KEEP_LINES."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        values = {name.lower(): value for name, value in options.items()}
        self._folder = values.pop(FOLDER)
        self._keep_lines = values.pop(KEEP_LINES, "") == "true"
        self._read = Options.read(values)

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> t.StructType:
        return FILES

    def streamReader(self, schema: t.StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's interface
        return self.segments()

    def segments(self) -> "SegmentReader":
        """The reader, for whoever is no Spark."""
        return SegmentReader(self._read, self._folder, keep_lines=self._keep_lines)


class SegmentReader(StreamReader):
    """As `rabbitmq_stream`, but for what becomes of the messages."""

    def __init__(self, options: Options, folder: str, *, keep_lines: bool) -> None:
        super().__init__(options)
        self._folder, self._keep_lines = folder, keep_lines

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        files = [*self.files(partition.value)]
        columns = [pa.array([file[at] for file in files], kind) for at, kind in enumerate(_ARROW.types)]
        yield pa.RecordBatch.from_arrays(columns, schema=_ARROW)

    def files(self, wanted: Range, read_ms: int | None = None) -> Iterator[Written]:
        """Every message of the range, written into files of the folder; StreamError or DataLoss, never less.

        Where loss is allowed and retention was faster than this read, GONE says so.
        `read_ms`: when they were read; None: now.
        """
        signer = self._options.signers().get(wanted.stream)
        tables = Tables(wanted.stream, signer, keep_lines=self._keep_lines, read_ms=read_ms)
        files = DayFiles(Path(self._folder))
        gone: list[Range] = []
        for messages in whole(self._options, wanted, gone.append):
            for table in tables.add(messages):
                yield from files.write(table)
        for table in tables.rest():
            yield from files.write(table)
        yield from files.close()
        yield from (Written(GONE, "", lost.end - lost.start) for lost in gone)

    def again(self, wanted: Iterable[Range], ends: Mapping[str, Position], read_ms: int) -> list[Written]:
        """Files of what was read before, then, up to these ends, if the streams are the same. StreamError or DataLoss.

        They say so: a time of now would say that the journal is known until now.
        """
        return [
            file for each in wanted for file in self.settled(partial(self._proven, each, ends[each.stream], read_ms))
        ]

    def _proven(self, wanted: Range, end: Position, read_ms: int) -> list[Written]:
        stream = wanted.stream
        with self._options.connect() as connection:
            checked(connection, stream, end, connection.probe(stream), fail_on_loss=True, may_lag=self._may_lag)
        return [*self.files(wanted, read_ms)]
