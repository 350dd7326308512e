"""Pieces of SVG: marks with a text for readers of screens, scales and labels. Colours are the page's CSS classes."""

import math
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Final

DAY_MS: Final = 86_400_000
_UNITS: Final = ((DAY_MS, "d"), (3_600_000, "h"), (60_000, "min"), (1000, "s"))


def svg(width: float, height: float, label: str, parts: Iterable[str]) -> str:
    """A drawing as wide as its place; `label` says what it shows to who cannot see it."""
    inner = "".join(parts)
    return (
        f'<svg viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(label)}" '
        f'preserveAspectRatio="xMinYMin meet">{inner}</svg>'
    )


def rect(  # noqa: PLR0913, PLR0917 - SVG's own attributes, in SVG's order
    x: float, y: float, width: float, height: float, css: str, said: str = "", radius: float = 0
) -> str:
    """A bar; `said` is shown where the pointer rests."""
    title = f"<title>{escape(said)}</title>" if said else ""
    return (
        f'<rect x="{x:.2f}" y="{y:.2f}" width="{max(width, 0):.2f}" height="{max(height, 0):.2f}" rx="{radius:g}" '
        f'class="{css}">{title}</rect>'
    )


def line(x1: float, y1: float, x2: float, y2: float, css: str) -> str:
    """A straight line."""
    return f'<line x1="{x1:.2f}" y1="{y1:.2f}" x2="{x2:.2f}" y2="{y2:.2f}" class="{css}"/>'


def dot(x: float, y: float, radius: float, css: str, said: str = "") -> str:
    """A point."""
    title = f"<title>{escape(said)}</title>" if said else ""
    return f'<circle cx="{x:.2f}" cy="{y:.2f}" r="{radius:g}" class="{css}">{title}</circle>'


def text(x: float, y: float, said: str, css: str = "tick", anchor: str = "start") -> str:
    """Words at a place: anchor start, middle or end."""
    return f'<text x="{x:.2f}" y="{y:.2f}" class="{css}" text-anchor="{anchor}">{escape(said)}</text>'


def path(points: Sequence[tuple[float, float]], css: str) -> str:
    """A line through points."""
    steps = " ".join(f"{'M' if at == 0 else 'L'}{x:.2f} {y:.2f}" for at, (x, y) in enumerate(points))
    return f'<path d="{steps}" class="{css}"/>'


def ticks(most: float, count: int = 4) -> list[float]:
    """Round numbers from 0 to at least `most`, some `count` of them."""
    if most <= 0:
        return [0, 1]
    raw = most / count
    power = 10 ** math.floor(math.log10(raw))
    step = next(power * one for one in (1, 2, 2.5, 5, 10) if power * one >= raw)
    step = max(step, 1) if most > 1 else step
    return [step * at for at in range(math.ceil(most / step) + 1)]


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
    return f"{value * 100:.0f} %" if value in {0, 1} or 0.1 <= value < 0.99 else f"{value * 100:.1f} %"  # noqa: PLR2004 - then nobody reads a part of a percent


def duration(ms: float | None) -> str:
    """90000 → 1.5 min; "–" for none."""
    if ms is None:
        return "–"
    for unit, name in _UNITS:
        if ms >= unit:
            return f"{ms / unit:.3g} {name}"
    return f"{ms:.0f} ms"


def moment(ms: int, form: str = "%a %d %b %H:%M") -> str:
    """A time as people write it, UTC."""
    return datetime.fromtimestamp(ms / 1000, UTC).strftime(form)
