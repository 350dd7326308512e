"""What can be wrong with bytes, told apart by whose fault it is."""

from collections.abc import Sequence
from typing import Any


class WireError(ValueError):
    """The peer's bytes are not AMQP 0-9-1; the connection cannot go on.

    `events` are those that were complete before the error, in the same read.
    """

    events: Sequence[Any] = ()


class FrameTooLarge(ValueError):
    """We were asked to send a content header that does not fit one frame; a header cannot be split (AMQP §4.2.6.1)."""
