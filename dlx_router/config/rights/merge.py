"""What a user has and what it needs, as one: rights and tags are only ever added to.

RabbitMQ's `set_permissions` and `set_user_tags` replace what was there, so what is written to them holds both.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from dlx_router.config.rights.permissions import NOTHING, Grant, Right

ADMINISTRATOR: Final = "administrator"
POLICYMAKER: Final = "policymaker"
MONITORING: Final = "monitoring"
_EVERYTHING: Final = frozenset({".*", "^.*", "^.*$", ".*$", "^", "$", "^(.*)$", "(.*)"})
_FLAGS: Final = re.compile(r"\(\?[a-zA-Z-]")  # of an expression, which would reach what follows
_ENOUGH: Final = {MONITORING: {MONITORING, ADMINISTRATOR}, POLICYMAKER: {POLICYMAKER, ADMINISTRATOR}}
ORDER: Final = (Right.CONFIGURE, Right.WRITE, Right.READ)


def both(had: str, needed: str) -> str:
    """An expression that finds each name that one of them finds; `had` as it is where that is surely enough."""
    if had in {"", NOTHING}:
        return needed
    if needed == NOTHING or had in _EVERYTHING or f"|{needed}|" in f"|{had}|":
        return had
    return f"(?:{had})|{needed}" if _FLAGS.search(had) else f"{had}|{needed}"


def rights(had: Mapping[str, str], grant: Grant) -> tuple[str, ...]:
    """Configure, write and read, with what the user has already in the vhost."""
    return tuple(both(had.get(right.value, ""), grant.regex(right)) for right in ORDER)


def tags(had: Iterable[str], needed: str) -> tuple[str, ...]:
    """All tags, the needed one last where none of the others is enough."""
    kept = tuple(dict.fromkeys(had))
    return kept if {*kept} & _ENOUGH.get(needed, {needed}) else (*kept, needed)
