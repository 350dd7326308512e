"""Lines of the journal → rows of the archive, one by one: the slow way, which takes whatever stands in a stream.

It says what a row is; `columns` makes the same rows of what is plain, without looking at each. No Spark runs here.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema

from dlx_router.core.fingerprint import Fingerprint, fingerprint
from dlx_router.journal.strict_json import decoded
from dlx_router.spark import schemas

Values = dict[str, Any]  # of a row, by column; what is null is left out
EVENT: Final[pa.Schema] = to_arrow_schema(schemas.EVENT)
FULL: Final[pa.Schema] = to_arrow_schema(schemas.ARCHIVE, timezone="UTC")
FILE: Final = pa.schema([field for field in FULL if field.name not in schemas.PARTITIONS])
"""Of a file in the archive: `schemas.ARCHIVE` without its partitions."""
END_MS: Final = 253_402_300_800_000  # the year 10000
DAY_MS: Final = 86_400_000
BEGIN_MS: Final = 1_577_836_800_000  # the year 2020: nobody wrote a journal before
AHEAD_MS: Final = 366 * DAY_MS
WRITTEN_MS: Final = 1_767_225_600_000  # the year 2026: a clock before it is of before this program, so it is wrong
SURROGATE: Final = rb"\\u[dD][89a-fA-F]"  # no column holds half of a pair, which is how a byte is told
_SURROGATE: Final = re.compile(SURROGATE)
_NO_EVENT: Final = "not a JSON object with an event"
_SMALL: Final = (-(1 << 31), 1 << 31)
_LARGE: Final = (-(1 << 63), 1 << 63)
_DECIMAL: Final = 10**20


class Place(NamedTuple):
    """Where a line stood: its message, what that one's signature is worth, and its number in it."""

    stream: str
    offset: int
    signature: str
    idx: int


class Row(NamedTuple):
    """A line as a row: of an event (`bad` is ""), or of what is none, and `bad` says why."""

    place: Place
    values: Values
    line: bytes | None
    bad: str = ""


def split(body: bytes) -> list[bytes]:
    """The lines of a message; their places are their numbers, and what is empty is none.

    A line's bytes that are no UTF-8 are replaced, so behind the lines of such a message comes the whole, as it came.
    """
    try:
        body.decode()
    except UnicodeDecodeError:
        return [*body.decode(errors="replace").encode().split(b"\n"), body]
    return body.split(b"\n")


def latest_ms(read_us: int) -> int:
    """An event that was read then is of a time before this one: a year ahead, which no clock is.

    A clock of ours that is before `WRITTEN_MS` itself judges nobody: all that honest routers wrote would be lost.
    """
    read_ms = read_us // 1000
    return read_ms + AHEAD_MS if read_ms >= WRITTEN_MS else END_MS


def row(place: Place, line: bytes, *, keep_line: bool = False, latest: int = END_MS) -> Row:
    """What the archive has of a line. `latest`: see `latest_ms`.

    `keep_line`: the row has it in any case, for archives that should hold fields that this version does not know.
    """
    try:
        text = line.decode()
    except UnicodeDecodeError:
        return Row(place, {}, line, "a message that is not UTF-8, whole; its lines are read as far as they go")
    try:
        event = decoded(text)
        values, is_odd = read(event) if isinstance(event, dict) else ({}, False)
    except (ValueError, RecursionError):
        values, is_odd = {}, False
    if why := _bad(values, latest):
        return Row(place, {}, line, why)
    is_more = keep_line or is_odd or values["v"] != schemas.VERSION or (b"\\u" in line and _SURROGATE.search(line))
    return Row(place, values, line if is_more else None)


def unreadable(place: Place, body: bytes, why: str) -> Row:
    """Of a message that cannot be read: it is one line, as it came."""
    return Row(place, {}, body, f"a message that cannot be read: {why}")


def _bad(values: Values, latest: int) -> str:
    lacks = [name for name in schemas.NEEDED if name not in values]
    low, high = schemas.VERSIONS
    if len(lacks) == len(schemas.NEEDED):
        return _NO_EVENT
    if "v" in values and not low <= values["v"] <= high:
        return f"version {values['v']}; {low} to {high} are known"
    if lacks:
        return f"lacks {', '.join(lacks)}"
    return _untimely(values["ts_ms"], latest)


def _untimely(ts_ms: int, latest: int) -> str:
    """Why an event cannot be of this time. Each day that is told is a folder, and days bound what readers look at."""
    if not 0 <= ts_ms < END_MS:
        return "ts_ms is no time"
    if ts_ms < BEGIN_MS:
        return "ts_ms lies before 2020, when nobody wrote a journal"
    return "" if ts_ms < latest else "ts_ms lies more than a year ahead of when it was read"


def read(event: Mapping[str, Any]) -> tuple[Values, bool]:
    """The values of an event, what is left out because it is plain told too; and whether one was of another type."""
    odd: list[None] = []
    values = {}
    for name, raw in event.items():
        reader = _READERS.get(name)
        if reader is not None and (value := reader(raw, odd)) is not None:
            values[name] = value
    deaths = values.get("deaths")
    if deaths is not None and "fresh" not in values:
        values["fresh"] = [death and {name: death[name] for name in schemas.FRESH.names} for death in deaths]
    if deaths and "first" not in values and event.get("first", deaths) is not None and deaths[-1]:
        values["first"] = {name: deaths[-1][name] for name in schemas.FIRST.names}
    return values, bool(odd)


def group(values: Values, error: Mapping[str, Any] | None = None) -> Fingerprint | None:
    """The failure group of an event, by the function that the index uses too; None of what is no letter's.

    `error`: in the place of its own.
    """
    queue, reason = values.get("failed_queue"), values.get("reason")
    if queue is None or reason is None:
        return None
    failure = (values.get("error") if error is None else error) or {}
    message = failure.get("message") or (values.get("detail") if values["kind"] == "quarantined" else "")
    kind, frame = failure.get("type") or "", failure.get("frame") or ""
    return fingerprint(values["vhost"], queue, reason, error_type=kind, frame=frame, message=message or "")


def table(rows: Sequence[Row], ingest_ts: int | None) -> pa.Table:
    """Rows of events as columns of `FILE`; `ingest_ts`: microseconds, None of what was read from no stream."""
    events = [entry.values for entry in rows]
    groups = [group(event) for event in events]
    computed: dict[str, Any] = {
        "stream": [entry.place.stream for entry in rows],
        "offset": [entry.place.offset for entry in rows],
        "idx": [entry.place.idx for entry in rows],
        "signature": [entry.place.signature for entry in rows],
        "event_ts": [event["ts_ms"] * 1000 for event in events],
        "ingest_ts": [ingest_ts] * len(rows),
        "error_template": [failure and failure.message for failure in groups],
        "fingerprint": [failure and failure.id for failure in groups],
        "line": [entry.line if entry.line is None else entry.line.decode() for entry in rows],
    }
    columns = [computed.get(name) or [event.get(name) for event in events] for name in FILE.names]
    return pa.table([pa.array(column, kind) for column, kind in zip(columns, FILE.types, strict=True)], schema=FILE)


# -- values --------------------------------------------------------------------------------------------------------

_Reader = Callable[[Any, list[None]], Any]  # a value, where to say that it is of another type → what the column holds


def _reader(kind: pa.DataType) -> _Reader:
    if pa.types.is_string(kind):
        return _text
    if pa.types.is_struct(kind):
        return _struct({field.name: _reader(field.type) for field in kind})
    if pa.types.is_map(kind):
        return _map
    if pa.types.is_list(kind):
        return _list(_reader(kind.value_type))
    if pa.types.is_integer(kind):
        return _whole(*(_SMALL if kind.bit_width == 32 else _LARGE))  # noqa: PLR2004 - as it says
    return {pa.bool_(): _flag, pa.float64(): _float}.get(kind, _decimal)


def _text(value: Any, odd: list[None]) -> str | None:  # noqa: ANN401, ARG001 - JSON; as the others
    if value is None:
        return None
    text = value if isinstance(value, str) else _written(value)
    return text if text.isascii() else text.encode(errors="replace").decode()


def _struct(readers: Mapping[str, _Reader]) -> _Reader:
    def read(value: Any, odd: list[None]) -> dict[str, Any] | None:  # noqa: ANN401 - JSON
        members = value if isinstance(value, dict) else _other(value, odd)
        if members is None:
            return None
        return {name: reader(members[name], odd) if name in members else None for name, reader in readers.items()}

    return read


def _map(value: Any, odd: list[None]) -> list[tuple[str | None, str | None]] | None:  # noqa: ANN401 - JSON
    members = value if isinstance(value, dict) else _other(value, odd)
    if members is None:
        return None
    read = {_text(name, odd): _text(member, odd) for name, member in members.items()}  # names may be equal as text
    return [*read.items()]


def _list(reader: _Reader) -> _Reader:
    def read(value: Any, odd: list[None]) -> list[Any] | None:  # noqa: ANN401 - JSON
        return [reader(item, odd) for item in value] if isinstance(value, list) else _other(value, odd)

    return read


def _whole(low: int, high: int) -> _Reader:
    def read(value: Any, odd: list[None]) -> int | None:  # noqa: ANN401 - JSON
        return value if value.__class__ is int and low <= value < high else _other(value, odd)

    return read


def _flag(value: Any, odd: list[None]) -> bool | None:  # noqa: ANN401 - JSON
    return value if isinstance(value, bool) else _other(value, odd)


def _float(value: Any, odd: list[None]) -> float | None:  # noqa: ANN401 - JSON
    if value.__class__ is float:
        return float(value)
    return float(value) if value.__class__ is int and abs(value) < _LARGE[1] else _other(value, odd)


def _decimal(value: Any, odd: list[None]) -> Decimal | None:  # noqa: ANN401 - JSON
    return Decimal(value) if value.__class__ is int and abs(value) < _DECIMAL else _other(value, odd)


def _other(value: Any, odd: list[None]) -> Any:  # noqa: ANN401 - JSON; None, in the place of any type
    if value is not None:
        odd.append(None)
    return None


_written: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
_READERS: Final = {field.name: _reader(field.type) for field in EVENT}
