"""Editing: what a person may change of a letter before it goes back. Pure.

What tells where the letter comes from is locked: its record, its deaths, and what routes it or ends it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from dlx_router.core.bounded import weigh
from dlx_router.redrive.task import Edited, TaskError

MAX_BODY_BYTES: Final = 512 << 10
MAX_HEADERS: Final = 50
MAX_NAME_BYTES: Final = 128
_LOCKED: Final = ("dlx-router", "x-death", "x-first-death-", "x-last-death-", "x-opt-")
_NAMES: Final = frozenset({"cc", "bcc", "dlx-death", "x-delivery-count", "x-acquired-count", "x-stream-offset"})
_LONG: Final = 1 << 63
Value = str | int | bool | None


@dataclass(frozen=True, slots=True, repr=False)
class Edit:
    """A new body (None: as it is), and headers to set or, with None, to take off. Appears in no repr: it is data."""

    body: bytes | None
    headers: Mapping[str, Value]

    @property
    def weight(self) -> int:
        """How many bytes of memory it takes."""
        return len(self.body or b"") + weigh(dict(self.headers))

    @property
    def summary(self) -> Edited:
        """What a task may say of it."""
        return Edited(tuple(sorted(self.headers)), None if self.body is None else len(self.body))


def is_locked(name: str) -> bool:
    """Whether a header is not a person's to change."""
    lower = name.lower()
    return lower in _NAMES or lower.startswith(_LOCKED)


def check(edit: Edit) -> Edit:
    """The same, or TaskError that names every part that cannot be."""
    wrong = [text for bad, text in _faults(edit) if bad]
    if wrong:
        raise TaskError("; ".join(wrong))
    return edit


def _faults(edit: Edit) -> Iterable[tuple[bool, str]]:
    yield edit.body is None and not edit.headers, "edit: nothing is changed; give a body or headers"
    size = 0 if edit.body is None else len(edit.body)
    yield size > MAX_BODY_BYTES, f"body: {size} bytes, at most {MAX_BODY_BYTES}"
    yield len(edit.headers) > MAX_HEADERS, f"headers: {len(edit.headers)} of them, at most {MAX_HEADERS}"
    for name, value in edit.headers.items():
        length = len(name.encode(errors="surrogateescape"))
        yield not 0 < length <= MAX_NAME_BYTES, f"header {name[:40]!r}: a name has 1 … {MAX_NAME_BYTES} bytes"
        yield is_locked(name), f"header {name!r} is locked: it tells where the letter comes from, or routes it"
        is_large = isinstance(value, int) and not -_LONG <= value < _LONG
        yield is_large, f"header {name!r}: a number of 64 bits"
