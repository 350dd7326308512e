"""Values of the hot path: frozen for the type checker, plain at run time.

`@dataclass(frozen=True)` sets every field through `object.__setattr__`: 4 µs for a letter of 27 fields instead of 1 µs,
several times a letter. Nobody may assign to these; mypy proves it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

__all__ = ["value"]

if TYPE_CHECKING:
    from dataclasses import dataclass as value
else:

    def value(*, frozen: bool, slots: bool) -> Callable[[type], Any]:
        """A dataclass with slots that is frozen as far as the type checker is concerned."""
        assert frozen
        return dataclass(slots=slots)
