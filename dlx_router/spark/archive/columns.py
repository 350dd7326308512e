"""Messages of format 2 → columns of the archive, without a Python object an event: the fast way.

What letters share is read once and becomes dictionaries; what is a letter's own is cut out of the text, see `row_text`.
A row that is not plain, and a message that holds anything but shared lines and rows, are left to `lines`, which would
make the same rows of all the others too: a law of the tests.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dlx_router.journal import reading
from dlx_router.spark import schemas
from dlx_router.spark.archive import lines
from dlx_router.spark.archive.row_text import FURTHER, Mask, cut
from dlx_router.spark.archive.shared_lines import Numbers, SharedLines

_BRACKET, _BRACE, _END, _RETURN, _ASCII = b"["[0], b"{"[0], b"\n"[0], b"\r"[0], 0x80
_DICTIONARY: Final = pa.dictionary(pa.int32(), pa.string())
_OWN_TEXT: Final = frozenset({"event_id", "id", "line", *FURTHER})
_SHARED_TEXT: Final = frozenset(
    field.name for field in lines.FILE if pa.types.is_string(field.type) and field.name not in _OWN_TEXT
)
_MEMBERS: Final[pa.StructType] = lines.EVENT.field("props").type
_DEATH: Final[pa.StructType] = lines.EVENT.field("deaths").type.value_type


COLUMNS: Final = pa.schema(
    [field.with_type(_DICTIONARY) if field.name in _SHARED_TEXT else field for field in lines.FILE]
)
"""`lines.FILE`; what many rows share is a dictionary."""


class Text(NamedTuple):
    """A message of format 2: where it stood, what its signature is worth, it as it came, and unpacked."""

    stream: str
    offset: int
    signature: str
    body: bytes
    text: bytes


class Fast(NamedTuple):
    """What became of messages: a table; rows that are not plain, as lines of format 1; messages that hold others."""

    table: pa.Table | None
    rows: list[tuple[lines.Place, bytes]]
    messages: list[Text]


def encoded(rows: pa.Table) -> pa.Table:
    """A table of `lines.FILE` as one of `COLUMNS`."""
    pairs = zip(rows.column_names, rows.columns, strict=True)
    columns = [column.dictionary_encode() if name in _SHARED_TEXT else column for name, column in pairs]
    return pa.table(columns, schema=COLUMNS)


def read(messages: Sequence[Text], ingest_ts: int) -> Fast:
    """The rows of the messages, each in one of the three. `ingest_ts`: microseconds."""
    return _Batch(messages).read(ingest_ts)


class _Batch:
    """Messages as one text, and where the lines are in it."""

    def __init__(self, messages: Sequence[Text]) -> None:
        self._messages = messages
        ended = [message.text if message.text.endswith(b"\n") else message.text + b"\n" for message in messages]
        self._buffer = b"".join(ended)
        self._bytes = np.frombuffer(self._buffer, np.uint8)
        behind = np.flatnonzero(self._bytes == _END) + 1
        self._starts: Numbers = np.concatenate(([0], behind[:-1]))
        self._lengths = behind - self._starts
        self._ends = np.cumsum([len(text) for text in ended])
        self._of = np.searchsorted(self._ends, self._starts, side="right")  # a line's message
        first = self._bytes[self._starts]
        self._is_row = first == _BRACKET
        self._shared_at = np.flatnonzero(first == _BRACE)
        self._shared = SharedLines()
        self._numbers = self._shared.numbers(map(self._line, self._shared_at.tolist()))

    def read(self, ingest_ts: int) -> Fast:
        left = self._left()
        at = np.flatnonzero(self._is_row & ~left[self._of])
        fits, rows = cut(self._text(at)) if len(at) else (np.zeros(0, np.bool_), None)
        table = None
        if rows is not None:
            rows, is_known = self._placed(rows, at, np.flatnonzero(fits))
            is_known &= _timely(rows["ts_ms"].to_numpy(), lines.latest_ms(ingest_ts))
            fits[np.flatnonzero(fits)[~is_known]] = False
            rows = rows if is_known.all() else rows.filter(pa.array(is_known))
            table = _Table(self._messages, rows, self._shared).made(ingest_ts) if rows.num_rows else None
        odd = [*self._odd(at, np.flatnonzero(~fits))]
        return Fast(table, odd, [self._messages[number] for number in np.flatnonzero(left).tolist()])

    def _line(self, at: int) -> bytes:
        start = int(self._starts[at])
        return self._buffer[start : start + int(self._lengths[at]) - 1]

    def _text(self, at: Numbers) -> pa.StringArray:
        """Of these lines, their ends included."""
        offsets = np.concatenate((self._starts, [len(self._buffer)])).astype(np.int32)
        every = pa.StringArray.from_buffers(len(self._starts), pa.py_buffer(offsets), pa.py_buffer(self._buffer))
        return every.take(pa.array(at))

    def _left(self) -> Mask:
        """Messages that are not only shared lines and rows, in ASCII, within the bounds of what is read."""
        count = len(self._messages)
        left = np.zeros(count, np.bool_)
        is_other = ~self._is_row
        is_other[self._shared_at[self._numbers >= 0]] = False
        left[self._of[is_other]] = True
        strange = np.flatnonzero((self._bytes >= _ASCII) | (self._bytes == _RETURN))
        left[np.searchsorted(self._ends, strange, side="right")] = True
        every = np.bincount(self._of, minlength=count)
        longest = np.maximum.reduceat(self._lengths, np.searchsorted(self._of, np.arange(count)))
        left[(every > reading.MAX_LINES) | (2 * every * longest > reading.MAX_TOLD_BYTES)] = True
        return left

    def _placed(self, rows: pa.Table, at: Numbers, plain: Numbers) -> tuple[pa.Table, Mask]:
        """The rows with their message, place and shared line; and whether that is one that they can have."""
        message = self._of[at]
        place = np.arange(len(at)) - np.searchsorted(message, message)
        begins = np.searchsorted(self._of[self._shared_at], message[plain])
        before = np.searchsorted(self._shared_at, at[plain]) - begins  # so many of the message stand before the row
        number = rows["number"].to_numpy()
        is_known = number < before
        shared = self._numbers[np.where(is_known, begins + number, 0)] if len(self._numbers) else number * 0
        counts = np.asarray(pc.list_value_length(rows["times"]))
        is_known &= self._shared.deaths()[shared] == counts
        placed = {"message": message[plain], "idx": place[plain], "shared": shared}
        for name, values in placed.items():
            rows = rows.append_column(name, pa.array(values))
        return rows, is_known

    def _odd(self, at: Numbers, odd: Numbers) -> Iterable[tuple[lines.Place, bytes]]:
        message = self._of[at]
        place = np.arange(len(at)) - np.searchsorted(message, message)
        for row in odd.tolist():
            text = self._messages[int(message[row])]
            low = np.searchsorted(self._of[self._shared_at], message[row])
            before = self._shared_at[low : np.searchsorted(self._shared_at, at[row])]
            known = [reading.shared_of(self._line(line)) for line in before.tolist()]
            line = reading.line_of(self._line(int(at[row])), known)
            yield lines.Place(text.stream, text.offset, text.signature, int(place[row])), line


class _Table:
    """Rows that are plain, and what they share, as columns."""

    def __init__(self, messages: Sequence[Text], rows: pa.Table, shared: SharedLines) -> None:
        self._messages, self._rows, self._shared = messages, rows.combine_chunks(), shared
        self._count = rows.num_rows
        self._at = self._own("shared")
        self._ts_ms = self._own("ts_ms")
        self._more, self._props = self._own("m"), self._own("p")

    def made(self, ingest_ts: int) -> pa.Table:
        further = {name: self._further(name) for name in FURTHER}
        templates, prints = self._groups(further["error"])
        values = {
            **self._placed(ingest_ts),
            **self._times(),
            **further,
            "event_id": pc.binary_join_element_wise(self._own("id"), self._own("step"), "-"),
            "id": self._own("id"),
            "digest": pa.StructArray.from_arrays([self._own("crc32"), self._own("size")], ["crc32", "size"]),
            "deaths": self._deaths(),
            "props": self._members(),
            "error_template": templates,
            "fingerprint": prints,
            "line": pa.nulls(self._count, pa.string()),
        }
        every = [values[field.name] if field.name in values else self._common(field) for field in COLUMNS]
        return pa.table(every, schema=COLUMNS)

    def _own(self, name: str) -> pa.Array:
        return self._rows[name].chunk(0)

    def _placed(self, ingest_ts: int) -> dict[str, pa.Array]:
        message = self._own("message")
        return {
            "stream": _encoded(pa.array([text.stream for text in self._messages]), message),
            "signature": _encoded(pa.array([text.signature for text in self._messages]), message),
            "offset": pa.array([text.offset for text in self._messages], pa.int64()).take(message),
            "idx": self._own("idx").cast(pa.int32()),
            "ingest_ts": pa.repeat(pa.scalar(ingest_ts, lines.FULL.field("ingest_ts").type), self._count),
        }

    def _times(self) -> dict[str, pa.Array]:
        ts_ms = self._ts_ms
        return {
            "ts_ms": ts_ms,
            "event_ts": pc.multiply(ts_ms, 1000).cast(lines.FULL.field("event_ts").type),
            "due_ms": pc.add(ts_ms, self._own("due")),
            "first_death_ms": pc.subtract(ts_ms, self._own("first")),
            "last_death_ms": pc.subtract(ts_ms, self._own("last")),
        }

    def _common(self, field: pa.Field) -> pa.Array:
        """What rows share of a field."""
        column = self._shared.column(field.name)
        if column.null_count == len(column):
            return pa.nulls(self._count, field.type)
        return _encoded(column, self._at) if field.type == _DICTIONARY else column.take(self._at)

    def _further(self, name: str) -> pa.Array:
        """Of a field that rows may say themselves."""
        return _either(pc.struct_field(self._more, name), self._shared.column(name), self._at)

    def _members(self) -> pa.StructArray:
        """`props` of the shared line and of the row together; null where neither has any."""
        common_props = self._shared.column("props")
        columns, is_there = [], pa.array([line.has_props for line in self._shared.known]).take(self._at)
        for at in range(_MEMBERS.num_fields):
            field = _MEMBERS.field(at)
            common = pc.struct_field(common_props, field.name)
            if self._props.type.get_field_index(field.name) < 0:
                columns.append(_taken(common, self._at))
                continue
            own = pc.struct_field(self._props, field.name)
            is_there = pc.or_(is_there, own.is_valid())
            columns.append(_either(own.cast(field.type), common, self._at))
        return pa.StructArray.from_arrays(columns, fields=[*_MEMBERS], mask=pc.invert(is_there))

    def _deaths(self) -> pa.ListArray:
        """Those of the shared line, each with its time."""
        times = self._own("times")
        every = self._shared.column("deaths")
        begins = np.concatenate(([0], np.cumsum(np.maximum(self._shared.deaths(), 0))))[:-1]
        offsets = np.asarray(times.offsets) - times.offsets[0].as_py()
        counts = np.diff(offsets)
        at = np.repeat(begins[np.asarray(self._at)] - offsets[:-1], counts) + np.arange(offsets[-1])
        died = every.flatten()
        columns = {name: _taken(died.field(name), pa.array(at)) for name in schemas.DEATH.names if name != "time_ms"}
        columns["time_ms"] = pc.multiply(times.flatten(), 1000)
        deaths = pa.StructArray.from_arrays([columns[name] for name in schemas.DEATH.names], fields=[*_DEATH])
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), deaths, type=lines.EVENT.field("deaths").type)

    def _groups(self, error: pa.StructArray) -> tuple[pa.Array, pa.Array]:
        """Template and fingerprint of the failure group, computed once for all rows that say the same of it."""
        parts = [pc.struct_field(error, name) for name in ("type", "frame", "message")]
        code: Numbers = np.asarray(self._at)
        for part in parts:
            if part.null_count < self._count:
                code = _paired(code, part.dictionary_encode())
        encoded = pa.array(code).dictionary_encode()
        indices = np.asarray(encoded.indices)
        first = np.zeros(len(encoded.dictionary), np.int64)
        first[indices[::-1]] = np.arange(self._count - 1, -1, -1)
        errors = zip(*(part.take(pa.array(first)).to_pylist() for part in parts), strict=True)
        shared = [self._shared.known[number].values for number in np.asarray(self._at)[first].tolist()]
        groups = [
            lines.group(values, {"type": kind, "frame": frame, "message": message})
            for values, (kind, frame, message) in zip(shared, errors, strict=True)
        ]
        templates = pa.array([group and group.message for group in groups], pa.string())
        prints = pa.array([group and group.id for group in groups], pa.string())
        return _encoded(templates, encoded.indices), _encoded(prints, encoded.indices)


def _timely(ts_ms: Numbers, latest: int) -> Mask:
    return (ts_ms >= lines.BEGIN_MS) & (ts_ms < latest)


def _paired(code: Numbers, part: pa.DictionaryArray) -> Numbers:
    """Numbers that are equal where both are; small again, so that no product of them is too large."""
    other = np.asarray(part.indices.fill_null(len(part.dictionary)))
    return np.asarray(pa.array(code * (len(part.dictionary) + 1) + other).dictionary_encode().indices, np.int64)


def _encoded(values: pa.Array, at: pa.Array) -> pa.DictionaryArray:
    """The values at these places as a dictionary, each once in it."""
    column = values.dictionary_encode()
    return pa.DictionaryArray.from_arrays(column.indices.take(at), column.dictionary)


def _taken(values: pa.Array, at: pa.Array) -> pa.Array:
    return pa.nulls(len(at), values.type) if values.null_count == len(values) else values.take(at)


def _either(own: pa.Array, common: pa.Array, at: pa.Array) -> pa.Array:
    """What the row says, else what it shares."""
    if common.null_count == len(common) or not own.null_count:
        return own
    shared = common.take(at)
    return pc.if_else(own.is_valid(), own, shared) if own.null_count < len(own) else shared
