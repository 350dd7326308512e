"""Waits are counted in rungs: whatever clocks say at each hop, no letter comes early, and none waits for ever."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.core.names import RUNGS, Names, rung_for
from dlx_router.core.outcome import Hold, Retry
from dlx_router.core.publication import record_of, waiting
from dlx_router.core.record import encode
from dlx_router.core.remembered import decode
from dlx_router.core.waiting import TOLERANCE_MS, Left, left
from tests.core.core_samples import CONTENT, KEY, NOW, death, hard_law, letter

DAY = 86_400_000
jumps = st.integers(-4000 * DAY, 4000 * DAY) | st.integers(-5000, 5000) | st.just(0)
waits = st.integers(0, 3_000_000) | st.integers(0, 21 * DAY) | st.sampled_from(RUNGS)


def walked(wait_ms: int, clocks: list[int], *, late: int = 0) -> tuple[int, int, int]:
    """A letter on its way over the rungs: (sum of its rungs, sub-rung remainder, hops); each hop by another clock."""
    time_ms, rungs, hops, due = NOW, 0, 0, NOW + wait_ms + clocks[0]
    remaining = wait_ms
    while (rung := rung_for(remaining)) is not None:
        hops += 1
        rungs, time_ms = rungs + rung, time_ms + rung + late
        seen = time_ms + clocks[hops % len(clocks)]
        remainder = left(wait_ms=remaining, due_ms=due, rung_ms=rung, now_ms=seen)
        due, remaining = min(due, seen + remainder.ms), remainder.ms
    return rungs, remaining, hops


@hard_law
@given(wait=waits, clocks=st.lists(jumps, min_size=1, max_size=12), late=st.integers(0, 10_000))
def test_over_any_clocks_the_rungs_add_up_to_the_wait(wait: int, clocks: list[int], late: int) -> None:
    rungs, rest, hops = walked(wait, clocks, late=late)
    assert wait - RUNGS[0] < rungs <= wait
    assert 0 <= rest <= wait - rungs
    assert hops <= 12 + wait // RUNGS[-1]


@hard_law
@given(rung=st.sampled_from(RUNGS[:-1]), told=jumps)
def test_a_record_of_another_version_waits_no_longer_than_its_rung_allows(rung: int, told: int) -> None:
    """Who takes the largest rung that is not too long has less left than would have been the next one."""
    remainder = left(wait_ms=None, due_ms=NOW + told, rung_ms=rung, now_ms=NOW)
    assert 0 <= remainder.ms < RUNGS[RUNGS.index(rung) + 1] - rung
    assert remainder.ms == max(told, 0) or remainder.ms < told


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"wait_ms": 2000, "due_ms": NOW + DAY, "rung_ms": 2000}, Left(0, DAY)),  # decided while the clock was ahead
        ({"wait_ms": 1900, "due_ms": NOW + 401, "rung_ms": 1500}, Left(400)),  # as it should be
        ({"wait_ms": 1900, "due_ms": NOW - DAY, "rung_ms": 1500}, Left(400)),  # ahead now, or late: never early
        ({"wait_ms": 1950, "due_ms": NOW + 20, "rung_ms": 1500}, Left(450)),  # a rung's worth is the broker's
        ({"wait_ms": 1550, "due_ms": NOW + 20, "rung_ms": 1500}, Left(20)),  # less than the lowest rung is the clock's
        ({"wait_ms": 1550, "due_ms": NOW - 20, "rung_ms": 1500}, Left(0)),
        ({"wait_ms": 2000, "due_ms": NOW + TOLERANCE_MS, "rung_ms": 2000}, Left(0)),  # a little off is not worth a word
        ({"wait_ms": 2000, "due_ms": NOW + DAY, "rung_ms": None}, Left(0, DAY)),  # moved by hand out of its rung
        ({"wait_ms": 2000, "due_ms": NOW + 3000, "rung_ms": 60_000}, Left(3000)),  # an older version's next retry
        ({"wait_ms": None, "due_ms": NOW + 5000, "rung_ms": 60_000}, Left(5000)),
        ({"wait_ms": None, "due_ms": NOW + DAY, "rung_ms": 2000}, Left(499, DAY - 499)),
        ({"wait_ms": None, "due_ms": NOW + DAY, "rung_ms": None}, Left(DAY)),
        ({"wait_ms": None, "due_ms": NOW + 9 * DAY, "rung_ms": RUNGS[-1]}, Left(9 * DAY)),
        ({"wait_ms": 50, "due_ms": NOW + 50, "rung_ms": None}, Left(50)),
    ],
)
def test_what_is_left_of_a_wait(said: dict[str, int], expected: Left) -> None:
    assert left(now_ms=NOW, **said) == expected


def test_the_record_keeps_what_is_left_and_only_while_it_waits() -> None:
    died = letter(history=(death(),))
    kept = record_of(died, Retry(1900, NOW + 1900, 1), CONTENT, policy="p", revision="r")
    assert (kept.wait_ms, decode(encode(kept, KEY, 8192), KEY)) == (1900, kept)
    assert waiting(kept, 1900, NOW + 1900) is kept
    later = waiting(kept, 400, NOW + DAY)
    assert (later.wait_ms, later.due_ms) == (400, NOW + 1900)
    assert waiting(kept, None, NOW).wait_ms is None
    hold = record_of(died, Hold(None, NOW + 1000, 1, 0), CONTENT, policy="p", revision="r")
    assert waiting(hold, 1000, NOW + 1000).wait_ms == 1000
    assert record_of(died, Retry(0, NOW, 1), CONTENT, policy="p", revision="r").wait_ms is None


@pytest.mark.parametrize(
    ("queue", "rung"),
    [
        ("dlx-router.delay.1500", 1500), ("dlx-router.delay.x", None), ("dlx-router.delay.", None),
        ("dlx-router.delay.1٣", None), ("dlx-router.delayed.5", None), ("work", None), ("other.delay.5", None),
        ("dlx-router.delay." + "9" * 200, None),
    ],
)  # fmt: skip
def test_which_queue_is_a_rung(queue: str, rung: int | None) -> None:
    assert Names("dlx-router").rung_of(queue) == rung
