"""How much letters depend on the journal."""

from enum import StrEnum


class Mode(StrEnum):
    """Setting JOURNAL; see docs/journal.md for what each promises."""

    BEST_EFFORT = "best-effort"
    REQUIRED = "required"
    OFF = "off"
