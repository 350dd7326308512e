"""Which of many selectors name a queue, without asking each: exact names by a table, word patterns by a tree.

A queue is resolved when its first letter comes; with a thousand policies asking each would stop all others for 1 ms.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

_ANY: Final = "#"
_ONE: Final = "*"
Find = Callable[[str], Iterable[int]]


class _Node:
    """A place in the tree of words; `ends` are the numbers of the patterns that end here."""

    __slots__ = ("after", "ends", "loops")

    def __init__(self, *, loops: bool = False) -> None:
        self.after: dict[str, _Node] = {}
        self.ends: list[int] = []
        self.loops = loops  # after a #, any word leads here again

    def next(self, word: str) -> "_Node":
        return self.after.setdefault(word, _Node(loops=word == _ANY))


class Index:
    """Selectors by number. `find` gives the numbers of the regular expressions that fit a name."""

    def __init__(self, names: Iterable[tuple[int, str]], patterns: Iterable[tuple[int, str]], find: Find) -> None:
        self._names: dict[str, list[int]] = {}
        self._root = _Node()
        self._find = find
        for number, name in names:
            self._names.setdefault(name, []).append(number)
        for number, pattern in patterns:
            node = self._root
            for word in pattern.split("."):
                node = node.next(word)
            node.ends.append(number)

    def fitting(self, queue: str) -> list[int]:
        """The numbers of all that name the queue, in their order."""
        ends = (number for node in self._reached(queue.split(".")) for number in node.ends)
        return sorted({*self._names.get(queue, ()), *ends, *self._find(queue)})

    def _reached(self, words: Iterable[str]) -> set[_Node]:
        """Every place that all words lead to; as many steps as words, so that no name is a bomb."""
        alive = set(_closed({self._root}))
        for word in words:
            alive = set(_closed({place for node in alive for place in _led(node, word)}))
        return alive


def _led(node: _Node, word: str) -> Iterator[_Node]:
    if node.loops:
        yield node
    for way in (word, _ONE):
        if (place := node.after.get(way)) is not None:
            yield place


def _closed(nodes: Iterable[_Node]) -> Iterator[_Node]:
    """The places, and those that a # leads to without any word."""
    for node in nodes:
        place: _Node | None = node
        while place is not None:
            yield place
            place = place.after.get(_ANY)
