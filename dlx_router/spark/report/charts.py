"""The charts: rows of the analyses → SVG. Pure; every mark says its numbers, every chart tells them in words too."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator
from matplotlib.ticker import FuncFormatter

from dlx_router.spark.report.drawing import LOOK, Drawing, beside, shown
from dlx_router.spark.report.style import LIGHT
from dlx_router.spark.report.words import DAY_MS, duration, moment, number, percent

WIDTH: Final = 1080.0
SERIES: Final = 6  # queues with a colour of their own; the rest is one series
OTHERS: Final = "others"
Row = dict[str, Any]


def colours(recovery: Sequence[Row]) -> dict[str, str]:
    """Queue → colour of the page, the queues with most letters first; the same in every chart."""
    totals: dict[str, int] = {}
    for row in recovery:
        totals[row["failed_queue"]] = totals.get(row["failed_queue"], 0) + row["letters"]
    names = sorted(totals, key=lambda name: (-totals[name], name))
    return {name: f"c{at + 1}" for at, name in enumerate(names[:SERIES])} | dict.fromkeys(names[SERIES:], "c0")


@mpl.rc_context(LOOK)
def deaths_over_time(rows: Sequence[Row], classes: dict[str, str], bucket_ms: int, first_ms: int, last_ms: int) -> str:
    """Letters that failed for the first time: a strip for each queue, to its own scale, so that none hides others."""
    names = {colour: name for name, colour in reversed(classes.items()) if colour != "c0"}
    names |= {"c0": OTHERS} if "c0" in classes.values() else {}
    strips = sorted(names, key=lambda colour: colour.replace("c0", "c99"))
    drawing = Drawing(WIDTH, len(strips) * 46 + 34, room=(_room(names.values()), 76, 6, 28), rows=max(len(strips), 1))
    sentences = []
    for axes, colour in zip(drawing.axes, strips, strict=False):
        counts: dict[int, int] = {}
        own = [row for row in rows if classes.get(row["failed_queue"], "c0") == colour and row["new_letters"]]
        for row in sorted(own, key=lambda row: row["bucket_ms"]):
            counts[row["bucket_ms"]] = counts.get(row["bucket_ms"], 0) + row["new_letters"]
        name, most, total = names[colour], max(counts.values(), default=0), sum(counts.values())
        days = [(at + bucket_ms * 0.08) / DAY_MS for at in counts]
        bars = axes.bar(days, [*counts.values()], bucket_ms * 0.84 / DAY_MS, align="edge", color=LIGHT[colour])
        drawing.says(bars, (f"{name}: {number(count)} letters, {moment(at)}" for at, count in counts.items()))
        axes.set_ylim(0, max(most, 1))
        axes.set_yticks([max(most, 1) / 2], [shown(name)])
        beside(axes, f"peak {number(most)}", (1, most * 0.55), (76, 0), weight="bold")
        beside(axes, f"of {number(total)}", (1, 0), (76, 1), color=LIGHT["soft"])
        sentences.append(f"{name}: {number(total)} letters, {number(most)} in the worst {duration(bucket_ms)}.")
    begin, end = first_ms - first_ms % bucket_ms, last_ms - last_ms % bucket_ms + bucket_ms
    _days(drawing.axes, begin, end)
    return drawing.svg("When letters failed for the first time, a strip for each queue", sentences)


def _room(names: Iterable[str]) -> float:
    """On the left, for the longest of these names."""
    return 20 + 7.2 * max(map(len, map(shown, names)), default=0)


def _days(strips: Sequence[Axes], begin_ms: int, end_ms: int) -> None:
    """A faint line for each day, or for a round part of the time; names below the last strip."""
    form = "%a %d %b" if end_ms - begin_ms > 2 * DAY_MS else "%H:%M"
    for axes in strips:
        axes.set_xlim(begin_ms / DAY_MS, end_ms / DAY_MS)
        axes.xaxis.set_major_locator(AutoDateLocator(minticks=3, maxticks=9))  # type: ignore[no-untyped-call]  # matplotlib's
        axes.xaxis.set_major_formatter(FuncFormatter(lambda day, _: moment(day * DAY_MS, form)))
        axes.grid(axis="x")


FATES: Final = (
    ("by_retry", "good", "recovered by a retry"), ("by_redrive", "back", "recovered by a redrive"),
    ("open", "wait", "open"), ("lost", "bad", "not recovered"),
)  # fmt: skip
_ROOM_SHARE: Final = 0.06  # of a bar, for a number in it


@mpl.rc_context(LOOK)
def fates(recovery: Sequence[Row]) -> str:
    """What became of each queue's letters."""
    drawing = Drawing(
        WIDTH,
        len(recovery) * 36 + 6,
        room=(_room(row[column] for row in recovery for column in ("failed_queue", "reason")), 76, 3, 3),
    )
    axes, rows = drawing.axes[0], [row | {"by_retry": row["recovered"] - row["by_redrive"]} for row in recovery]
    left, sentences = [0.0] * len(rows), [""] * len(rows)
    for name, colour, label in FATES:
        shares = [row[name] / max(row["letters"], 1) for row in rows]
        texts = [f"{label}: {number(row[name])} ({percent(share)})" for row, share in zip(rows, shares, strict=True)]
        bars = axes.barh(range(len(rows)), shares, 0.66, left, color=LIGHT[colour], edgecolor=LIGHT["card"])
        drawing.says(bars, texts)
        inside = [percent(share) if share > _ROOM_SHARE else "" for share in shares]
        axes.bar_label(bars, inside, label_type="center", color=LIGHT["ink" if colour == "wait" else "on"])
        left = [at + share for at, share in zip(left, shares, strict=True)]
        sentences = [f"{before} {text}," for before, text in zip(sentences, texts, strict=True)]
    for at, row in enumerate(rows):
        beside(axes, number(row["letters"]), (1, at), (76, -4), weight="bold")
    axes.set_xlim(0, 1)
    _rows(axes, rows)
    axes.spines["bottom"].set_visible(False)
    axes.set_xticks([])
    sentences = [
        f"{row['failed_queue']}, {row['reason']}:{text[:-1]}." for row, text in zip(rows, sentences, strict=True)
    ]
    return drawing.svg("What became of the letters of each queue", sentences)


def _rows(axes: Axes, rows: Sequence[Row]) -> None:
    """The first row on top; beside each its queue, and its reason where it has one."""
    axes.set_ylim(max(len(rows), 1) - 0.5, -0.5)
    axes.set_yticks([])
    for at, row in enumerate(rows):
        lower = shown(row.get("reason", ""))
        beside(axes, shown(row["failed_queue"]), (0, at), (-12, 1 if lower else -4))
        beside(axes, lower, (0, at), (-12, -12), color=LIGHT["soft"], size=11)


def efficacy(rows: Sequence[Row]) -> list[tuple[str, str, str]]:
    """A small chart for each queue and reason → (queue, reason, SVG): how often each delivery succeeds."""
    charts = []
    for (_, queue, reason), each in groupby(rows, key=lambda row: (row["vhost"], row["failed_queue"], row["reason"])):
        charts.append((queue, reason, _efficacy(list(each)[:10], f"{queue}, {reason}")))
    return charts


_ROOM: Final = 5  # labels of waits that stand beside each other without touching


@mpl.rc_context(LOOK)
def _efficacy(rows: Sequence[Row], name: str) -> str:
    drawing = Drawing(336, 184, room=(46, 4, 8, 56))
    axes, places = drawing.axes[0], range(len(rows))
    every = 1 if len(rows) <= _ROOM else -(-len(rows) // (_ROOM - 1))
    texts = [
        f"delivery {row['attempts'] + 1}: {number(row['recovered'])} of {number(row['tried'])} succeeded "
        f"({percent(row['low'])} to {percent(row['high'])})"
        for row in rows
    ]
    low, high = [row["low"] for row in rows], [row["high"] for row in rows]
    bars = axes.bar(places, [row["recovered_share"] for row in rows], 0.5, color=LIGHT["good"])
    drawing.says(bars, texts)
    axes.vlines(places, low, high, LIGHT["ink"], linewidth=1.4)
    caps = [at - 0.07 for at in places], [at + 0.07 for at in places], LIGHT["ink"]
    axes.hlines(low, *caps, linewidth=1.4)
    axes.hlines(high, *caps, linewidth=1.4)
    labels = [f"{row['attempts'] + 1}." for row in rows]
    for at in places[::every]:  # the table has them all
        labels[at] += f"\n+{duration(rows[at]['wait_p50_ms'])}\nn {number(rows[at]['tried'])}"
    axes.set_xticks(places, labels)
    axes.set_xlim(-0.5, max(len(rows), 3) - 0.5)
    axes.set_ylim(0, 1)
    axes.set_yticks((0, 0.25, 0.5, 0.75, 1), ("0 %", "", "50 %", "", "100 %"), color=LIGHT["soft"])
    axes.grid(axis="y")
    return drawing.svg(f"How often each delivery succeeds: {name}", (f"{text}." for text in texts))


_MARKS_MS: Final = (1, 10, 100, 1e3, 1e4, 6e4, 6e5, 3.6e6, 3.6e7, 8.64e7, 6.048e8)
_POINTS: Final = (("p99", "99 %", 40, 1.5, "card"), ("p95", "95 %", 75, 2.5, "card"), ("p50", "half", 130, 1, "back"))


@mpl.rc_context(LOOK)
def times(recovery: Sequence[Row]) -> str:
    """Half, 95 % and 99 % of the recovered letters took so long; on a logarithmic scale."""
    rows = [row for row in recovery if row["time_p50_ms"] is not None]
    if not rows:
        return ""
    drawing = Drawing(
        WIDTH,
        len(rows) * 36 + 30,
        room=(_room(row[column] for row in rows for column in ("failed_queue", "reason")), 40, 3, 27),
    )
    axes, sentences = drawing.axes[0], []
    for at, row in enumerate(rows):
        took = {name: max(row[f"time_{name}_ms"], 1) for name in ("p50", "p95", "p99")}
        axes.hlines(at, took["p50"], took["p99"], LIGHT["back"], linewidth=3, alpha=0.4)
        texts = [f"{part} within {duration(took[name])}" for name, part, *_ in _POINTS]
        for (name, _, area, edge, fill), text in zip(_POINTS, texts, strict=True):
            dot = axes.scatter(took[name], at, area, LIGHT[fill], linewidths=edge, edgecolors=LIGHT["back"], zorder=3)
            drawing.says([dot], [text])
        sentences.append(f"{row['failed_queue']}, {row['reason']}: {', '.join(reversed(texts))}.")
    least, most = min(row["time_p50_ms"] for row in rows), max(row["time_p99_ms"] for row in rows)
    axes.set_xscale("log")
    axes.set_xlim(max(least, 1) * 0.7, max(most, least * 10, 10) * 1.3)
    low, high = axes.get_xlim()
    marks = [mark for mark in _MARKS_MS if low <= mark <= high]
    axes.set_xticks(marks, [duration(mark) for mark in marks])
    axes.set_xticks([], minor=True)
    axes.grid(axis="x")
    axes.spines["bottom"].set_visible(False)
    _rows(axes, rows)
    return drawing.svg("How long letters took to recover: half, 95 % and 99 % of each queue", sentences)


@mpl.rc_context(LOOK)
def burn(rows: Sequence[Row]) -> str:
    """How many times over each queue used up its error budget; the line is all of it."""
    shares = [row for row in rows if row["burn"] is not None]
    drawing = Drawing(WIDTH, len(shares) * 28 + 24, room=(_room(row["failed_queue"] for row in shares), 76, 3, 21))
    axes, burnt = drawing.axes[0], [row["burn"] for row in shares]
    texts = [f"{number(row['bad'])} of {number(row['letters'] - row['open'])} letters late or lost" for row in shares]
    colour = [LIGHT["bad" if factor > 1 else "good"] for factor in burnt]
    bars = axes.barh(range(len(shares)), burnt, 0.62, color=colour)
    drawing.says(bars, texts)
    paper = {"facecolor": LIGHT["card"], "edgecolor": "none", "pad": 5}  # the line does not strike a number through
    axes.bar_label(bars, [f"{factor:.1f} ×" for factor in burnt], padding=8, weight="bold", bbox=paper)
    axes.axvline(1, color=LIGHT["ink"], linewidth=1.5, linestyle=(0, (4, 3)), zorder=0.5)
    axes.set_xlim(0, max([*burnt, 1.2]))
    axes.set_xticks([1], ["budget used up"])
    axes.spines["bottom"].set_visible(False)
    _rows(axes, [{"failed_queue": row["failed_queue"]} for row in shares])
    sentences = [
        f"{row['failed_queue']}: {row['burn']:.1f} times, {text}." for row, text in zip(shares, texts, strict=True)
    ]
    return drawing.svg("Error budget used up, by queue", sentences)
