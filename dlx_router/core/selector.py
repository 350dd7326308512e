"""Selectors: which queues a policy names, and how narrowly."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class SelectorKind(StrEnum):
    """How a policy names queues; the order is the order of precedence."""

    QUEUE = "queue"
    MATCH = "match"
    PATTERN = "pattern"


@dataclass(frozen=True, slots=True)
class Selector:
    """Names queues. `search` is a compiled linear-time regular expression for PATTERN, else None."""

    kind: SelectorKind
    text: str
    search: Callable[[str], object] | None = field(default=None, compare=False, repr=False)

    def fits(self, queue: str) -> bool:
        """Whether this selector names the queue."""
        if self.kind is SelectorKind.QUEUE:
            return queue == self.text
        if self.kind is SelectorKind.MATCH:
            return words_match(self.text.split("."), queue.split("."))
        return self.search is not None and bool(self.search(queue))

    @property
    def rank(self) -> tuple[int, int, int]:
        """Sort key within one priority: smaller comes first."""
        if self.kind is SelectorKind.QUEUE:
            return (0, 0, 0)
        if self.kind is SelectorKind.PATTERN:
            return (2, 0, 0)
        words = self.text.split(".")
        literal = sum(word not in {"*", "#"} for word in words)
        return (1, -literal, words.count("#"))


def words_match(pattern: Sequence[str], words: Sequence[str]) -> bool:
    """AMQP topic matching: `*` is one word, `#` any number. O(len(pattern) × len(words)), so no input is a bomb."""
    reachable = {0}
    for word in pattern:
        if word == "#":
            reachable = set(range(min(reachable, default=len(words) + 1), len(words) + 1))
        else:
            reachable = {at + 1 for at in reachable if at < len(words) and word in {"*", words[at]}}
    return len(words) in reachable
