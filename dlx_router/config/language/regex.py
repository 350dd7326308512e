"""Regular expressions of policies: RE2, so that no pattern and no queue name takes more than linear time.

Names arrive from the wire and need not be UTF-8 (core keeps such bytes as surrogates), so all is matched as bytes.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import re2

from dlx_router.core.policy import Selector

MAX_BYTES: Final = 1000
SET_BYTES: Final = 64 << 20  # many expressions at once need more than the 8 MiB that one may have
_REPLACEMENT: Final = re.compile(r"\\(.?)|([^\\]+)", re.DOTALL)


class RegexError(ValueError):
    """The policy's author erred: not RE2, or a replacement that names a group which is not there."""


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


def compiled(text: str) -> Any:
    """The compiled expression, or RegexError with RE2's own words."""
    if len(_bytes(text)) > MAX_BYTES:
        raise RegexError(f"longer than {MAX_BYTES} bytes")
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(_bytes(text), options)
    except re2.error as error:
        reason = error.args[0] if error.args else "unreadable"
        words = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
        raise RegexError(f"not an RE2 expression: {words}") from None


@dataclass(frozen=True, slots=True)
class Search:
    """Whether the expression is found anywhere in a name."""

    expression: Any

    def __call__(self, text: str) -> bool:
        return self.expression.search(_bytes(text)) is not None


def search_all(selectors: Sequence[Selector]) -> Callable[[str], Iterable[int]]:
    """One search for many selectors: the positions of those whose expression is found in a name."""
    options = re2.Options()
    options.log_errors = False
    options.max_mem = SET_BYTES
    together = re2.Set.SearchSet(options)
    for selector in selectors:
        together.Add(_bytes(selector.text))
    together.Compile()
    return (lambda queue: together.Match(_bytes(queue)) or ()) if selectors else (lambda _queue: ())


@dataclass(frozen=True, slots=True)
class Substitute:
    r"""The first match replaced, None where there is none. `parts` are texts and numbers of groups (`\0`: the match).

    Not every match: `.*` would match once more, empty, at the end.
    """

    expression: Any
    parts: tuple[bytes | int, ...]

    def __call__(self, text: str) -> str | None:
        data = _bytes(text)
        if (match := self.expression.search(data)) is None:
            return None
        new = b"".join(part if isinstance(part, bytes) else match.group(part) or b"" for part in self.parts)
        return (data[: match.start()] + new + data[match.end() :]).decode(errors="surrogateescape")


def substitute(match: str, replace: str) -> Substitute:
    r"""A substitution: `\1` … `\9` are groups, `\0` the whole match, `\\` a backslash. Raises RegexError."""
    expression = compiled(match)
    parts: list[bytes | int] = []
    for escape, literal in _escapes(replace):
        if escape is None:
            parts.append(_bytes(literal))
        elif escape == "\\":
            parts.append(b"\\")
        elif escape and escape in "0123456789":
            parts.append(_group(int(escape), expression.groups))
        else:
            raise RegexError(f"'\\{escape}' in the replacement; write \\1 … \\9, \\0 for the whole match or \\\\")
    return Substitute(expression, tuple(parts))


def _escapes(replace: str) -> list[tuple[str | None, str]]:
    return [(match[1], match[2] or "") for match in _REPLACEMENT.finditer(replace)]


def _group(number: int, groups: int) -> int:
    if number > groups:
        raise RegexError(f"the replacement names group \\{number}, but the expression has {groups}")
    return number
