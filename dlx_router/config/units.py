"""Durations and sizes as people write them: "250ms", "1.5s", "7d", "64KiB". Exact: no float, nothing rounded."""

import re
from fractions import Fraction
from typing import Final

MAX_DURATION_MS: Final = 10 * 365 * 86_400_000
MAX_SIZE_BYTES: Final = 1 << 50

_DURATIONS_MS: Final = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_SIZES_BYTES: Final = {"TiB": 1 << 40, "GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10, "B": 1}
_NUMBER: Final = re.compile(r"(-?)([0-9]{1,18}(?:\.[0-9]{1,9})?) ?([A-Za-z]+)", re.ASCII)


def duration_ms(written: str | int) -> int:
    """Milliseconds, 0 to 10 years. A number is milliseconds; text needs a unit. Raises ValueError that explains."""
    form = 'write milliseconds or "250ms", "5s", "10m", "1h", "7d"'
    value = _scaled(written, _DURATIONS_MS, form, "whole milliseconds")
    if value > MAX_DURATION_MS:
        raise ValueError("it is longer than 10 years; write a shorter duration")
    return value


def size_bytes(written: str | int) -> int:
    """Bytes, 0 to 1024 TiB. A number is bytes; text needs a unit. Raises ValueError that explains."""
    value = _scaled(written, _SIZES_BYTES, 'write bytes or "64KiB", "10MiB", "1GiB"', "whole bytes")
    if value > MAX_SIZE_BYTES:
        raise ValueError("it is larger than 1024 TiB; write a smaller size")
    return value


def _scaled(written: str | int, units: dict[str, int], form: str, whole: str) -> int:
    if isinstance(written, int):
        number = Fraction(written)
    elif (match := _NUMBER.fullmatch(written)) is not None and match[3] in units:
        number = Fraction(match[1] + match[2]) * units[match[3]]
    else:
        raise ValueError(form)
    if number < 0:
        raise ValueError("it is negative; write 0 or more")
    if number != int(number):
        raise ValueError(f"it is not {whole}; write a smaller unit")
    return int(number)


def number_of(count: int, noun: str, many: str = "") -> str:
    """The count with its noun: `1 file`, `2 policies`."""
    return f"{count} {noun if count == 1 else many or f'{noun}s'}"


def duration_text(ms: int) -> str:
    """The shortest exact way to write a duration: `duration_ms(duration_text(ms)) == ms`."""
    return "0ms" if ms == 0 else _text(ms, _DURATIONS_MS)


def size_text(size: int) -> str:
    """The shortest exact way to write a size: `size_bytes(size_text(size)) == size`."""
    return "0B" if size == 0 else _text(size, _SIZES_BYTES)


def _text(value: int, units: dict[str, int]) -> str:
    unit, factor = next((unit, factor) for unit, factor in units.items() if value % factor == 0)
    return f"{value // factor}{unit}"
