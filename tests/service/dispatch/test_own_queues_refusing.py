"""How much may be taken from attached queues while own queues refuse, or sessions end again and again."""

from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st

from dlx_router.core.attending import unknown_limit
from dlx_router.service.dispatch.own_queues_refusing import COSTLY, STEADY_S, RefusingQueues
from dlx_router.telemetry.readiness import Readiness

PREFETCH: Final = 500
OWN: Final = st.sampled_from(["dlx-router.parking", "dlx-router.quarantine", "dlx-router.delay.1000"])
ATTACHED: Final = st.sampled_from(["a", "b"])
STEPS: Final = st.one_of(
    st.tuples(st.just("refused"), OWN, ATTACHED, st.booleans()),
    st.tuples(st.just("took"), OWN),
    st.tuples(st.just("holds"), st.integers(0, 3)),
    st.tuples(st.just("ended"), st.sampled_from([1.0, STEADY_S]), st.integers(0, 2)),
)


@given(st.lists(STEPS, max_size=30))
def test_nothing_is_taken_freely_while_a_queue_of_ours_has_refused_and_not_confirmed(
    steps: list[tuple[Any, ...]],
) -> None:
    refusals, refusing, held, costly = RefusingQueues("/", Readiness()), set[object](), 0, 0
    for name, *values in steps:
        match name, values:
            case "refused", [own, attached, spent]:
                refusals.refused(str(own), "nacked", str(attached), spent=bool(spent))
                refusing.add(own)
            case "took", [own]:
                refusals.took(str(own))
                refusing.discard(own)
            case "holds", [int(count)]:
                refusals.holds("lane", count)
                held = count
            case "ended", [float(lasted_s), int(returned)]:
                refusals.ended(lasted_s, returned)
                refusals.begin()
                costly, held = 0 if lasted_s >= STEADY_S else costly + (returned > 0), 0
        rooms = {refusals.room(queue, PREFETCH) for queue in "ab"}
        if refusing:
            assert rooms <= ({0} if held else {0, 1})
        else:
            assert rooms == ({1} if costly >= COSTLY else {PREFETCH})


def test_a_queue_with_nothing_left_to_prove_is_left_alone_until_another_letter_has_proved_it() -> None:
    refusals = RefusingQueues("/", Readiness())
    refusals.refused("parking", "nacked", "near", spent=True)
    refusals.begin()
    assert (refusals.room("near", PREFETCH), refusals.room("other", PREFETCH)) == (0, 1)
    assert "left alone" in refusals.why_not("near")
    refusals.took("parking")
    assert refusals.room("near", PREFETCH) == PREFETCH


def test_a_limit_that_nobody_told_is_the_brokers_own() -> None:
    assert [unknown_limit(version) for version in ((3, 10), (4, 0), (4, 3))] == [None, 20, 20]
