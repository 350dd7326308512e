"""Numbers, shares, durations and moments as people read them."""

from datetime import UTC, datetime
from typing import Final

DAY_MS: Final = 86_400_000
_UNITS: Final = ((DAY_MS, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))


def number(value: float) -> str:
    """1234567 → 1,234,567; large ones as 1.2 M."""
    if abs(value) >= 10_000_000:  # noqa: PLR2004 - then nobody reads all digits
        return f"{value / 1e6:,.1f} M"
    return f"{value:,.0f}" if value == round(value) else f"{value:,.1f}"


def percent(value: float | None) -> str:
    """0.0123 → 1.2 %; "–" for none."""
    if value is None:
        return "–"
    if 0.9995 <= value < 1:  # noqa: PLR2004 - it would be rounded up to all
        return "> 99.9 %"
    return f"{value * 100:.0f} %" if value in {0, 1} or 0.1 <= value < 0.99 else f"{value * 100:.1f} %"  # noqa: PLR2004 - near the ends a tenth counts


def duration(ms: float | None) -> str:
    """90000 → 1.5 min; "–" for none."""
    if ms is None:
        return "–"
    for unit, name in _UNITS:
        if ms >= unit:
            return f"{ms / unit:.3g} {name}"
    return f"{ms:.0f} ms"


def moment(ms: float | None, form: str = "%a %d %b %H:%M") -> str:
    """A time as people write it, UTC; None: nobody knows it."""
    return "–" if ms is None else datetime.fromtimestamp(ms / 1000, UTC).strftime(form)
