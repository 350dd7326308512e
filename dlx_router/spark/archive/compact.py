"""`pipeline compact`: days that are over become one sorted file each, what is too old goes. See `folding`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final

from dlx_router.spark.archive import bad_lines
from dlx_router.spark.archive.files import token
from dlx_router.spark.archive.folding import Fold, alone, drop_old, folded, mirrored, near
from dlx_router.spark.archive.layout import Archive, Day, Entry, Part
from dlx_router.spark.archive.lookback import LOOKBACK_DAYS
from dlx_router.spark.archive.missing import NOW, Lacking, lacking, readable, uncounted

_DAY_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class Rules:
    """How long what is kept, in days. `lookback`: how far back an event_id is looked for that comes again."""

    keep: int | None = None
    keep_raw: float = 1.0
    lookback: int = LOOKBACK_DAYS


@dataclass(frozen=True, slots=True)
class Compacted:
    """What was done. `repeated`: events that had come twice. `left`: of each day that is as it was, why."""

    days: int
    events: int
    repeated: int
    expired: int
    segments: int
    left: tuple[str, ...] = ()


def compact(fold: Fold, root: Path | str, rules: Rules, *, now: datetime | None = None) -> Compacted:
    """Compact every day but today and tomorrow (UTC), then forget what is too old.

    A day that lies further ahead is that of a wrong clock: left open, it would keep every manifest behind it. A day of
    which a file is lost or damaged is left as it is, and no other because of it.
    ArchiveError where another one is at it.
    """
    archive, now = Archive(root), now or datetime.now(UTC)
    with alone(archive):
        expired = _expire(archive, now, _kept_for(rules.keep, now)) if rules.keep is not None else 0
        days = events = repeated = 0
        left: dict[str, list[Lacking]] = {}
        for day, parts in _open_days(archive, now.date()).items():
            others = _sound(near(archive, day, rules.lookback), left)
            done = _compacted(archive, day, parts, others, fold)
            if not isinstance(done, Day):
                left[day] = done
                continue
            before = sum(part.rows for part in parts)
            days, events, repeated = days + 1, events + done.rows, repeated + before - done.rows
        drop_old(archive, int(now.timestamp() * 1000 - rules.keep_raw * _DAY_MS))
        segments = _squash(archive)
        mirrored(archive)
    return Compacted(days, events, repeated, expired, segments, tuple(_left(*each) for each in left.items()))


def _compacted(
    archive: Archive, day: str, parts: Sequence[Part], others: Sequence[Part], fold: Fold
) -> Day | list[Lacking]:
    """The day, or what of it is lost. `others`: where its events may stand already."""
    if uncounted(parts):
        return lacking(parts)
    try:
        return folded(archive, day, parts, partial(fold, parts, others))
    except Exception:  # DuckDB's or Spark's: what no damaged file explains is raised again
        if damaged := lacking(parts):
            return damaged
        if (rest := readable(others)) == others:
            raise
    return folded(archive, day, parts, partial(fold, parts, rest))


def _sound(parts: Sequence[Part], left: Mapping[str, Sequence[Lacking]]) -> list[Part]:
    """The same without what is lost: an event of which only an id can be read there does not stand there already."""
    rest = {state.part.folder: state.readable for states in left.values() for state in states}
    return [part for part in (rest.get(part.folder, part) for part in parts) if part.files]


def _left(day: str, states: Sequence[Lacking]) -> str:
    return f"{day} is not compacted: {'; '.join(state.problem for state in states)}; {NOW}"


def _kept_for(days: int, now: datetime) -> timedelta:
    """So many days, at most until the first of all dates: who wants to keep everything may name any number."""
    return timedelta(min(days, now.toordinal() - 1))


def _open_days(archive: Archive, today: date) -> dict[str, list[Part]]:
    """Days before today that have segments which are not compacted, late ones of a compacted day included.

    And days that are not even near.
    """
    days: dict[str, list[Part]] = {}
    for part in archive.parts():
        if part.date < today.isoformat() or part.date > _tomorrow(today):
            days.setdefault(part.date, []).append(part)
    return {day: parts for day, parts in days.items() if not all(part.is_compacted for part in parts)}


def _tomorrow(today: date) -> str:
    """Events of later days are not of a clock that is somewhat fast."""
    return (today + timedelta(1)).isoformat()


def _expire(archive: Archive, now: datetime, keep: timedelta) -> int:
    """Forget the days that are older, and those ahead that were compacted so long ago; how many there were.

    `drop_old` deletes their files.
    """
    before = now.date() - keep
    state, limit = archive.state(), before.isoformat()
    ahead = _forget_ahead(archive, _tomorrow(now.date()), int((now - keep).timestamp() * 1000))
    dates = sorted({part.date for part in archive.parts() if part.date < limit})
    if limit > state.before:
        archive.commit_state(replace(state, before=limit))
    for day in archive.days().values():
        if day.date < limit:
            archive.forget(archive.day(day.date))
    bad_lines.blank(archive, until_ms=int(datetime.combine(before, datetime.min.time(), UTC).timestamp() * 1000))
    return len(dates) + ahead


def _forget_ahead(archive: Archive, tomorrow: str, before_ms: int) -> int:
    """Forget what was compacted before then of days that lie ahead, whose own time would never come."""
    old = [day for day in archive.days().values() if day.rows and day.date > tomorrow and day.written_ms < before_ms]
    for day in old:
        archive.commit_day(replace(day, seg=f"c-{token()}", rows=0))
    return len(old)


def _squash(archive: Archive) -> int:
    """Fold the manifests whose events all lie in compacted days into the state; how many.

    Never the newest: an ingest that runs looks there whether the last segment is its own.
    """
    state, days = archive.state(), archive.days()
    done: list[Entry] = []
    for entry in archive.entries()[:-1]:
        if not all(_is_past(archive, entry.seg, day, days, state.before) for day in entry.rows):
            break
        done.append(entry)
    if not done:
        return 0
    end = dict(state.end) | {stream: at for entry in done for stream, at in entry.end.items()}
    events = state.events + sum(sum(entry.rows.values()) for entry in done)
    bad = state.bad + sum(entry.bad for entry in done)
    number = done[-1].number + 1
    archive.commit_state(replace(state, squashed=number, end=end, events=events, bad=bad))
    for entry in done:
        archive.forget(archive.manifest(entry.number))
    return len(done)


def _is_past(archive: Archive, seg: str, day: str, days: dict[str, Day], before: str) -> bool:
    if day < before:
        return True
    return day in days and seg in days[day].folded and not archive.raw(day, seg).exists()
