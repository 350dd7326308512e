r"""Whether RabbitMQ finds an expression in a name, or that it cannot be known here.

The broker asks Erlang's `re` (PCRE, on bytes), and here is Python's. What both surely read alike is answered by
Python's, on bytes too: a character that is not ASCII is several. Of all else (`[[:alpha:]]`, `\Q…\E`, `\h`, `(?i)` in
the middle) nothing is said, also where Python takes it: it may mean something else there.
"""

import re
from typing import Final

from dlx_router.core.bounded import MIB, Remembered

_ESCAPE: Final = rb"\\(?:[^A-Za-z0-9]|[dDwWsSbnrtf]|x[0-9A-Fa-f]{2})"
# In a class no `[`, which may begin a POSIX class, and nothing that Python may come to read as an operation on sets.
_CLASS: Final = rb"\[\^?\]?+(?:(?!--|&&|~~|\|\|)[^\]\[\\]|" + _ESCAPE + rb")*\]"
_GROUP: Final = rb"\((?:\?(?::|=|!|<=|<!|>|P<\w+>|[ims]+:))?(?![?*])"
_REPEAT: Final = rb"\{[0-9]+(?:,[0-9]*)?\}"
_TOKEN: Final = rb"|".join((rb"[^\\\[({]", _ESCAPE, rb"\\A", _CLASS, _GROUP, _REPEAT))
_ALIKE: Final = re.compile(rb"(?:\(\?[ims]+\))?(?:" + _TOKEN + rb")*+", re.DOTALL)
# What counts as a letter or as white space beyond ASCII depends on tables that Erlang was built with.
_BY_TABLE: Final = re.compile(rb"\\[wWsSb]|\(\?[ms]*i")


def fits(pattern: str, name: str) -> bool | None:
    """Whether the expression, unanchored, is found in the name; None where only the broker knows."""
    compiled, data = _COMPILED[pattern], _bytes(name)
    if compiled is None or (not data.isascii() and _BY_TABLE.search(compiled.pattern)):
        return None
    return compiled.search(data) is not None


def is_readable(pattern: str) -> bool:
    """Whether it is known here which names of ASCII the expression is found in."""
    return _COMPILED[pattern] is not None


def _compiled(pattern: str) -> re.Pattern[bytes] | None:
    data = _bytes(pattern)
    if not _ALIKE.fullmatch(data):
        return None
    try:
        return re.compile(data)
    except (re.error, OverflowError, RecursionError):
        return None


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


_COMPILED: Final = Remembered(_compiled, most=4096, most_bytes=4 * MIB)
