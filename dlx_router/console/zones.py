"""In which time zone a page says and takes times; what is kept and asked of a router is ms since 1970.

Guarantees: a shown time names its offset, so the hour that a clock has twice is told apart; a local time that a clock
skips is an error, one that it has twice is both: the first for a beginning, the second for an end.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta, tzinfo
from difflib import get_close_matches
from functools import cache
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

UTC_NAME: Final = "UTC"
MAX_NAME: Final = 64
LATEST_MS: Final = 253_402_300_799_000  # the year 9999
_OF_THE_MACHINE: Final = frozenset({"localtime", "posixrules", "Factory"})  # no names of a place
_MILLISECOND: Final = timedelta(milliseconds=1)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_now: ContextVar[tuple[str, tzinfo]] = ContextVar("zone", default=(UTC_NAME, UTC))


class ZoneError(ValueError):
    """There is no such zone, or no such time in it; says what to write instead."""


@cache
def names() -> tuple[str, ...]:
    """Every zone that this machine knows; UTC alone where it has no database of them. Read once in a process."""
    return tuple(sorted({*available_timezones(), UTC_NAME} - _OF_THE_MACHINE))


@cache
def _by_word() -> dict[str, str]:
    return {_word(name): name for name in names()}


def _word(name: str) -> str:
    return name.strip().replace(" ", "_").casefold()


def known(name: str) -> str | None:
    """The zone of this name as the database has it, however it is written; None: there is none.

    Only names of the list become files: nothing that a cookie says is looked for on disk.
    """
    return _by_word().get(_word(name)) if len(name) <= MAX_NAME else None


def named(name: str) -> str:
    """As `known`. Raises ZoneError."""
    zone = known(name)
    if zone is not None:
        return zone
    if len(names()) == 1:
        raise ZoneError(
            "this machine has no time zone database, so there is only UTC; install the package tzdata of the system,"
            " or `pip install tzdata` beside the router, and start it again"
        )
    near = get_close_matches(_word(name[:MAX_NAME]), _by_word(), n=3)
    others = f" Did you mean {' or '.join(_by_word()[word] for word in near)}?" if near else ""
    raise ZoneError(f"there is no time zone {name[:MAX_NAME]!r}; write one as Europe/Berlin, or UTC.{others}")


def zone_of(name: str) -> tzinfo:
    """The zone; UTC where this machine does not know it (any more)."""
    exact = known(name)
    try:
        return UTC if exact in {None, UTC_NAME} else ZoneInfo(str(exact))
    except (OSError, ValueError, KeyError):  # it was there when the list was read; no file of it is a KeyError
        return UTC


@contextmanager
def shown_in(name: str) -> Iterator[None]:
    """Times are shown in this zone meanwhile, in UTC where there is none of this name."""
    zone = zone_of(name)
    token = _now.set((UTC_NAME if zone is UTC else known(name) or UTC_NAME, zone))
    try:
        yield
    finally:
        _now.reset(token)


def current() -> str:
    """The name of the zone in which times are shown."""
    return _now.get()[0]


def stamp(ms: object) -> str:
    """A moment to the millisecond with its offset, `UTC` where that is the zone; a dash where it is none."""
    if not isinstance(ms, int | float) or not 0 < ms < LATEST_MS:  # nor is what no float holds, or no number
        return "–"
    name, zone = _now.get()
    local = _local(int(ms), zone)
    text = local.replace(tzinfo=None).isoformat(" ", "milliseconds")
    return f"{text} {UTC_NAME if name == UTC_NAME else _offset(local)}"


def machine(ms: float) -> str:
    """The moment in UTC, as `datetime` of a time element has it."""
    return _local(int(ms), UTC).isoformat(timespec="milliseconds")


def field_of(ms: int, name: str) -> str:
    """The moment as a field of the kind datetime-local has it in this zone, to the second; empty where it is none."""
    if not 0 <= ms <= LATEST_MS:
        return ""
    return _local(ms, zone_of(name)).replace(tzinfo=None).isoformat(timespec="seconds")


def moment(local: datetime, name: str, *, is_end: bool = False) -> int:
    """A local time of this zone in ms since 1970. Raises ZoneError where its clocks skip it."""
    zone = zone_of(name)
    first, second = (local.replace(tzinfo=zone, fold=fold) for fold in (0, 1))
    before, after = first.utcoffset() or timedelta(), second.utcoffset() or timedelta()
    if before < after:  # PEP 495: the offset of before where a clock goes forward, which puts the time behind the gap
        earlier, later = local - (after - before), local + (after - before)
        raise ZoneError(
            f"the clocks of {name} skip {local.isoformat(' ')}: they go from {_offset(first)} to {_offset(second)};"
            f" write {earlier:%H:%M:%S} or {later:%H:%M:%S}"
        )
    return _since_1970(second if is_end else first) // _MILLISECOND


def twice(local: datetime, name: str, *, is_end: bool = False) -> str:
    """What to tell about a local time that the clocks of this zone have twice; empty where they have it once."""
    zone = zone_of(name)
    first, second = (local.replace(tzinfo=zone, fold=fold) for fold in (0, 1))
    before, after = first.utcoffset() or timedelta(), second.utcoffset() or timedelta()
    if before <= after:
        return ""
    which, taken = ("second", second) if is_end else ("first", first)
    return (
        f"the clocks of {name} show {local.isoformat(' ')} twice, at {_offset(first)} and at {_offset(second)};"
        f" the {which} is taken, {_offset(taken)}, so that nothing of either hour is missing"
    )


def _local(ms: int, zone: tzinfo) -> datetime:
    """Without floats, and of any year: what a zone would put before the year 1 or behind 9999 stays in UTC."""
    instant = _EPOCH + ms * _MILLISECOND
    try:
        return instant.astimezone(zone)
    except (OverflowError, ValueError):
        return instant


def _since_1970(local: datetime) -> timedelta:
    """Of lengths only: a moment before the year 1 is no error here."""
    return (local.replace(tzinfo=None) - _EPOCH.replace(tzinfo=None)) - (local.utcoffset() or timedelta())


def _offset(local: datetime) -> str:
    """+01:00; of times long ago with seconds."""
    offset = f"{local:%z}"
    return ":".join((offset[:3], offset[3:5], *filter(None, (offset[5:7],))))
