"""Retiring: what leaves an auto-created dead-letter queue by retention. Nothing is published: the journal keeps it."""

from dataclasses import replace
from typing import Any

from dlx_router.core.letter import Letter
from dlx_router.core.record import Record


def buried(letter: Letter, record: Record | None) -> Letter:
    """It died again, in its grave; where and why it failed is what its record says."""
    if record is None:
        return letter
    said: dict[str, Any] = {
        "failed_queue": record.failed_queue,
        "reason": record.reason,
        "base_attempts": record.attempts,
    }
    return replace(letter, **said)
