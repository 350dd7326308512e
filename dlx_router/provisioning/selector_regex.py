r"""Our selectors as regular expressions of RabbitMQ (Erlang's `re`, PCRE, on bytes, unanchored).

An expression names exactly the queues that the selector names, those too that do not exist yet. What both PCRE and
Python's `re` surely read alike is answered here by Python's, on bytes too: a character that is not ASCII is several. Of
all else (`[[:alpha:]]`, `\Q…\E`, `\h`, `(?i)` in the middle) nothing is said: it may mean something else there.
"""

import re
import sys
from collections.abc import Iterable, Sequence
from typing import Final

from dlx_router.core.bounded import MIB, Remembered
from dlx_router.core.policy import Selector, SelectorKind

EVERY = ".*"
_SURROGATES: Final = range(0xD800, 0xE000)  # no characters, and no bytes stand for them
_CLASS: Final = r"\[\^?\]?(?:\[:\^?[a-z]+:\]|\\.|[^\]\\])*\]"
_WHOLE: Final = rf"\\Q(?P<text>.*?)(?:\\E|\Z)|\\x\{{(?P<hex>[0-9A-Fa-f]+)\}}|\\.|{_CLASS}"
_PART: Final = re.compile(rf"{_WHOLE}|(?P<named>\(\?P?<[A-Za-z_]\w*>)|(?P<flags>\(\?[A-Za-z-]+\))", re.DOTALL)
_LEADING: Final = re.compile(r"\(\?([A-Za-z-]+)\)")

_ESCAPE: Final = rb"\\(?:[^A-Za-z0-9]|[dDwWsSbnrtf]|x[0-9A-Fa-f]{2})"
# In a class no `[`, which may begin a POSIX class, and nothing that Python may come to read as an operation on sets.
_SAFE_CLASS: Final = rb"\[\^?\]?+(?:(?!--|&&|~~|\|\|)[^\]\[\\]|" + _ESCAPE + rb")*\]"
_GROUP: Final = rb"\((?:\?(?::|=|!|<=|<!|>|P<\w+>|[ims]+:))?(?![?*])"
_REPEAT: Final = rb"\{[0-9]+(?:,[0-9]*)?\}"
_TOKEN: Final = rb"|".join((rb"[^\\\[({]", _ESCAPE, rb"\\A", _SAFE_CLASS, _GROUP, _REPEAT))
_ALIKE: Final = re.compile(rb"(?:\(\?[ims]+\))?(?:" + _TOKEN + rb")*+", re.DOTALL)
# What counts as a letter or as white space beyond ASCII depends on tables that Erlang was built with.
_BY_TABLE: Final = re.compile(rb"\\[wWsSb]|\(\?[ms]*i")


def of_selector(selector: Selector) -> str:
    """The expression of a selector, anchored where the selector is."""
    match selector.kind:
        case SelectorKind.QUEUE:
            return exactly(selector.text)
        case SelectorKind.MATCH:
            return of_words(selector.text.split("."))
        case SelectorKind.PATTERN:
            return closed(selector.text)
    raise AssertionError(selector)


def closed(expression: str) -> str:
    r"""The same, so that it may stand beside others in one expression: nothing in it reaches beyond its end.

    Flags hold for it alone; its groups have no names, which PCRE takes once only; `\Q` has an end; and characters are
    written as they are, because PCRE takes `\x{20AC}` of an expression on bytes for an error.
    """
    out = _PART.sub(_plain, expression)
    if leading := _LEADING.match(out):
        out = f"(?{leading[1]}:{out[leading.end() :]})"
    return f"(?:{out})" if any(part["flags"] for part in _PART.finditer(out)) else out


def _plain(part: re.Match[str]) -> str:
    if part["text"] is not None:
        return re.escape(part["text"])
    if part["hex"] is not None and (code := int(part["hex"], 16)) <= sys.maxunicode and code not in _SURROGATES:
        return f"(?:{re.escape(chr(code))})"
    return "(" if part["named"] else part[0]


def of_words(words: list[str]) -> str:
    r"""`orders.#` → `^orders(\..*)?$`; `*` is one word, which may be empty, as in AMQP."""
    if set(words) == {"#"}:
        return EVERY
    kept = [word for at, word in enumerate(words) if word != "#" or words[at - 1 : at] != ["#"]]
    leading = kept[0] == "#"
    first, rest = (r"(.*\.)?", kept[1:]) if leading else ("", kept)
    out = first
    for at, word in enumerate(rest):
        dot = "" if at == 0 else r"\."
        out += r"(\..*)?" if word == "#" else dot + ("[^.]*" if word == "*" else re.escape(word))
    return f"^{out}$"


def is_joinable(expression: str) -> bool:
    """Whether `of_many` takes the expression: all of it begins at the first byte of a name, and it is read here."""
    return expression.startswith("^") and "|" not in expression and _ALIKE.fullmatch(_bytes(expression)) is not None


def of_many(expressions: Sequence[str]) -> str:
    """An expression that fits where any of these does, tried at the first byte of a name only.

    Tried at each byte, a thousand queues and policies take the broker minutes.
    """
    ends = "|".join(expression[1:] for expression in expressions)
    return f"^{ends if len(expressions) == 1 else f'(?:{ends})'}"


def both(expressions: Iterable[str]) -> str:
    """An expression that fits where all of them do."""
    needed = [expression for expression in dict.fromkeys(expressions) if not is_every(expression)]
    if not needed:
        return EVERY
    if len(needed) == 1:
        return needed[0]
    *ahead, last = sorted(needed, key=lambda expression: expression.startswith("^"))
    looks = "".join(f"(?={_from_start(expression)})" for expression in ahead)
    return f"^{looks}{_from_start(last)}"


def except_for(expression: str, others: Iterable[str]) -> str:
    """An expression that fits where `expression` does and none of the others."""
    looks = "".join(f"(?!{_from_start(other)})" for other in dict.fromkeys(others))
    return f"^{looks}{_from_start(expression)}" if looks else expression


def exactly(name: str) -> str:
    """An expression that fits this name only."""
    return f"^{re.escape(name)}$"


def name_in(expression: str) -> str | None:
    """The one name that the expression fits, as `exactly` writes it; None for any other expression."""
    name = re.sub(r"\\(.)", r"\1", expression[1:-1], flags=re.DOTALL)
    return name if expression == exactly(name) else None


def is_every(expression: str) -> bool:
    """Whether it surely fits every name."""
    return expression in {EVERY, "", "^", "^.*", "^.*$", ".*$", "^.+", ".+", "^(.*)$", "(.*)"}


def _from_start(expression: str) -> str:
    """The same, to be tried at the first byte of a name."""
    if is_every(expression):
        return ""
    if expression.startswith("^") and "|" not in expression:
        return expression[1:]
    return f".*(?:{expression})"  # a ^ in it fits at the first byte only, wherever the search begins


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
