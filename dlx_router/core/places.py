"""Places in a JSON body, by RFC 6901 pointers: for conditions, and for what the journal shows.

Nothing here raises: what cannot be read is UNREADABLE, what is not there NOTHING.
"""

import json
import re
from collections.abc import Callable
from typing import Any, Final

PARSED_BYTES: Final = 1 << 20
UNREADABLE: Final = object()
NOTHING: Final = object()
_INDEX: Final = re.compile("0|[1-9][0-9]{0,8}")  # as RFC 6901 spells it; no list has more items


def parsed(body: bytes, *, unique: bool = False) -> Any:  # noqa: ANN401 - JSON is anything
    """The document, or UNREADABLE. Deep nesting and numbers that JSON lacks are unreadable, not errors.

    `unique` refuses objects that name a member twice: what is hidden in the second would still stand in the first.
    """
    if len(body) > PARSED_BYTES:
        return UNREADABLE
    try:
        document = json.loads(body, parse_constant=_refused, object_pairs_hook=_once if unique else None)
        json.dumps(document, allow_nan=False)  # a number beyond all floats would come back as Infinity
    except (ValueError, RecursionError):
        return UNREADABLE
    return document


def _refused(word: str) -> None:
    raise ValueError(f"{word} is no JSON")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(members := dict(pairs)) < len(pairs):
        raise ValueError("a member comes twice")
    return members


def steps(pointer: str) -> list[str]:
    """RFC 6901: "/a~1b/0" → ["a/b", "0"]."""
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


def inside(value: Any, step: str) -> Any:  # noqa: ANN401 - JSON
    """The member or item of that name, or NOTHING."""
    if isinstance(value, dict):
        return value.get(step, NOTHING)
    if isinstance(value, list) and _INDEX.fullmatch(step) and int(step) < len(value):
        return value[int(step)]
    return NOTHING


def place(document: Any, pointer: str) -> Any:  # noqa: ANN401 - JSON
    """What the pointer leads to; NOTHING or UNREADABLE where it leads nowhere."""
    for step in steps(pointer):
        document = inside(document, step)
    return document


def looked_up(body: bytes) -> Callable[[str], Any]:
    """Pointer → value, None where there is none; the body is parsed at the first question."""
    known: list[Any] = []

    def look(pointer: str) -> Any:  # noqa: ANN401 - JSON
        if not known:
            known.append(parsed(body))
        value = place(known[0], pointer)
        return None if value is NOTHING or value is UNREADABLE else value

    return look
