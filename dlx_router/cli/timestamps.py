"""Times as people write and read them."""

import time
from datetime import UTC, datetime

import typer

from dlx_router.config.units import duration_ms, duration_text
from dlx_router.telemetry.wall_clock import wall_ms


def moment_ms(text: str | None, option: str, *, ahead: bool = False) -> int | None:
    """Return a time in ms since 1970; a duration is how long ago, or with `ahead` how long from now."""
    if text is None:
        return None
    try:
        return wall_ms() + (duration_ms(text) if ahead else -duration_ms(text))
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        what = "neither a time (2026-01-31T12:00Z) nor a duration (2h)"
        raise typer.BadParameter(f"{text!r}: {what}", param_hint=option) from None
    return int((moment if moment.tzinfo else moment.astimezone()).timestamp() * 1000)


def shown(ms: int | None, precision: str = "milliseconds") -> str:
    """Return local time; a dash where no calendar has it: a journal or x-death may hold any number."""
    try:
        moment = datetime.fromtimestamp(ms / 1000, UTC).astimezone() if ms else None
    except (ValueError, OverflowError, OSError):
        moment = None
    return "–" if moment is None else moment.isoformat(sep=" ", timespec=precision)


def ago(ms: int | None) -> str:
    """Return roughly how long ago."""
    if not ms:
        return "–"
    seconds = max(0, int(time.time() - ms / 1000))
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit} ago"
    return f"{seconds} s ago"


def lasting(ms: int) -> str:
    """Return a duration as text."""
    return duration_text(max(0, ms))
