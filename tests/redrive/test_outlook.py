"""How many letters a task means: counted as far as it looked, estimated beyond, never less than it has sent."""

from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.redrive.task import Canary, Counts, Outlook, Spec, State, Task, outlook
from dlx_router.service.redrive.sender import Counters
from tests.core.core_samples import letter

SPEC: Final = Spec("/", "DLQ.a")
TASK: Final = Task("t", SPEC, total=1000)


@pytest.mark.parametrize(
    ("changed", "spec", "expected"),
    [
        ({}, {}, (1000, False)),
        ({}, {"limit": 10}, (10, False)),
        ({}, {"ids": ("a", "b")}, (2, False)),
        ({"counts": Counts(seen=100, sent=10, left=50, meant=50, expected=1000)}, {}, (500, False)),
        ({"counts": Counts(seen=100, sent=10, left=50, meant=50, expected=1000)}, {"limit": 100}, (100, False)),
        ({"counts": Counts(seen=100, sent=10, left=50, meant=50, expected=1000)}, {"limit": 40}, (40, True)),
        ({"counts": Counts(seen=1000, sent=10, left=600, not_letters=100, meant=300, expected=1000)}, {}, (300, True)),
        ({"counts": Counts(seen=1000, sent=200, left=600, meant=400, expected=1000)}, {}, (400, True)),
        ({"counts": Counts(sent=300), "state": State.DONE}, {}, (300, True)),
        ({"counts": Counts(sent=7)}, {}, (1000, False)),
        ({"counts": Counts(seen=10, sent=5, meant=15, expected=3)}, {}, (15, True)),
    ],
)
def test_what_is_meant(changed: dict[str, Any], spec: dict[str, Any], expected: tuple[int, bool]) -> None:
    assert outlook(replace(TASK, spec=replace(SPEC, **spec), **changed)) == Outlook(*expected)


numbers: Final = st.integers(0, 10_000)
counts: Final = st.builds(
    lambda meant, stays, sent, unseen: Counts(
        seen=meant + sum(stays), sent=min(sent, meant), left=stays[0], unreadable=stays[1], not_letters=stays[2],
        meant=meant, expected=meant + sum(stays) + unseen,
    ),
    numbers, st.tuples(numbers, numbers, numbers), numbers, numbers,
)  # fmt: skip


@given(counts, st.sampled_from(State), st.integers(0, 300), numbers)
def test_never_less_than_was_sent_and_never_more_than_there_is(
    drawn: Counts, state: State, limit: int, total: int
) -> None:
    drawn = replace(drawn, sent=min(drawn.sent, limit) if limit else drawn.sent)
    forecast = outlook(Task("t", replace(SPEC, limit=limit), state=state, counts=drawn, total=total))
    assert drawn.sent <= forecast.letters <= max(drawn.expected, total)
    assert not limit or forecast.letters <= max(limit, drawn.sent)
    if forecast.is_exact and state is not State.DONE:
        assert forecast.letters == min(drawn.meant, limit or drawn.meant)


@given(st.lists(st.sampled_from(["meant", "sent", "left", "unreadable", "not_letters"]), max_size=60))
def test_what_is_counted_fits_together(steps: list[str]) -> None:
    tally, waiting = Counters(Counts()), 0
    tally.begin(len(steps), anew=False)
    for step in steps:
        if step == "sent" and waiting:
            tally.count("sent")
            waiting -= 1
        elif step != "sent":
            tally.count("seen")
            tally.count(step)
            waiting += step == "meant"
    totals = tally.counts
    assert (totals.meant, totals.seen) == (totals.sent + waiting, totals.meant + totals.stays)
    if waiting:
        tally.stays_though_meant("their queue is gone")
        assert tally.counts.meant + tally.counts.stays == tally.counts.seen
    tally.begin(3, anew=False)
    assert tally.counts == Counts(sent=totals.sent, meant=totals.sent, expected=3)


def test_a_dry_run_has_no_canary() -> None:
    spec = replace(SPEC, dry_run=True, canary=Canary(2))
    assert not Task("t", spec).has_canary
    assert Task("t", spec).canary_left == 0
    assert Task("t", replace(spec, dry_run=False)).canary_left == 2


def test_a_dry_run_counts_by_group() -> None:
    tally = Counters(Counts())
    for _ in range(3):
        tally.count("seen")
        tally.would_send(letter(), "g1-1")
    assert ([*tally.groups.values()], tally.counts.meant, tally.counts.sent) == ([3], 3, 3)
