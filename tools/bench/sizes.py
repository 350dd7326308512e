"""Backlogs of every depth and bodies of every size: `make bench ARGS=--shapes`.

One run each, router and AMQP shovel, quorum queues on the newest broker that is measured: these say how the numbers of
the cells change with depth and size, and that nothing breaks at the ends. They are no part of `summary`.
"""

from collections.abc import Iterator
from typing import Any, Final

from tools.bench.contestants import ROUTER, SHOVEL
from tools.bench.measurement import Course
from tools.bench.report import SMALL

KIND: Final = "quorum"
CONTESTANTS: Final = (ROUTER, SHOVEL)
BACKLOGS: Final = (1_000, 10_000, 100_000, 1_000_000)
_MIB: Final = 1024 * 1024
_BODIES: Final = {0: 100_000, 64 * 1024: 5_000, _MIB: 400, 4 * _MIB: 100, 16 * _MIB: 24}  # 16 MiB: all that 4.x takes
_FEWEST: Final = 8


def courses(most: int, scale: float) -> Iterator[Course]:
    """Backlogs up to `most` letters, then bodies; `scale` below 1 takes fewer of these."""
    for count in BACKLOGS:
        if count <= most:
            yield Course(KIND, SMALL, count)
    for size, count in _BODIES.items():
        yield Course(KIND, size, max(_FEWEST, int(count * min(1, scale))))


def row(version: str, course: Course, results: dict[str, Any]) -> dict[str, Any]:
    """What the file holds of a shape."""
    return {
        "version": version, "type": course.kind, "bytes": course.size, "messages": course.count, "results": results,
    }  # fmt: skip
