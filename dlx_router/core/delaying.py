"""Delaying: how long a message of a delayed exchange waits, and what its header says afterwards. Pure.

As the delayed-message plugin: header `x-delay` in ms, of any number type or a number as text; negated where it was
obeyed, so that nobody delays twice. Source: rabbit_delayed_message_utils.erl.
"""

import re
from math import isfinite
from typing import Any, Final

HEADER: Final = "x-delay"
MAX_DELAY_MS: Final = 10 * 365 * 86_400_000  # as RabbitMQ's own limit for times to live
_INTEGERS: Final = frozenset("bBsuIilL")
_FRACTIONS: Final = frozenset("fdD")
_TEXT: Final = re.compile(rb"[+-]?[0-9]{1,20}")
_SIGNED_32: Final = 1 << 31


def asked_ms(tag: str, value: Any) -> int | None:  # noqa: ANN401 - a header is of any type, its tag says which
    """The wait that the header asks for, 0 … 10 years; None where it asks for none that can be: the default holds."""
    number = _number(tag, value)
    return number if number is not None and 0 <= number <= MAX_DELAY_MS else None


def wait_ms(asked: int | None, default_ms: int) -> int:
    """How long the message waits."""
    return default_ms if asked is None else asked


def obeyed(asked: int | None) -> tuple[str, int] | None:
    """The header once the wait is over, as (AMQP type, value); None: it stays as it came.

    Signed 32 bits as the plugin writes it, 64 where that is too small.
    """
    if not asked:
        return None
    return ("I" if asked <= _SIGNED_32 else "l", -asked)


def _number(tag: str, value: Any) -> int | None:  # noqa: ANN401 - as above
    if tag in _INTEGERS:
        return int(value)
    if tag in _FRACTIONS:
        return int(value) if isfinite(value) else None
    if tag == "S" and _TEXT.fullmatch(value):
        return int(value)
    return None
