"""Fingerprints: which letters died of the same thing. Plain functions over plain values, the same for index and Spark.

A group is a failed queue, a reason, and, where the death was declared, the type of its error, the top frame of the
application and the masked message. What differs from letter to letter is masked: numbers, ids, hex, UUIDs, addresses
and times. No clock, no chance, no hash seed is in it: the same event has the same group in every process.
"""

import json
import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from dlx_router.core.bounded import MIB, Recurring, Remembered

VERSION: Final = 1  # begins every id; another way to mask or to choose a frame needs another
RAW_CHARS: Final = 4096  # of a message are read
MESSAGE_CHARS: Final = 400  # of a masked message are kept

_MONTH: Final = r"(?:Jan|Feb|Mar|Apr|May|June?|July?|Aug|Sept?|Oct|Nov|Dec)[a-z]{0,6}"
_DAY: Final = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)[a-z]{0,6},?\s"
_CLOCK: Final = r"\d{1,2}:\d\d(?::\d\d(?:[.,]\d+)?)?"
_ZONE: Final = r"\s?(?:Z\b|UTC\b|GMT\b|CES?T\b|[+-]\d\d:?\d\d\b)"
_HEX: Final = "[0-9a-fA-F]"
_GROUPS: Final = rf"{_HEX}{{1,4}}(?::{_HEX}{{1,4}}){{0,6}}"
_TIME: Final = "|".join(
    (
        rf"\d{{4}}[-/.]\d\d?[-/.]\d\d?(?:[T ]{_CLOCK}(?:{_ZONE})?)?",
        rf"(?:{_DAY})?\d{{1,2}}[ -]{_MONTH}[ -]\d{{4}}(?:,?\s{_CLOCK}(?:{_ZONE})?)?",
        rf"(?:{_DAY})?{_MONTH} {{1,2}}\d{{1,2}}(?:,? {_CLOCK}(?:{_ZONE})?)?(?:,? \d{{4}}\b)?",
        r"\d{1,2}[./]\d{1,2}[./]\d{4}",
        rf"\d{{1,2}}:\d\d:\d\d(?:[.,]\d+)?(?:{_ZONE})?",
    )
)
_ADDRESS: Final = "|".join(
    (
        rf"(?:{_HEX}{{2}}[:-]){{5}}{_HEX}{{2}}",
        rf"\[?(?:(?:{_HEX}{{1,4}}:){{7}}{_HEX}{{1,4}}|(?:{_GROUPS})?::(?:{_GROUPS})?)(?:%\w+)?(?:\]:\d+|\])?",
        r"\d{1,3}(?:\.\d{1,3}){3}(?::\d+|/\d{1,2})?",
    )
)
_VARYING: Final = re.compile(
    r"(?P<email>(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+)"
    rf"|(?P<uuid>(?<![0-9A-Za-z]){_HEX}{{8}}-(?:{_HEX}{{4}}-){{3}}{_HEX}{{12}}(?![0-9A-Za-z]))"
    rf"|(?P<time>(?<![\w.])(?:{_TIME})(?!\w))"
    rf"|(?P<address>(?<![\w:.])(?:{_ADDRESS})(?![\w:]))"
    r"|(?P<number>(?:(?<![^\s(\[{=:,'\"<>])[-+])?(?<![^\W_])\d+(?:[.,]\d+)*(?:[eE][-+]?\d+)?(?P<unit>%|[a-zA-Z]{1,3})?(?![^\W_]))"
    r"|(?P<word>[^\W_]+)"
)
_UNITS: Final = frozenset(
    ["ns", "us", "ms", "s", "sec", "min", "m", "h", "hr", "kb", "mb", "gb", "tb", "kib", "mib", "gib", "px"]
) | {"%"}
_NAMED: Final = re.compile(r"([^\W\d_]+)\d+")
_ALL_HEX: Final = re.compile(rf"(?:0x)?{_HEX}+")
_HEX_NUMBER: Final = re.compile(rf"{_HEX}*[0-9]{_HEX}*")  # whatever its letters are, they are no unit
_LIST: Final = re.compile(r"(<[a-z]+>)(?:[,;\s]{1,3}\1)+")
_LONG_HEX: Final = 8
_SPACED: Final = re.compile(rf"\d:\d\d|{_MONTH}")  # in every time that has a space in it
_COUNT: Final = re.compile(r"\d+(?:[eE]\d+)?(?P<unit>[a-zA-Z]{1,3})?")  # a number that is letters and digits only
_NOTHING: Final[Mapping[str, Any]] = {}
_TOKEN_CHARS: Final = 64  # longer ones are hardly said twice

_LINE_NUMBERS: Final = re.compile(r":\d+(?::\d+)?\b|,? ?\bline \d+|\+0x[0-9a-fA-F]+|@[0-9a-fA-F]+\b|0x[0-9a-fA-F]+")
_GENERATED: Final = re.compile(r"(?<=\$)\d+|(?<=Lambda)/?\d+|(?<=Proxy)\d+|(?<=Accessor)\d+|(?<=__)\d+(?=_)")
_LIBRARY: Final = re.compile(
    r"site-packages|dist-packages|/lib/python\d|<frozen |node_modules|\bnode:|\binternal/|\(<anonymous>\)"
    r"|\b(?:java|javax|jdk|sun|kotlin|scala|org\.springframework|com\.rabbitmq|reactor|System|Microsoft)\."
    r"|\b(?:pika|aio_pika|aiormq|kombu|celery)/"
)
_PYTHON: Final = re.compile(r'^File "')
_encode: Final = json.JSONEncoder(separators=(",", ":")).encode


class Fingerprint(NamedTuple):
    """A group: its id, and what its letters have in common. Strings are "" where nothing is known."""

    id: str
    vhost: str
    failed_queue: str
    reason: str
    error_type: str
    frame: str
    message: str


def fingerprint(
    vhost: str, failed_queue: str, reason: str, *, error_type: str = "", frame: str = "", message: str = ""
) -> Fingerprint:
    """The group of such a death. The id is `g1-` and 16 hex digits: equal in every process, router and archive.

    `frame` may be one frame or a whole stack, `message` as the consumer said it.
    """
    kind = error_type.strip()[:MESSAGE_CHARS]
    return _FINGERPRINTS[vhost, failed_queue, reason, kind, application_frame(frame), masked(message)]


def _named(parts: tuple[str, str, str, str, str, str]) -> Fingerprint:
    encoded = _encode([VERSION, *parts]).encode()
    return Fingerprint(f"g{VERSION}-{blake2b(encoded, digest_size=8).hexdigest()}", *parts)


_FINGERPRINTS: Final = Remembered(_named, most=4096, most_bytes=4 * MIB)


def of_event(event: Mapping[str, Any]) -> Fingerprint:
    """The group of an event of the journal about a letter. Never raises: what has another shape counts as absent."""
    named = (event.get(name) for name in ("failed_queue", "reason", "kind", "detail", "error"))
    return of_parts(_text(event.get("vhost")), *named)


def of_parts(vhost: str, failed_queue: Any, reason: Any, kind: Any, detail: Any, error: Any) -> Fingerprint:  # noqa: ANN401 - whatever they are
    """The same, of the members that matter."""
    fields = error if isinstance(error, Mapping) else _NOTHING
    message = fields.get("message") or (detail if kind == "quarantined" else "")
    return fingerprint(
        vhost,
        _text(failed_queue),
        _text(reason),
        error_type=_text(fields.get("type")),
        frame=_text(fields.get("frame")),
        message=_text(message),
    )


def masked(message: str) -> str:
    """The message without what varies: `<n>` (numbers, hex, ids), `<uuid>`, `<time>`, `<address>`, `<email>`.

    Of at most MESSAGE_CHARS characters; white space is one space, and a list of numbers one `<n>`.
    """
    return _MESSAGES[message[:RAW_CHARS]] if message else ""


def _message(message: str) -> str:
    words = message.split()
    text = " ".join(words)
    may_be_spaced = (":" in text or not text.islower()) and _SPACED.search(text)
    text = _VARYING.sub(_mask, text) if may_be_spaced else " ".join(map(_masked, words))
    return (_LIST.sub(r"\1", text) if text.count("<") > 1 else text)[:MESSAGE_CHARS]


_MESSAGES: Final = Recurring(_message, most=1024, most_bytes=4 * MIB)


def _masked(token: str) -> str:
    """What stands between two spaces. Only times reach over a space, so the rest may be masked token by token."""
    if token.isalpha():
        return token if len(token) < _LONG_HEX else _word(token)
    if token.isalnum():
        if token.isdecimal() or _HEX_NUMBER.fullmatch(token):
            return "<n>"
        count = _COUNT.fullmatch(token)
        return _word(token) if count is None else _count(count["unit"])
    return _MIXED[token] if len(token) <= _TOKEN_CHARS else _VARYING.sub(_mask, token)


def _mixed(token: str) -> str:
    return _VARYING.sub(_mask, token)


_MIXED: Final = Remembered(_mixed, most=4096, most_bytes=2 * MIB)


def application_frame(stack: str) -> str:
    """The top frame that is no library's, without line numbers and addresses; the top one where all are libraries'.

    Python prints the top frame last, others first. Names of functions keep their digits, those of lambdas and proxies
    that a runtime numbers do not.
    """
    return _FRAMES[stack[: RAW_CHARS * 4]] if stack else ""


def _frame(stack: str) -> str:
    lines = [line.strip() for line in stack.splitlines()]
    frames = [line for line in lines if line] if len(lines) < 2 else [line for line in lines if _is_frame(line)]  # noqa: PLR2004 - one line alone
    if any(_PYTHON.match(line) for line in frames):
        frames = [line for line in reversed(frames) if _PYTHON.match(line)]
    if not frames:
        frames = [line for line in lines if line]
    chosen = next((line for line in frames if not _LIBRARY.search(line)), frames[0] if frames else "")
    plain = _GENERATED.sub("", _LINE_NUMBERS.sub("", chosen.removeprefix("at ")))
    return " ".join(plain.split())[:MESSAGE_CHARS]


_FRAMES: Final = Remembered(_frame, most=256, most_bytes=4 * MIB)  # of whole stacks


def _is_frame(line: str) -> bool:
    return line.startswith(('File "', "at ")) or bool(re.search(r":\d+", line))


def _mask(match: re.Match[str]) -> str:
    kind = match.lastgroup
    if kind in {"number", "unit"}:
        return _count(match["unit"])
    return _word(match["word"]) if kind == "word" else f"<{kind}>"


def _count(unit: str | None) -> str:
    return f"<n>{unit}" if unit and unit.lower() in _UNITS else "<n>"


def _word(word: str) -> str:
    """A word with digits in it is an id, but for a name with a number behind it: ORD1234 is ORD<n>."""
    is_hex = bool(_ALL_HEX.fullmatch(word))
    if word.isalpha() or not any(map(str.isdigit, word)):
        return "<n>" if is_hex and len(word) >= _LONG_HEX else word
    named = None if is_hex else _NAMED.fullmatch(word)
    return f"{named[1]}<n>" if named else "<n>"


def _text(value: Any) -> str:  # noqa: ANN401 - a journal may have been written by anybody
    return value if isinstance(value, str) else ""
