"""JSON that somebody else nested, shown to people: whatever it is, that takes little memory and is no error.

In lines each level indents all that is in it once more: 64 KiB of brackets and numbers are 55 MB at a depth of 900,
hundreds where Python goes deeper, and a little beyond that json ends in a RecursionError.
"""

import json
from collections.abc import Iterable
from typing import Any, Final

MAX_DEPTH: Final = 64  # of lists and objects in each other; what people write has some ten
_AROUND: Final = 8  # levels that an answer of the API has around a letter's body
_DEEP: Final = "nested too deeply to be shown"
TOO_DEEP: Final = f'"{_DEEP}"'


def is_deep(document: Any, most: int = MAX_DEPTH) -> bool:  # noqa: ANN401 - JSON
    """Whether it has more than `most` levels. Level by level: a document of any depth ends no stack here."""
    level = _containers([document])
    for _ in range(most):
        level = _containers(member for value in level for member in _members(value))
    return bool(level)


def shallow(document: Any, most: int = MAX_DEPTH + _AROUND) -> Any:  # noqa: ANN401 - JSON
    """The document with a text in the place of what lies below `most` levels."""
    if not isinstance(document, dict | list):
        return document
    if not most:
        return _DEEP
    if isinstance(document, dict):
        return {name: shallow(member, most - 1) for name, member in document.items()}
    return [shallow(member, most - 1) for member in document]


def in_lines(document: Any, *, ensure_ascii: bool = False) -> str:  # noqa: ANN401 - JSON
    """The document as JSON in lines, and in one where it is deep; what JSON lacks as text."""
    is_wide = is_deep(document, MAX_DEPTH + _AROUND)
    return _encoded(document, None if is_wide else 2, ensure_ascii=ensure_ascii)


def in_a_line(document: Any, *, ensure_ascii: bool = False) -> str:  # noqa: ANN401 - JSON
    """The document as JSON in one line."""
    return _encoded(document, None, ensure_ascii=ensure_ascii)


def _encoded(document: Any, indent: int | None, *, ensure_ascii: bool) -> str:  # noqa: ANN401 - JSON
    try:
        return json.dumps(document, indent=indent, ensure_ascii=ensure_ascii, default=str)
    except RecursionError:  # it could still be read, by whoever had called less
        return TOO_DEEP


def _containers(values: Iterable[Any]) -> list[Any]:
    return [value for value in values if isinstance(value, list | dict)]


def _members(value: Any) -> Iterable[Any]:  # noqa: ANN401 - JSON
    return value.values() if isinstance(value, dict) else value
