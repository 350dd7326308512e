"""Times as people write and read them."""

import time
from datetime import UTC, datetime

import typer

from dlx_router.cli import output
from dlx_router.config.units import duration_ms, duration_text
from dlx_router.telemetry.wall_clock import wall_ms


def moment_ms(text: str | None, option: str) -> int | None:
    """A time, or how long ago, in ms since 1970; ends the command with exit code 2 where it is neither."""
    if text is None:
        return None
    try:
        return wall_ms() - duration_ms(text)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        output.warn(f"{option} {text!r}: neither a time (2026-01-31T12:00Z) nor a duration (2h)")
        raise typer.Exit(output.WRONG_USE) from None
    return int((moment if moment.tzinfo else moment.astimezone()).timestamp() * 1000)


def shown(ms: int | None) -> str:
    """Local time, to the millisecond."""
    moment = _moment(ms) if ms else None
    return "–" if moment is None else moment.isoformat(sep=" ", timespec="milliseconds")


def second(ms: int) -> str:
    """Local time, to the second; a dash where that is no time."""
    moment = _moment(ms)
    return "–" if moment is None else moment.strftime("%Y-%m-%d %H:%M:%S")


def _moment(ms: int) -> datetime | None:
    """None: no calendar has it; a journal, and the x-death of a letter, may say any number."""
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).astimezone()
    except (ValueError, OverflowError, OSError):
        return None


def ago(ms: int | None) -> str:
    """How long ago, roughly."""
    if not ms:
        return "–"
    seconds = max(0, int(time.time() - ms / 1000))
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit} ago"
    return f"{seconds} s ago"


def lasting(ms: int) -> str:
    """A duration."""
    return duration_text(max(0, ms))
