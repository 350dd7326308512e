"""`rabbitmq_stream`: a stream of RabbitMQ as a DataFrame, whole or as it grows.

    spark.dataSource.register(RabbitMQStream)
    spark.readStream.format("rabbitmq_stream").option("connection", "env:AMQP_URL").option("streams", "orders").load()

Every message between two offsets is read exactly once by whoever keeps the offsets, as Structured Streaming does: what
cannot be read is an error, never a shorter answer. Options: `options.MEANINGS`; columns: `schemas.SOURCE_COLUMNS`.
"""

import time
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from typing import Any, Final, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from dlx_router.spark import schemas
from dlx_router.spark.amqp import Connection, Probe, StreamError, StreamMissing
from dlx_router.spark.offsets import (
    DataLoss,
    Limits,
    Position,
    Positions,
    StreamShorter,
    advanced,
    beginning,
    checked,
    dated,
    first_offset,
    position,
    ranges,
    shares,
)
from dlx_router.spark.options import EARLIEST, LATEST, Options
from dlx_router.spark.range_reader import read
from dlx_router.spark.stream_end import ended_ms

NAME: Final = "rabbitmq_stream"
T = TypeVar("T")

_FIRST_PAUSE_S: Final = 0.2
_LONGEST_PAUSE_S: Final = 5.0


class RabbitMQStream(DataSource):
    """The data source; a wrong option is refused when it is loaded."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._read = Options.read(dict(options))

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        return schemas.SOURCE

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - Spark's interface
        return BatchReader(self._read)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's interface
        return StreamReader(self._read)


class BatchReader(DataSourceReader):
    """All messages between startingOffsets and endingOffsets, as they are when the plan is made."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        with options.connect() as connection:
            probes = {stream: connection.probe(stream) for stream in options.streams}
        starts = {stream: _start(options, stream, now) for stream, now in probes.items()}
        ends = {stream: _end(options, stream, now) for stream, now in probes.items()}
        return _partitions(options, starts, {stream: max(end, starts[stream]) for stream, end in ends.items()})

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read(self._options, partition.value)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The same as it grows. The offsets in Spark's checkpoint are `offsets.Positions`."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._target: dict[str, int] | None = None
        self._target_ms: dict[str, int | None] = {}  # until when the streams tell everything up to there
        self._newest: Positions | None = None
        self._may_lag = True  # a node whose replica copies what it lacks is waited for

    def initialOffset(self) -> Positions:  # noqa: N802 - Spark's name
        def look(connection: Connection) -> Positions:
            probes = {stream: connection.probe(stream) for stream in self._options.streams}
            return {stream: self._initial(connection, stream, now) for stream, now in probes.items()}

        return self._asked(look)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadMaxRows(self._options.max_offsets)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        asked_ms = time.time_ns() // 1_000_000

        def look(connection: Connection) -> None:
            probes = {stream: connection.probe(stream) for stream in self._options.streams}
            self._target_ms = {each: ended_ms(connection, each, now, asked_ms) for each, now in probes.items()}
            self._target = {stream: now.end for stream, now in probes.items()}

        self._asked(look)

    def latestOffset(self, start: Positions, limit: ReadLimit) -> Positions:  # noqa: N802 - Spark's name
        return self._asked(lambda connection: self._latest(connection, start, limit))

    def reportLatestOffset(self) -> Positions | None:  # noqa: N802 - Spark's name
        return self._newest

    def partitions(self, start: Positions, end: Positions) -> Sequence[InputPartition]:
        starts = {stream: first_offset(start.get(stream), at) for stream, at in end.items()}
        return _partitions(self._options, starts, {stream: at["next"] for stream, at in end.items()})

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read(self._options, partition.value)

    def _latest(self, connection: Connection, start: Positions, limit: ReadLimit) -> Positions:
        asked_ms, known, probes = time.time_ns() // 1_000_000, dict(start), {}
        for stream in self._options.streams:
            now = self._probed(connection, stream)
            if now is not None:
                probes[stream] = now
                known[stream] = self._known(connection, stream, start.get(stream), now)
        self._newest = known | {stream: position(now.end, now.newest) for stream, now in probes.items()}
        ends = {stream: self._reachable(stream, now) for stream, now in probes.items()}
        backlogs = {stream: max(end - known[stream]["next"], 0) for stream, end in ends.items()}
        limits = self._limits(backlogs, ends, limit)
        reached = known | {
            stream: advanced(connection, stream, known[stream], now, limits[stream])
            for stream, now in probes.items()
            if backlogs[stream]
        }
        if reached == start:  # a moment alone is no news: Spark would make a batch of it, again and again
            return reached
        return reached | {
            stream: dated(
                reached[stream], start.get(stream), self._ends(connection, stream, reached[stream], now, asked_ms)
            )
            for stream, now in probes.items()
        }

    def _ends(self, connection: Connection, stream: str, at: Position, now: Probe, asked_ms: int) -> dict[int, int]:
        """Where a stream ended, of what was read of it up to `at`, and until when it tells everything before."""
        target, target_ms = (self._target or {}).get(stream), self._target_ms.get(stream)
        ends = {} if target is None or target_ms is None else {target: target_ms}
        now_ms = ended_ms(connection, stream, now, asked_ms) if at["next"] == now.end else None
        return ends if now_ms is None else {**ends, now.end: max(now_ms, ends.get(now.end, 0))}

    def _probed(self, connection: Connection, stream: str) -> Probe | None:
        try:
            return connection.probe(stream)
        except StreamMissing as error:
            if self._options.fail_on_data_loss:
                raise DataLoss(f"{error}; a router makes its journal when it starts") from error
            return None

    def _known(self, connection: Connection, stream: str, at: Position | None, now: Probe) -> Position:
        if at is None:  # named since the last run
            return self._initial(connection, stream, now)
        return self._checked(connection, stream, at, now)

    def _initial(self, connection: Connection, stream: str, now: Probe) -> Position:
        """Where to begin; a position of an earlier run is checked as one of this run."""
        starting = self._options.starting
        if not isinstance(starting, str) and isinstance(at := starting.get(stream), dict):
            return self._checked(connection, stream, at, now)
        start = _start(self._options, stream, now)
        return beginning(start, now.newest if start == now.end else None)

    def _checked(self, connection: Connection, stream: str, at: Position, now: Probe) -> Position:
        fails = self._options.fail_on_data_loss
        return checked(connection, stream, at, now, fail_on_loss=fails, may_lag=self._may_lag)

    def _reachable(self, stream: str, now: Probe) -> int:
        """The end of what may be read of it: with AvailableNow nothing that came later."""
        return now.end if self._target is None else min(now.end, self._target.get(stream, 0))

    def _limits(self, backlogs: dict[str, int], ends: dict[str, int], limit: ReadLimit) -> dict[str, Limits]:
        if isinstance(limit, ReadAllAvailable):
            return {stream: Limits(end) for stream, end in ends.items()}
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else self._options.max_offsets
        offsets, sizes = shares(backlogs, most), shares(backlogs, self._options.max_bytes)
        return {stream: Limits(ends[stream], offsets[stream], sizes[stream]) for stream in backlogs}

    def tried(self, call: Callable[[], T]) -> T:
        """Its result; where the broker is away, again and again for a while."""
        deadline, pause = None, _FIRST_PAUSE_S
        while True:
            try:
                return call()
            except StreamMissing:
                raise
            except StreamError:
                deadline = deadline or time.monotonic() + self._options.retry_for_s
                if time.monotonic() + pause > deadline:
                    raise
            time.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE_S)

    def _asked(self, ask: Callable[[Connection], T]) -> T:
        """The broker's answer, as `tried`: an error here ends the query."""

        def call() -> T:
            with self._options.connect() as connection:
                return ask(connection)

        return self.settled(call)

    def settled(self, call: Callable[[], T]) -> T:
        """As `tried`; a stream that is shorter than it was for all that time is another one."""
        self._may_lag = True
        try:
            return self.tried(call)
        except StreamShorter:
            self._may_lag = False
            return self.tried(call)


def _partitions(options: Options, starts: dict[str, int], ends: dict[str, int]) -> list[InputPartition]:
    cut = ranges(starts, ends, most=options.partitions, least_offsets=options.min_offsets)
    return [InputPartition(part) for part in cut]


def _start(options: Options, stream: str, now: Probe) -> int:
    given: Any = options.starting
    given = given if isinstance(given, str) else given.get(stream, given.get("*", EARLIEST))
    if isinstance(given, str):
        return now.end if given == LATEST else now.begin
    start = int(given["next"] if isinstance(given, dict) else given)
    if start < now.begin and now.first is not None and options.fail_on_data_loss:
        raise DataLoss(f"stream {stream!r}: startingOffsets {start}, but it begins at {now.begin}")
    return max(start, now.begin)


def _end(options: Options, stream: str, now: Probe) -> int:
    return now.end if isinstance(options.ending, str) else min(options.ending.get(stream, now.end), now.end)
