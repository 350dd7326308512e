"""A journal's lines as evidence, counted by a plain script: what the counting on Spark is compared with."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from dlx_router.core.recovered import SILENT, given_back_ms, tried
from dlx_router.spark.advice.evidence import Evidence, Key, Tries, bucket

HOUR_MS = 3_600_000
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


def counted(lines: Sequence[Event], as_of_ms: int, window_ms: int = HOUR_MS) -> Evidence:
    """Without traits."""
    own: dict[tuple[str, str], list[Event]] = defaultdict(list)
    for line in lines:
        if line.get("id"):
            own[line["id"], line["failed_queue"]].append(line)
    letters = [candidate for events in own.values() if (candidate := Letter(events, as_of_ms, window_ms)).stays]
    tries: Counter[tuple[Any, ...]] = Counter()
    hours = Counter((letter.key, letter.first["ts_ms"] // HOUR_MS) for letter in letters)
    for letter in letters:
        tries.update(_tries(letter))
    busiest = {key: max(count for (of, _), count in hours.items() if of == key) for key, _ in hours}
    return Evidence(_rows(tries), busiest)


def _rows(tries: Counter[tuple[Any, ...]]) -> tuple[Tries, ...]:
    rows: dict[tuple[Any, ...], list[int]] = {}
    for (*place, name), count in tries.items():
        entry = rows.setdefault(tuple(place), [0, 0, 0, 0])
        entry[("recovered", "failed", "ended", "wait_ms").index(name)] += count
    return tuple(
        Tries(key, attempts, since, at, good, failed, ended, wait_ms)
        for (key, attempts, since, at), (good, failed, ended, wait_ms) in rows.items()
    )


def _tries(letter: Letter) -> Counter[tuple[Any, ...]]:
    begun = letter.first["ts_ms"]
    counts: Counter[tuple[Any, ...]] = Counter()
    ends = [outcome for _, _, outcome in letter.stays]
    for (event, back, outcome), then in zip(letter.stays, [*ends[1:], "none"], strict=True):
        if outcome not in {"recovered", "failed"}:
            continue
        place = (letter.key, event["attempts"], bucket(event["ts_ms"] - begun), bucket(back - begun))
        counts[*place, outcome] += 1
        counts[*place, "wait_ms"] += back - event["ts_ms"]
        counts[*place, "ended"] += outcome == "failed" and then not in {"recovered", "failed"}
    return counts
