"""Fuzzing for a given time: a short one in the suite, a long one by `make fuzz`.

`DLX_ROUTER_FUZZ_SECONDS` is the time of each target (3 where it is not set), `DLX_ROUTER_FUZZ_SEED` repeats one run.
Each round draws a seed of its own and prints it; what fails is shrunk by Hypothesis before it is shown.
"""

import os
import random
import time
from collections.abc import Callable
from typing import Any, Final

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

SECONDS: Final = float(os.environ.get("DLX_ROUTER_FUZZ_SECONDS", "3"))
GIVEN: Final = os.environ.get("DLX_ROUTER_FUZZ_SEED")
LIMIT_S: Final = int(SECONDS) + 120  # of a test, which begins and shrinks beside its time: pytest.mark.timeout
_ROUND: Final = settings(max_examples=300, deadline=None, database=None, suppress_health_check=list(HealthCheck))


def fuzz(check: Callable[..., None], *strategies: st.SearchStrategy[Any], alone: bool = True) -> int:
    """Call `check` with drawn values until the time is over; → how often.

    `alone`: a call takes no time and depends on no other; else rounds are short, and what fails is shown as it is.
    """
    ends, calls = time.monotonic() + SECONDS, 0
    profile = _ROUND if alone else settings(_ROUND, max_examples=10, phases=[Phase.generate])

    def counted(values: tuple[Any, ...]) -> None:
        nonlocal calls
        if time.monotonic() < ends or not calls:
            calls += 1
            check(*values)

    for chosen in rounds(ends):
        seed(chosen)(profile(given(st.tuples(*strategies))(counted)))()
    print(f"{calls} examples")  # noqa: T201 - shown where the test fails, or by `pytest -s`
    return calls


def rounds(ends: float) -> "list[int] | Rounds":
    """A seed for each round until the time is over; the given one alone, where one is given."""
    return [int(GIVEN)] if GIVEN is not None else Rounds(ends)


class Rounds:
    """Drawn seeds, printed, until a moment of the monotonic clock; one at least."""

    def __init__(self, ends: float) -> None:
        self._ends, self._first = ends, True

    def __iter__(self) -> "Rounds":
        return self

    def __next__(self) -> int:
        if not self._first and time.monotonic() >= self._ends:
            raise StopIteration
        self._first = False
        seed = random.SystemRandom().randrange(1 << 32)
        print(f"DLX_ROUTER_FUZZ_SEED={seed}")  # noqa: T201 - as above
        return seed
