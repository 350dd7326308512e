"""Names of queues as RabbitMQ's permissions take them: regular expressions, as narrow as a selector allows."""

from typing import Final

from dlx_router.config.lint.policy_conflicts import words_meet
from dlx_router.core.policy import Selector, SelectorKind
from dlx_router.core.target import short_name

_SPECIAL: Final = frozenset("\\.^$*+?{}[]|()")
_ANY: Final = ".*"


def escaped(name: str) -> str:
    """An expression that fits this name and no other."""
    return "".join(f"\\{sign}" if sign in _SPECIAL else sign for sign in name)


def matched(pattern: str) -> str:
    """An expression that fits the names that `match: PATTERN` selects, and no others."""
    words = pattern.split(".")
    words = [word for at, word in enumerate(words) if word != "#" or words[at - 1 : at] != ["#"]]
    if words == ["#"]:
        return _ANY
    out = ""
    for at, word in enumerate(words):
        if word == "#":
            out += r"(?:\..*)?" if at else r"(?:.*\.)?"
        else:
            dot = r"\." if at and (at > 1 or words[0] != "#") else ""
            out += dot + ("[^.]*" if word == "*" else escaped(word))
    return out


def names_of(selector: Selector) -> tuple[str, bool]:
    """The names that are selected, and whether the expression has to fit the whole of a name."""
    if selector.kind is SelectorKind.QUEUE:
        return escaped(selector.text), True
    return (matched(selector.text), True) if selector.kind is SelectorKind.MATCH else (selector.text, False)


def dead_letter_queues(selector: Selector, prefix: str, suffix: str) -> str:
    """A `pattern:` says nothing about the length of what it leaves open, so any name between prefix and suffix."""
    if selector.kind is SelectorKind.QUEUE:
        return escaped(short_name(f"{prefix}{selector.text}{suffix}"))
    inner = matched(selector.text) if selector.kind is SelectorKind.MATCH else _ANY
    return escaped(prefix) + inner + escaped(suffix)


def may_meet(first: Selector, second: Selector) -> bool:
    """Whether a queue may be selected by both; of a `pattern:` it is taken for granted."""
    if first.kind is SelectorKind.QUEUE:
        return second.fits(first.text)
    if second.kind is SelectorKind.QUEUE:
        return first.fits(second.text)
    if SelectorKind.PATTERN in {first.kind, second.kind}:
        return True
    return words_meet(first.text.split("."), second.text.split("."))
