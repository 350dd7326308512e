"""What a run draws where it has not the time for all: of the named brokers, of a test's seeds: `make test ALL=1`.

The draw is by a seed that the run prints; DLX_ROUTER_TEST_SEED=1234 has the same again.
"""

import os
import random
from collections.abc import Sequence
from typing import Final, TypeVar
from zlib import crc32

from tests.support.thoroughness import NIGHT, THOROUGH

T = TypeVar("T")
SEED: Final = int(os.environ.setdefault("DLX_ROUTER_TEST_SEED", str(random.SystemRandom().randrange(10_000))))
# What these look at is where versions of RabbitMQ differ.
EVERYWHERE: Final = (
    "tests/broker/", "tests/conformance/", "tests/service/test_history.py", "tests/service/test_header_edges.py",
    "tests/service/test_retry.py",
)  # fmt: skip


def versions(test: str, named: Sequence[str], *, slow: bool, seed: int) -> list[str]:
    """Those of `named`, oldest first, on which this test runs; `test` is its node id, the same for each of them.

    All where it looks at what versions differ in, or where it is slow the newest and one of those before; else any one.
    What is drawn depends on the seed and the test: a third of all runs on each version, so what fails on one of them
    for many tests shows in every run.
    """
    if len(named) < 2:
        return [*named]
    number = crc32(f"{seed} {test}".encode())
    if not test.startswith(EVERYWHERE):
        return [named[number % len(named)]]
    return [named[number % (len(named) - 1)], named[-1]] if slow else [*named]


def drawn(several: Sequence[T]) -> list[T]:
    """One of them, for a test that takes a minute with each: by the run's seed. All of them in a night's run."""
    return [*several] if THOROUGH >= NIGHT else [several[SEED % len(several)]]


def share(several: Sequence[T], of: int) -> list[T]:
    """One of so many parts, for a test that starts a router with each: by the run's seed. All in a night's run."""
    return [*several] if THOROUGH >= NIGHT else [*several][SEED % of :: of]
