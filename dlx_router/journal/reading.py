"""A message of the journal, in any format → its events. Pure; docs/journal.md has the formats.

What is read may have been written by anybody. A message that cannot be read is a FormatError; a line that is no event
comes as it is, and is for the caller to refuse.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from dlx_router.core.bounded import MIB, Remembered
from dlx_router.journal.encoding import encode, members, string
from dlx_router.journal.fields import LINES, ROWS
from dlx_router.journal.packing import MAGIC, FormatError, unpacked
from dlx_router.journal.strict_json import decoded

MAX_LINES: Final = 10_000  # of a message in format 2; a router writes at most 500 events
MAX_TOLD_BYTES: Final = 64 << 20  # of its events, each written out: a short row may share a long line
_WHOLE: Final = b'"event_id":'  # in a line that may be a whole event; in text the quotes would be escaped
_NUMBERS: Final = 1 << 62  # of a row are smaller: 64 bits have room for the sum of two
_SECONDS: Final = 1 << 52
_PLACES: Final = 11  # of a row; one more where it has further members
_ODD: Final = (ValueError, TypeError, KeyError, AttributeError, RecursionError)


class Shared(NamedTuple):
    """What rows share: the line, and its members.

    `taken`: names that further members of a row may have only where it is put together member by member; `is_plain`:
    the line has none that each row says itself.
    """

    line: bytes
    members: Mapping[str, Any]
    deaths: tuple[Mapping[str, Any], ...]
    taken: frozenset[str]
    is_plain: bool


class Text(NamedTuple):
    """The same, written out for `Row.line`: members with a comma behind, and each death without its end."""

    head: str
    deaths: tuple[str, ...]
    props: str
    end: str  # with a comma before it


class Row(NamedTuple):
    """A letter's event: what it shares, and what is its own. `values` are of the types that they have to be."""

    shared: Shared
    values: list[Any]
    text: bytes  # as it came

    @property
    def has_more(self) -> bool:
        """Whether it has further members."""
        return len(self.values) > _PLACES

    @property
    def more(self) -> Mapping[str, Any]:
        """Further members of its own, which win."""
        return self.values[_PLACES] if self.has_more else _NOTHING

    def own(self) -> dict[str, Any]:
        """The members that it does not share, but for those of deaths."""
        _, letter, step, ts_ms, due, first, last, crc32, size, _, props, *_ = self.values
        fields = {"event_id": f"{letter}-{step}", "id": letter, "ts_ms": ts_ms}
        if due is not None:
            fields["due_ms"] = ts_ms + due
        fields["first_death_ms"] = ts_ms - first
        fields["last_death_ms"] = ts_ms - last
        fields["digest"] = {"crc32": crc32, "size": size}
        common = self.shared.members.get("props")
        if props or common:
            fields["props"] = {**common, **props} if common else props
        return fields

    def event(self) -> dict[str, Any]:
        """The whole event."""
        died = zip(self.shared.deaths, self.values[9], strict=True)
        deaths = [{**death, "time_ms": time_s * 1000} for death, time_s in died]
        return {**self.shared.members, "deaths": deaths, **self.own(), **self.more}

    def line(self) -> bytes:
        """The same as a line of format 1, without its end."""
        shared, more, text = self.shared, self.more, _TEXTS[self.shared.line]
        if not shared.is_plain or (more and not shared.taken.isdisjoint(more)):
            return encode(self.event()).encode()
        _, letter, step, ts_ms, due, first, last, crc32, size, times, props, *_ = self.values
        name = letter if letter.isalnum() and letter.isascii() else string(letter)[1:-1]
        code = step if step.isalnum() and step.isascii() else string(step)[1:-1]
        died = ",".join([f'{death},"time_ms":{1000 * at}}}' for death, at in zip(text.deaths, times, strict=True)])
        wait = "" if due is None else f'"due_ms":{ts_ms + due},'
        own = f"{text.props}{_written(props)}" if props else text.props
        prop_text = f'"props":{{{own[:-1]}}},' if own else ""
        end = "" if "body_mode" in more else text.end
        end = f",{_written(more)[:-1]}{end}" if more else end
        return (
            f'{{"event_id":"{name}-{code}","id":"{name}",{text.head}"deaths":[{died}],"ts_ms":{ts_ms},{wait}'
            f'"first_death_ms":{ts_ms - first},"last_death_ms":{ts_ms - last},{prop_text}'
            f'"digest":{{"crc32":{crc32},"size":{size}}}{end}}}'
        ).encode()


def _written(fields: Mapping[str, Any]) -> str:
    """As `members`, for a few members that are mostly plain: four times as fast then."""
    text = ""
    for name, member in fields.items():
        value = string(member) if member.__class__ is str else member if member.__class__ is int else encode(member)
        text = f"{text}{string(name)}:{value},"
    return text


_NOTHING: Final[Mapping[str, Any]] = {}


def is_plain(body: bytes, version: int | None = None) -> bool:
    """Whether the message is lines of format 1, as it is."""
    return (version is None or version <= ROWS) and not body.startswith(MAGIC)


def parts(body: bytes, version: int | None = None) -> Sequence[bytes | Row]:
    """The events of a message, in order: whole lines, and rows. `version`: its header `v`, where it has one.

    Raises FormatError.
    """
    text = text_of(body, version)
    return text.splitlines() if text is body else _parts_of(text)


def text_of(body: bytes, version: int | None) -> bytes:
    """What is in a message; the body itself where it is lines. Raises FormatError."""
    if version is not None and version > ROWS:
        raise FormatError(f"format {version}; {LINES} and {ROWS} are known")
    return unpacked(body) if body.startswith(MAGIC) else body


def lines(body: bytes, version: int | None = None, *, saying: bytes = b"") -> list[bytes]:
    """The same as lines of format 1, without their ends; none where the message has not `saying` in it.

    Raises FormatError.
    """
    text = text_of(body, version)
    if saying not in text:
        return []
    return text.splitlines() if text is body else [_line(part) for part in _parts_of(text)]


def lines_of(text: bytes) -> Iterator[bytes]:
    """Lines of format 1, their ends included, of the text of a message in format 2. Raises FormatError."""
    return (_line(part) + b"\n" for part in _parts_of(text))


def _line(part: bytes | Row) -> bytes:
    """As it came where it cannot be written (nested too deep, say): nobody's row stops a reader."""
    if isinstance(part, bytes):
        return part
    try:
        return part.line()
    except _ODD:
        return part.text


def event_of(shared: bytes, row: bytes) -> dict[str, Any] | None:
    """The event of a row that was kept beside the line that it shares; None: these are not what `parts` gave."""
    known = _shared(shared)
    values = _alone(row)
    whole = _row([0, *values[1:]], [known], row) if isinstance(values, list) else None
    return None if whole is None else whole.event()


def shared_of(line: bytes) -> Shared | None:
    """What rows share by such a line of a message in format 2; None: it is a whole event, or cannot be read."""
    return None if _WHOLE in line and _is_whole(line) else _SHARED[line]


def line_of(row: bytes, known: Sequence[Shared | None]) -> bytes:
    """A row as a line of format 1, as it came where it is none. `known`: the shared lines before it in its message."""
    parsed = _row(_alone(row), [*known], row)
    return row if parsed is None else _line(parsed)


def _parts_of(text: bytes) -> list[bytes | Row]:
    every = text.splitlines()
    if len(every) > MAX_LINES:
        raise FormatError(f"{len(every)} lines; at most {MAX_LINES} are read")
    rows = iter(_rows([line for line in every if line[:1] == b"["]))
    known: list[Shared | None] = []
    events: list[bytes | Row] = []
    size = 0
    for line in every:
        if line[:1] == b"[":
            row = _row(next(rows), known, line)
            size += len(line) if row is None else len(row.shared.line)
            events.append(line if row is None else row)
        elif _WHOLE in line and _is_whole(line):
            events.append(line)
        else:
            shared = _SHARED[line]
            known.append(shared)  # readable or not: rows count them
            if shared is None:
                events.append(line)
    if size + len(text) > MAX_TOLD_BYTES:
        raise FormatError(f"events of more than {MAX_TOLD_BYTES} bytes")
    return events


def _rows(texts: list[bytes]) -> list[Any]:
    """Read at once, because that costs less; one by one where one of them is no JSON."""
    try:
        every = decoded(f"[{','.join([str(text, 'utf-8') for text in texts])}]")
    except _ODD:
        every = []
    return every if len(every) == len(texts) else [_alone(text) for text in texts]


def _alone(line: bytes) -> Any:  # noqa: ANN401 - JSON
    try:
        return decoded(str(line, "utf-8"))
    except _ODD:
        return None


def _row(values: Any, known: list[Shared | None], text: bytes) -> Row | None:  # noqa: ANN401 - JSON
    """None: these are no values of a row."""
    try:
        number, letter, step, ts_ms, due, first, last, crc32, size, times, props = values[:_PLACES]
        shared = known[number] if number >= 0 else None
        seconds = sum(map(abs, times))
        largest = abs(ts_ms) | abs(0 if due is None else due) | abs(first) | abs(last) | abs(crc32) | abs(size)
        fits = (
            largest < _NUMBERS
            and seconds < _SECONDS
            and ts_ms.__class__ is crc32.__class__ is size.__class__ is seconds.__class__ is int
            and letter.__class__ is step.__class__ is str
            and props.__class__ is dict
            and (len(values) == _PLACES or (len(values) == _PLACES + 1 and values[_PLACES].__class__ is dict))
        )
        if shared is None or not fits or len(times) != len(shared.deaths):
            return None
        return Row(shared, values, text)
    except (*_ODD, IndexError):
        return None


def _is_whole(line: bytes) -> bool:
    """Whether it is a whole event, and not only has the name of its first member somewhere."""
    document = _alone(line)
    return isinstance(document, dict) and "event_id" in document


def _shared(line: bytes) -> Shared | None:
    """None: this line is not what rows share."""
    try:
        document = decoded(str(line, "utf-8"))
        died = tuple(document["deaths"])
        are_whole = document.get("props", _NOTHING).__class__ is dict and all(
            death and death.__class__ is dict for death in died
        )
        taken = (frozenset(document) | _ROW_MEMBERS) - {"body_mode"}
        is_plain = _ROW_MEMBERS.isdisjoint(document) and not any("time_ms" in death for death in died)
        return Shared(line, document, died, taken, is_plain) if are_whole else None
    except _ODD:
        return None


def _text(line: bytes) -> Text:
    document = decoded(str(line, "utf-8"))
    rest = {name: value for name, value in document.items() if name not in _LAST}
    end = f',"body_mode":{encode(document["body_mode"])}' if "body_mode" in document else ""
    died = tuple([encode(death)[:-1] for death in document["deaths"]])
    return Text(members(rest), died, members(document.get("props", {})), end)


_ROW_MEMBERS: Final = frozenset({"event_id", "id", "ts_ms", "due_ms", "first_death_ms", "last_death_ms", "digest"})
_LAST: Final = frozenset({"deaths", "props", "body_mode"})  # of a shared line: told behind its others
_SHARED: Final = Remembered(_shared, most=2048, most_bytes=4 * MIB)
_TEXTS: Final = Remembered(_text, most=2048, most_bytes=2 * MIB)
