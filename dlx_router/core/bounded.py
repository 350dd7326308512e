"""Bounded mappings: what is kept of what others send has a limit in bytes, not only in entries.

Names, headers and histories are chosen by whoever publishes: 4,096 entries of 100 KB are 400 MB. A lookup is one
dictionary lookup; the size is looked at only when something is put in.
"""

from collections import OrderedDict
from collections.abc import Callable
from itertools import chain
from sys import getsizeof
from typing import Final, Generic, TypeVar

MIB: Final = 1 << 20
ENTRY_BYTES: Final = 400  # of the mapping itself: hash tables, links and the sizes, measured at 330
SHARE: Final = 8  # what alone would take an eighth of the room is worked out again each time
_PLAIN: Final = frozenset({str, bytes, int, float, bool, type(None)})
_MANY: Final = (tuple, list, set, frozenset)
Key = TypeVar("Key")
Value = TypeVar("Value")


def weigh(thing: object) -> int:
    """Bytes of memory that a value of tuples, lists, mappings, text and numbers takes; what is shared counts twice."""
    total, waiting = 0, [thing]
    for item in waiting:  # which grows meanwhile
        total += getsizeof(item)
        if item.__class__ in _PLAIN:
            continue
        if isinstance(item, _MANY):
            waiting.extend(item)
        elif isinstance(item, dict):
            waiting.extend(chain.from_iterable(item.items()))
    return total


class Bounded(OrderedDict[Key, Value]):
    """Never more than `most` entries and `most_bytes` bytes; the oldest go first, and what is too large is not kept.

    Values must not change while they are in it. `weigh`: what a value takes, where `weigh` above does not see it.
    Written by `[key] = value`, `forget` and `clear` only.
    """

    def __init__(self, *, most: int, most_bytes: int, weigh: Callable[[Value], int] = weigh) -> None:
        super().__init__()
        self._most, self._most_bytes, self._weigh = most, most_bytes, weigh
        self._sizes: dict[Key, int] = {}
        self.held_bytes = 0

    def __setitem__(self, key: Key, value: Value) -> None:
        if key in self:
            del self[key]
        size = ENTRY_BYTES + weigh(key) + self._weigh(value)
        if size * SHARE > self._most_bytes:
            return
        while self and (len(self) >= self._most or self.held_bytes + size > self._most_bytes):
            self.forget(next(iter(self)))
        super().__setitem__(key, value)
        self._sizes[key] = size
        self.held_bytes += size

    def __delitem__(self, key: Key) -> None:
        super().__delitem__(key)
        self.held_bytes -= self._sizes.pop(key, 0)

    def forget(self, key: Key) -> None:
        """Nothing is kept of it; safe to repeat."""
        if key in self:
            del self[key]

    def clear(self) -> None:
        """Forget everything."""
        super().clear()
        self._sizes.clear()
        self.held_bytes = 0


class Remembered(Bounded[Key, Value], Generic[Key, Value]):
    """What `make` says of a key, worked out once: `of[key]`. For pure functions; the answer is the same either way."""

    def __init__(self, make: Callable[[Key], Value], *, most: int, most_bytes: int) -> None:
        super().__init__(most=most, most_bytes=most_bytes)
        self._make = make

    def __missing__(self, key: Key) -> Value:
        value = self[key] = self._make(key)
        return value


class Recurring(Remembered[Key, Value]):
    """The same, but only what is asked for again is kept: to weigh what never comes again is dearer than to make it."""

    def __init__(self, make: Callable[[Key], Value], *, most: int, most_bytes: int) -> None:
        super().__init__(make, most=most, most_bytes=most_bytes)
        self._once: set[int] = set()  # hashes of what was asked for

    def __missing__(self, key: Key) -> Value:
        value, mark = self._make(key), hash(key)
        if mark in self._once:
            self[key] = value
        else:
            if len(self._once) >= self._most:
                self._once.clear()
            self._once.add(mark)
        return value
