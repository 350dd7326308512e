r"""Our selectors as regular expressions of RabbitMQ (Erlang's `re`, PCRE, on bytes, unanchored).

An expression names exactly the queues that the selector names, those too that do not exist yet. What both PCRE and
Python's `re` surely read alike is answered here by Python's, on bytes too: a character that is not ASCII is several. Of
all else (`[[:alpha:]]`, `\Q…\E`, `\h`, `(?i)` in the middle) nothing is said: it may mean something else there.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from dlx_router.core.bounded import MIB, Remembered
from dlx_router.core.policy import Selector, SelectorKind

EVERY = ".*"
_LEADING: Final = re.compile(r"\(\?([ims]+)\)")
_WORD: Final = re.compile(r"[A-Za-z0-9_-]+")

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
            leading = _LEADING.match(selector.text)  # flags hold for it alone, wherever it comes to stand
            return f"(?{leading[1]}:{selector.text[leading.end() :]})" if leading else selector.text
    raise AssertionError(selector)


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


def may_meet(selector: Selector, expression: str) -> bool:
    """Whether some queue that the selector names is surely one that the RabbitMQ policy names."""
    exact = name_in(expression)
    if exact is not None:
        return selector.fits(exact)
    if is_every(of_selector(selector)) or is_every(expression):
        return True
    return any(fits(expression, name) for name in _samples(selector, expression) if selector.fits(name))


def _samples(selector: Selector, expression: str) -> Iterator[str]:
    """Names that the selector may name: in place of * and # stand words that the expression asks for."""
    if selector.kind is SelectorKind.QUEUE:
        yield selector.text
    if selector.kind is not SelectorKind.MATCH:
        return
    words = selector.text.split(".")
    for filler in ("x", *dict.fromkeys(_WORD.findall(expression))):
        for kept in ({"*"}, {"*", "#"}):
            yield ".".join(filler if word in kept else word for word in words if word in kept or word != "#")


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
