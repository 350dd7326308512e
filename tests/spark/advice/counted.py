"""A journal's lines as evidence, counted by a plain script: what the counting on Spark is compared with."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from math import floor, log2
from statistics import median
from typing import Any

from dlx_router.core.recovered import DEATHS, SILENT, given_back_ms, tried
from dlx_router.spark.advice.evidence import Calm, Episode, Evidence, Key, Tries, bucket
from dlx_router.spark.advice.outages import FINE

GAP_MS = 30 * 60_000
LARGE = 30
Event = dict[str, Any]


class Letter:
    """All events of a letter, and how each time that it was given back ended."""

    def __init__(self, events: Iterable[Event], as_of_ms: int, window_ms: int) -> None:
        self.events = sorted(
            events, key=lambda step: (step["ts_ms"], step["redrives"], step["attempts"], step["event_id"])
        )
        speaking = [step for step in self.events if step["kind"] not in SILENT]
        self.given: list[tuple[Event, int, str]] = []
        for event, then in zip(speaking, [*speaking[1:], None], strict=True):
            due = event.get("due_ms")
            back = given_back_ms(event["kind"], event["ts_ms"], due)
            if back is not None:
                kind = None if then is None else then["kind"]
                how = {"next_kind": kind, "as_of_ms": as_of_ms, "window_ms": window_ms}
                self.given.append((event, back, tried(event["kind"], event["ts_ms"], due, **how)))  # type: ignore[arg-type]  # by name
        self.stays = [entry for entry in self.given if entry[0]["kind"] == "retried" and not entry[0]["redrives"]]

    @property
    def first(self) -> Event:
        """Its first retry."""
        return self.stays[0][0]

    @property
    def key(self) -> Key:
        """By the reason that it failed for first."""
        return Key(self.first["vhost"], self.first["failed_queue"], self.first["reason"])


def counted(lines: Sequence[Event], as_of_ms: int, window_ms: int = 3_600_000) -> Evidence:
    """Without traits and groups."""
    own: dict[tuple[str, str], list[Event]] = defaultdict(list)
    for line in lines:
        if line.get("id"):
            own[line["id"], line["failed_queue"]].append(line)
    letters = [candidate for events in own.values() if (candidate := Letter(events, as_of_ms, window_ms)).stays]
    tries: Counter[tuple[Any, ...]] = Counter()
    episodes, peaks = [], []
    for key in sorted({candidate.key for candidate in letters}):
        small: list[Letter] = []
        for stretch in _stretches([candidate for candidate in letters if candidate.key == key]):
            episode = stretch[0].first["ts_ms"] if len(stretch) >= LARGE else None
            for letter in stretch:
                tries.update(_tries(letter, episode))
            if episode is None:
                small += stretch
            else:
                minutes = _minutes(stretch)
                episodes.append(_episode(key, stretch, int(median(minutes))))
                peaks.append(Calm(key, episode, max(minutes)))
        if small:
            peaks.append(Calm(key, None, max(_minutes(small))))
    return Evidence(_rows(tries), tuple(episodes), tuple(peaks))


def _rows(tries: Counter[tuple[Any, ...]]) -> tuple[Tries, ...]:
    rows: dict[tuple[Any, ...], list[int]] = {}
    for (*place, name), count in tries.items():
        entry = rows.setdefault(tuple(place), [0, 0, 0, 0])
        entry[("recovered", "failed", "ended", "wait_ms").index(name)] += count
    return tuple(
        Tries(key, attempts, since, at, good, failed, ended, wait_ms, (), "", episode)
        for (key, attempts, since, at, episode), (good, failed, ended, wait_ms) in rows.items()
    )


def _stretches(letters: list[Letter]) -> list[list[Letter]]:
    stretches: list[list[Letter]] = []
    for letter in sorted(letters, key=lambda letter: letter.first["ts_ms"]):
        if not stretches or letter.first["ts_ms"] - stretches[-1][-1].first["ts_ms"] > GAP_MS:
            stretches.append([])
        stretches[-1].append(letter)
    return stretches


def _tries(letter: Letter, episode: int | None) -> Counter[tuple[Any, ...]]:
    begun = letter.first["ts_ms"]
    counts: Counter[tuple[Any, ...]] = Counter()
    ends = [outcome for _, _, outcome in letter.stays]
    for (event, back, outcome), then in zip(letter.stays, [*ends[1:], "none"], strict=True):
        if outcome not in {"recovered", "failed"}:
            continue
        place = (letter.key, event["attempts"], bucket(event["ts_ms"] - begun), bucket(back - begun), episode)
        counts[*place, outcome] += 1
        counts[*place, "wait_ms"] += back - event["ts_ms"]
        counts[*place, "ended"] += outcome == "failed" and then not in {"recovered", "failed"}
    return counts


def _minutes(stretch: list[Letter]) -> list[int]:
    died = Counter(
        event["ts_ms"] // 60_000
        for letter in stretch
        for event in letter.events
        if event["kind"] in {*DEATHS, "held"} and not event.get("redrive_id")
    )
    return sorted(died.values())


def _episode(key: Key, stretch: list[Letter], typical: int) -> Episode:
    first, last = (stretch[at].first["ts_ms"] for at in (0, -1))
    before, after = [0, 0], [0, 0]
    remaining: dict[int, list[int]] = defaultdict(list)
    for letter in stretch:
        left = last - letter.first["ts_ms"]
        remaining[floor(FINE * log2(left + 1))].append(left)
        for _, back, outcome in letter.given:
            if outcome in {"recovered", "failed"}:
                side = after if back > last else before
                side[0] += outcome == "recovered"
                side[1] += 1
    means = sorted((round(sum(some) / len(some)), len(some)) for some in remaining.values())
    return Episode(key, first, last, (before[0], before[1]), (after[0], after[1]), tuple(means), typical)
