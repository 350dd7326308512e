"""The time that was asked for: moments and days as people write them, and whether an archive has any event of it."""

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from dlx_router.config.units import duration_ms
from dlx_router.spark.archive.layout import Archive
from dlx_router.spark.options import OptionError

_DATE: Final = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d)?)?(Z|\+00:00)?")


def day(ms: int) -> str:
    """The day (UTC) of this moment."""
    return datetime.fromtimestamp(ms / 1000, UTC).date().isoformat()


def moment(option: str, written: str | None) -> int | None:
    """Ms since 1970 of a date, or of a duration before now."""
    if written is None:
        return None
    try:
        if _DATE.fullmatch(written):
            instant = datetime.fromisoformat(written)
            return int((instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp() * 1000)
        return int(datetime.now(UTC).timestamp() * 1000) - duration_ms(written)
    except ValueError:
        raise OptionError(f"{option} {written!r}: write 30d, 12h, 90m, or a date as 2026-10-05 (UTC)") from None


def times(since: str | None, until: str | None) -> tuple[int | None, int | None]:
    """Both ends, ms since 1970. OptionError where one is no moment."""
    return moment("--since", since), moment("--until", until)


def without_events(archive: Path, since_ms: int | None, until_ms: int | None) -> str | None:
    """What to say where the manifests know of no event in this time; ArchiveError where there is no archive."""
    store = Archive(archive)
    store.require_folder()
    days = sorted({part.date for part in store.parts()})
    if not days:
        return f"--archive {archive}: no event yet; `dlx-router pipeline ingest` brings them"
    if any(
        (since_ms is None or date >= day(since_ms)) and (until_ms is None or date <= day(until_ms)) for date in days
    ):
        return None
    return f"no event in this time: --archive {archive} has events of {days[0]} to {days[-1]}, see --since"
