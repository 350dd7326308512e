"""Shared lines of format 2: what the rows of many letters have in common, read once. No Spark runs here."""

import re
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from dlx_router.core.bounded import MIB, Remembered
from dlx_router.journal import reading
from dlx_router.spark import schemas
from dlx_router.spark.archive import lines

Numbers = np.ndarray[Any, np.dtype[Any]]  # whole ones, of the size that NumPy found fit

_DEATHS: Final = 1000  # with more the seconds of a row may be too large in sum
_SURROGATE: Final = re.compile(lines.SURROGATE)


class _Known(NamedTuple):
    """A shared line: its values, `deaths` of which rows say the time (−1: it is not plain), whether it has `props`."""

    values: lines.Values
    deaths: int = -1
    has_props: bool = False


def _known(line: bytes) -> _Known | None:
    """None: it is none."""
    shared = reading.shared_of(line)
    if shared is None:
        return None
    deaths = [{**death, "time_ms": 0} for death in shared.deaths]
    values, is_odd = lines.read({**shared.members, "deaths": deaths})
    lacks = any(name not in values for name in ("kind", "router_id", "vhost"))
    if is_odd or lacks or values.get("v") != schemas.VERSION or not shared.is_plain or len(deaths) > _DEATHS:
        return _Known({})
    if _SURROGATE.search(line):
        return _Known({})
    return _Known(values, len(deaths), bool(shared.members.get("props")))


_KNOWN: Final = Remembered[bytes, _Known | None](_known, most=2048, most_bytes=16 * MIB)


class SharedLines:
    """The different shared lines of a batch."""

    def __init__(self) -> None:
        self.known: list[_Known] = []

    def numbers(self, every: Iterable[bytes]) -> Numbers:
        """Of each line its number in `known`; −1: it is no shared line."""
        numbers: dict[bytes, int] = {}
        per_line = []
        for line in every:
            number = numbers.get(line)
            if number is None:
                shared = _KNOWN[line]
                number = numbers[line] = -1 if shared is None else len(self.known)
                self.known += [] if shared is None else [shared]
            per_line.append(number)
        return np.array(per_line, np.int64)

    def deaths(self) -> Numbers:
        """Of each, how many it has; −1: its rows are not plain."""
        return np.array([line.deaths for line in self.known] or [-1], np.int64)

    def column(self, name: str) -> pa.Array:
        """What they say of a field."""
        return pa.array([line.values.get(name) for line in self.known], lines.EVENT.field(name).type)
