"""Lists in the order that the address asks for: `sort=NAME`, `sort=-NAME` for the most of it first."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

Row = Mapping[str, Any]
Values = Mapping[str, Callable[[Row], Any]]
WORDS: Final = frozenset({"queue", "state", "name", "file", "key", "by", "policy"})  # which begin with the first


class Order(NamedTuple):
    """By which column, and whether the most comes first."""

    name: str
    falls: bool

    def link(self, name: str) -> str:
        """What an address says for this column: the other way round where the list is in its order already."""
        falls = not self.falls if name == self.name else name not in WORDS
        return f"-{name}" if falls else name

    def aria(self, name: str) -> str:
        """What is said of this column to those who do not see it."""
        return "none" if name != self.name else "descending" if self.falls else "ascending"


def order_of(sort: str, known: Iterable[str], usual: str) -> Order:
    """The order that is asked for; the usual one where it is none."""
    name = sort.removeprefix("-")
    chosen = sort if name in set(known) else usual
    return Order(chosen.removeprefix("-"), chosen.startswith("-"))


def arranged(rows: Iterable[Any], values: Values, order: Order) -> list[Any]:
    """In this order; what has no value comes last, either way."""
    value = values[order.name]
    known = [row for row in rows if value(row) is not None]
    blank = [row for row in rows if value(row) is None]
    return [*sorted(known, key=value, reverse=order.falls), *blank]
