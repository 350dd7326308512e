"""Moments and days as people write them."""

import re
from datetime import UTC, datetime
from typing import Final

from dlx_router.config.units import duration_ms
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
            told = datetime.fromisoformat(written)
            return int((told if told.tzinfo else told.replace(tzinfo=UTC)).timestamp() * 1000)
        return int(datetime.now(UTC).timestamp() * 1000) - duration_ms(written)
    except ValueError:
        raise OptionError(f"{option} {written!r}: write 30d, 12h, 90m, or a date as 2026-10-05 (UTC)") from None
