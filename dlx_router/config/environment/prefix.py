"""The prefix of all that the router owns, for commands that need no other setting."""

import os
import re
from typing import Final

from dlx_router.core.names import Names

VARIABLE: Final = "DLX_ROUTER_PREFIX"
DEFAULT: Final = "dlx-router"
LONGEST: Final = 64
DEAD: Final = "DLQ"  # with a dot, what auto-created dead-letter queues begin with


class PrefixError(Exception):
    """The environment names a prefix that cannot be one; says what can."""


def checked(value: str) -> str:
    """The prefix. ValueError where it is none: names begin with it, and some brokers' tools take fewer characters."""
    fits = re.fullmatch(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*", value, re.ASCII)
    if not fits or len(value) > LONGEST or value.startswith("amq"):
        raise ValueError("not a prefix; write letters, digits, - and _, with dots between, not beginning with amq")
    if value == DEAD or value.startswith(f"{DEAD}."):
        raise ValueError(
            f"dead-letter queues are called {DEAD}.<queue>, so {value} would make them the router's own; write another"
        )
    return value


def names() -> Names:
    """The names that the environment asks for. Raises PrefixError."""
    try:
        return Names(checked(os.environ.get(VARIABLE, DEFAULT)))
    except ValueError as error:
        raise PrefixError(f"{VARIABLE}: {error}") from None
