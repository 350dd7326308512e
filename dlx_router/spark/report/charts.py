"""The charts: rows of the analyses → SVG. Pure; every mark says its numbers, every chart has a table beside it."""

import math
from collections.abc import Sequence
from itertools import groupby
from typing import Any, Final

from dlx_router.spark.report import svg
from dlx_router.spark.report.svg import DAY_MS, dot, duration, line, moment, number, percent, rect, text

WIDTH: Final = 1080.0
SERIES: Final = 6  # queues with a colour of their own; the rest is one series
OTHERS: Final = "others"
Row = dict[str, Any]


def colours(recovery: Sequence[Row]) -> dict[str, str]:
    """Queue → CSS class, the queues with most letters first; the same in every chart."""
    totals: dict[str, int] = {}
    for row in recovery:
        totals[row["failed_queue"]] = totals.get(row["failed_queue"], 0) + row["letters"]
    names = sorted(totals, key=lambda name: (-totals[name], name))
    return {name: f"c{at + 1}" for at, name in enumerate(names[:SERIES])} | dict.fromkeys(names[SERIES:], "c0")


def deaths_over_time(rows: Sequence[Row], classes: dict[str, str], bucket_ms: int, first_ms: int, last_ms: int) -> str:
    """Letters that failed for the first time: a strip for each queue, to its own scale, so that none hides others."""
    left, right, tall, top = 150.0, 74.0, 46.0, 4.0
    begin, end = first_ms - first_ms % bucket_ms, last_ms - last_ms % bucket_ms + bucket_ms
    step = (WIDTH - left - right) / max((end - begin) // bucket_ms, 1)
    names = {css: name for name, css in reversed(classes.items()) if css != "c0"}
    names |= {"c0": OTHERS} if "c0" in classes.values() else {}
    bottom = top + len(names) * tall
    parts = _days(begin, end, left, step / bucket_ms, bottom, top)
    for at, css in enumerate(sorted(names, key=lambda one: one.replace("c0", "c99"))):
        counts: dict[int, int] = {}
        for row in (one for one in rows if classes.get(one["failed_queue"], "c0") == css):
            counts[row["bucket_ms"]] = counts.get(row["bucket_ms"], 0) + row["new_letters"]
        base, most = top + (at + 1) * tall - 4, max(counts.values(), default=0)
        parts += [line(left, base, WIDTH - right, base, "axis"), text(left - 12, base - 12, names[css], "name", "end")]
        parts += [text(WIDTH, base - 18, f"peak {number(most)}", "value", "end")]
        parts += [text(WIDTH, base - 4, f"of {number(sum(counts.values()))}", "tick", "end")]
        for moment_ms, count in sorted(counts.items()):
            high = count / max(most, 1) * (tall - 12)
            said = f"{names[css]}: {number(count)} letters, {moment(moment_ms)}"
            x = left + (moment_ms - begin) / bucket_ms * step
            parts += [rect(x + step * 0.08, base - high, step * 0.84, high, css, said)] if count else []
    return svg.svg(WIDTH, bottom + 26, "When letters failed for the first time, a strip for each queue", parts)


def _days(begin: int, end: int, left: float, per_ms: float, bottom: float, top: float) -> list[str]:
    """A faint line and a name for each day, or for a sixth of the time where there are few or very many days."""
    every = DAY_MS if 2 * DAY_MS < end - begin <= 16 * DAY_MS else max((end - begin) // 6, 60_000)
    form = "%a %d %b" if every >= DAY_MS else "%H:%M"
    start = -(-begin // DAY_MS) * DAY_MS if every == DAY_MS else begin
    parts = []
    for at in range(start, end, every):
        x = left + (at - begin) * per_ms
        parts += [line(x, top, x, bottom + 6, "grid"), text(x + 4, bottom + 20, moment(at, form))]
    return parts


_ROOM: Final = 5  # labels of waits that stand beside each other without touching
FATES: Final = (
    ("by_retry", "good", "recovered by a retry"), ("by_redrive", "back", "recovered by a redrive"),
    ("open", "wait", "open"), ("lost", "bad", "not recovered"),
)  # fmt: skip


def fates(recovery: Sequence[Row]) -> str:
    """What became of each queue's letters."""
    left, right, tall = 250.0, 96.0, 34.0
    parts = []
    for at, row in enumerate(recovery):
        y, x = at * tall + 6, left
        told = row | {"by_retry": row["recovered"] - row["by_redrive"]}
        parts.append(text(left - 12, y + 11, row["failed_queue"], "name", "end"))
        parts.append(text(left - 12, y + 24, row["reason"], "tick", "end"))
        for name, css, said in FATES:
            wide = (WIDTH - left - right) * told[name] / max(row["letters"], 1)
            if wide > 0:
                share = percent(told[name] / row["letters"])
                parts.append(rect(x, y, max(wide - 2, 1), 22, css, f"{said}: {number(told[name])} ({share})", 3))
                parts += [text(x + 8, y + 15.5, share, f"on-{css}")] if wide > 52 else []  # noqa: PLR2004 - it has room
            x += wide
        parts.append(text(WIDTH, y + 15.5, number(row["letters"]), "value", "end"))
    return svg.svg(WIDTH, len(recovery) * tall + 8, "What became of the letters of each queue", parts)


def efficacy(rows: Sequence[Row]) -> list[tuple[str, str, str]]:
    """A small chart for each queue and reason → (queue, reason, SVG): how often each delivery succeeds."""
    found = []
    for (queue, reason), each in groupby(rows, key=lambda row: (row["failed_queue"], row["reason"])):
        found.append((queue, reason, _efficacy(list(each)[:10], f"{queue}, {reason}")))
    return found


def _efficacy(rows: Sequence[Row], name: str) -> str:
    width, height, bottom, left = 336.0, 178.0, 128.0, 46.0
    step = (width - left) / max(len(rows), 3)
    scale, wide = bottom - 14, min(30.0, step - 4)
    every = 1 if len(rows) <= _ROOM else -(-len(rows) // (_ROOM - 1))
    parts = []
    for mark in (0, 0.25, 0.5, 0.75, 1):
        y = bottom - mark * scale
        parts.append(line(left, y, width, y, "axis" if mark == 0 else "grid"))
        parts += [text(left - 6, y + 4, f"{mark * 100:.0f} %", "tick", "end")] if mark in {0, 0.5, 1} else []
    for at, row in enumerate(rows):
        x, y = left + at * step + step / 2, bottom - row["recovered_share"] * scale
        said = (
            f"delivery {row['attempts'] + 1}: {number(row['recovered'])} of {number(row['tried'])} succeeded "
            f"({percent(row['low'])} to {percent(row['high'])})"
        )
        parts.append(rect(x - wide / 2, y, wide, bottom - y, "good", said, 2))
        low, high = bottom - row["low"] * scale, bottom - row["high"] * scale
        parts += [line(x, low, x, high, "whisker"), line(x - 4, low, x + 4, low, "whisker")]
        parts += [line(x - 4, high, x + 4, high, "whisker")]
        parts.append(text(x, bottom + 16, f"{row['attempts'] + 1}.", "name", "middle"))
        if at % every == 0:  # the table has them all
            parts.append(text(x, bottom + 30, f"+{duration(row['wait_p50_ms'])}", "tick", "middle"))
            parts.append(text(x, bottom + 44, f"n {number(row['tried'])}", "tick", "middle"))
    return svg.svg(width, height, f"How often each delivery succeeds: {name}", parts)


def times(recovery: Sequence[Row]) -> str:
    """Half, 95 % and 99 % of the recovered letters took so long; on a logarithmic scale."""
    rows = [row for row in recovery if row["time_p50_ms"] is not None]
    if not rows:
        return ""
    left, tall = 250.0, 34.0
    least = 10 ** math.floor(math.log10(max(min(row["time_p50_ms"] for row in rows), 1)))
    most = max(*(row["time_p99_ms"] for row in rows), least * 10)
    per_decade = (WIDTH - left - 60) / math.log10(most / least)

    def at_x(ms: float) -> float:
        return left + math.log10(max(ms, least) / least) * per_decade

    marks = [1, 10, 100, 1e3, 1e4, 6e4, 6e5, 3.6e6, 3.6e7, 8.64e7, 6.048e8]
    bottom = len(rows) * tall + 4
    parts = []
    for mark in marks:
        if least <= mark <= most * 1.05:
            parts += [line(at_x(mark), 0, at_x(mark), bottom, "grid")]
            parts += [text(at_x(mark), bottom + 16, duration(mark), "tick", "middle")]
    for at, row in enumerate(rows):
        y = at * tall + tall / 2
        p50, p95, p99 = (row[f"time_p{one}_ms"] for one in (50, 95, 99))
        parts += [text(left - 12, y, row["failed_queue"], "name", "end")]
        parts += [text(left - 12, y + 13, row["reason"], "tick", "end")]
        parts += [line(at_x(p50), y, at_x(p99), y, "range")]
        for ms, name, radius, css in ((p99, "99 %", 4, "p99"), (p95, "95 %", 5, "p95"), (p50, "half", 6.5, "p50")):
            parts.append(dot(at_x(ms), y, radius, css, f"{name} within {duration(ms)}"))
    return svg.svg(WIDTH, bottom + 24, "How long letters took to recover: half, 95 % and 99 % of each queue", parts)


def burn(rows: Sequence[Row]) -> str:
    """How many times over each queue used up its error budget; the line is all of it."""
    shown = [row for row in rows if row["burn"] is not None]
    left, tall, most = 250.0, 26.0, max([row["burn"] for row in shown] + [1.2])
    scale = (WIDTH - left - 70) / most
    limit = left + scale
    parts = []
    for at, row in enumerate(shown):
        y = at * tall + 5
        css = "bad" if row["burn"] > 1 else "good"
        said = f"{number(row['bad'])} of {number(row['letters'] - row['open'])} letters late or lost"
        parts += [text(left - 12, y + 12, row["failed_queue"], "name", "end")]
        parts += [rect(left, y, max(row["burn"] * scale, 1), 16, css, said, 3)]
        end = left + row["burn"] * scale
        hides = end <= limit < end + 48  # the line would strike the number through
        parts += [text((limit if hides else end) + 8, y + 12.5, f"{row['burn']:.1f} ×", "value")]
    x, bottom = limit, len(shown) * tall + 6
    parts += [line(x, 0, x, bottom, "limit"), text(x + 4, bottom + 12, "budget used up", "tick")]
    return svg.svg(WIDTH, bottom + 20, "Error budget used up, by queue", parts)
