"""Templates, and how values look in them. Whatever is shown passes `shown`: one place sees to hostile text."""

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from dlx_router.core.nested_json import in_a_line, in_lines
from dlx_router.core.printable import printable_lines

LATEST_MS: Final = 253_402_300_799_000  # the year 9999
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
MAX_CELL: Final = 300  # characters of a text in a list
MAX_TEXT: Final = 4_000  # of a text on a page of its own
MAX_BODY: Final = 100_000
_BYTES_A_LINE: Final = 16
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def shown(value: object) -> object:
    """A value as a page may have it; Jinja escapes it afterwards. Text commands nothing and turns no direction."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return printable_lines(value)
    return "" if value is None else value


def sent(value: object) -> Markup:
    """A name in a hidden field: as it is, because it comes back and has to be the same."""
    text = str(value)
    return escape(text if text.encode(errors="replace").decode() == text else printable_lines(text))


def environment() -> Environment:
    """The templates, escaped everywhere; a name that is missing is an error and not an empty place."""
    made = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        finalize=shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        ago=ago,
        when=when,
        count=count,
        cut=cut,
        pretty=pretty,
        hexdump=hexdump,
        lasting=lasting,
        query=query,
        sent=sent,
        urlencode=quoted,
    )
    made.globals.update(sparkline=sparkline, now_ms=lambda: int(time.time() * 1000))
    return made


def cut(text: object, most: int = MAX_CELL) -> str:
    """The text's beginning, and how much is missing. What is marked up is ours, and stays whole."""
    if isinstance(text, Markup):
        return text
    is_json = isinstance(text, dict | list)
    whole = in_a_line(text, ensure_ascii=True) if is_json else "" if text is None else str(text)
    return whole if len(whole) <= most else f"{whole[:most]}… ({len(whole) - most:,} more characters)"


def count(number: object) -> str:
    """A number with thousands apart; an unknown one is a question mark."""
    return f"{number:,}" if isinstance(number, int) else "?"


def utc(ms: object) -> datetime | None:
    """A moment to the millisecond; None where it is none."""
    is_moment = isinstance(ms, int | float) and 0 < ms < LATEST_MS  # no NaN, nothing that no calendar holds
    return _EPOCH + int(ms) * timedelta(milliseconds=1) if is_moment else None  # type: ignore[call-overload]  # a number


def stamp(ms: object) -> str:
    """A moment in UTC as text; a dash where it is none."""
    return f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03} UTC" if (moment := utc(ms)) else "–"


def when(ms: object) -> Markup:
    """A moment in UTC, which the browser shows in its own zone (times.js). A dash where it is none."""
    moment = utc(ms)
    if moment is None:
        return Markup("–")
    return Markup('<time datetime="{}">{}</time>').format(moment.isoformat(timespec="milliseconds"), stamp(ms))


def lasting(ms: object) -> str:
    """A length of time in its two largest units: 2 d 3 h, 450 ms."""
    if not isinstance(ms, int | float) or not math.isfinite(ms):
        return "–"
    if abs(ms) < 1000:  # noqa: PLR2004 - a second
        return f"{int(ms)} ms"
    left, parts = int(abs(ms)) // 1000, []
    for size, unit in _UNITS:
        whole, left = divmod(left, size)
        parts += [f"{whole} {unit}"] if whole else []
    return ("-" if ms < 0 else "") + " ".join(parts[:2])


def ago(ms: object, now_ms: int | None = None) -> Markup:
    """A moment as people say it; the exact one is its title."""
    moment = utc(ms)
    if moment is None or not isinstance(ms, int | float):
        return Markup("–")
    away = (int(time.time() * 1000) if now_ms is None else now_ms) - ms
    span = lasting(abs(away) - abs(away) % 1000).split(" ")[:2]
    phrase = "now" if abs(away) < 1000 else f"{' '.join(span)} ago" if away > 0 else f"in {' '.join(span)}"  # noqa: PLR2004 - a second, in ms
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        moment.isoformat(timespec="milliseconds"), stamp(ms), phrase
    )


def pretty(document: object) -> str:
    """A JSON document in lines."""
    return in_lines(document)


def hexdump(digits: str) -> str:
    """Bytes in hex as rows of sixteen, with what is ASCII beside."""
    data, rows = bytes.fromhex(digits), []
    for at in range(0, len(data), _BYTES_A_LINE):
        row = data[at : at + _BYTES_A_LINE]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)  # noqa: PLR2004 - printable ASCII
        rows.append(f"{at:08x}  {row.hex(' '):<47}  {text}")
    return "\n".join(rows)


def query(path: str, given: Mapping[str, Any] | None = None, **more: object) -> str:
    """A path with its query; what is empty is left out. ASCII, whatever the names are."""
    pairs: list[tuple[str, str]] = []
    for key, value in {**(given or {}), **more}.items():
        values: Iterable[object] = value if isinstance(value, list | tuple) else (value,)
        pairs += [(key, str(item)) for item in values if item not in (None, "", False)]
    return f"{path}?{'&'.join(f'{quoted(key)}={quoted(value)}' for key, value in pairs)}" if pairs else path


def quoted(name: object) -> str:
    """A name as a part of an address; bytes that are no text stay what they were, what is not even that becomes `?`."""
    text = str(name)
    try:
        return quote(text.encode(errors="surrogateescape"), safe="")
    except UnicodeEncodeError:
        return quote(text.encode(errors="replace"), safe="")


def sparkline(values: Sequence[int], label: str) -> Markup:
    """Bars, drawn by the server: no script and no style of its own."""
    width, height, gap = 4, 24, 1
    most = max([*values, 1])
    bars = [
        Markup('<rect x="{}" y="{}" width="{}" height="{}" class="{}"/>').format(
            at * (width + gap), height - tall, width, tall, "some" if value else "none"
        )
        for at, value in enumerate(values)
        for tall in [max(round(height * value / most), 1)]
    ]
    size = Markup('viewBox="0 0 {} {}" preserveAspectRatio="none"').format(len(values) * (width + gap), height)
    frame = Markup('<svg class="spark" {} role="img" aria-label="{}" focusable="false">{}</svg>')
    return frame.format(size, shown(label), Markup().join(bars))
