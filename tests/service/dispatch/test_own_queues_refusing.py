"""How much may be taken from attached queues while own queues refuse, or sessions end again and again."""

from typing import Any, Final

from hypothesis import given
from hypothesis import strategies as st

from dlx_router.service.dispatch.own_queues_refusing import COSTLY, STEADY_S, RefusingQueues
from dlx_router.telemetry.readiness import Readiness

PREFETCH: Final = 500
RUNG: Final = "dlx-router.delay.1000"
OWN: Final = st.sampled_from(["dlx-router.parking", "dlx-router.quarantine", RUNG])
ATTACHED: Final = st.sampled_from(["a", "b"])
STEPS: Final = st.one_of(
    st.tuples(st.just("refused"), OWN, ATTACHED, st.booleans()),
    st.tuples(st.just("took"), OWN),
    st.tuples(st.just("holds"), st.frozensets(OWN)),
    st.tuples(st.just("ended"), st.sampled_from([1.0, STEADY_S]), st.integers(0, 2)),
)


class _Waits:
    held_bytes = 0


WAITS: Final = _Waits()


@given(st.lists(STEPS, max_size=30))
def test_nothing_is_taken_freely_while_a_queue_of_ours_has_refused_and_not_confirmed(
    steps: list[tuple[Any, ...]],
) -> None:
    refusals, refusing, held, costly = RefusingQueues("/", Readiness()), dict[str, set[str]](), frozenset[str](), 0
    for name, *values in steps:
        match name, values:
            case "refused", [str(own), str(attached), spent]:
                refusals.refused(own, "nacked", attached, is_rung=own == RUNG, spent=bool(spent))
                refusing.setdefault(own, set()).update([attached] if own == RUNG else "ab")
            case "took", [str(own)]:
                refusals.took(own)
                refusing.pop(own, None)
            case "holds", [frozenset(queues)]:
                refusals.holds(WAITS, queues)
                held = queues
            case "ended", [float(lasted_s), int(returned)]:
                refusals.ended(lasted_s, returned)
                refusals.begin()
                costly, held = 0 if lasted_s >= STEADY_S else costly + (returned > 0), frozenset()
        for queue in "ab":
            room, stops = refusals.room(queue, PREFETCH), {own for own, sources in refusing.items() if queue in sources}
            assert bool(refusals.why_not(queue)) == bool(stops)
            if stops:
                assert room in ({0} if stops <= held else {0, 1})
            else:
                assert room == (1 if costly >= COSTLY else PREFETCH)


def test_a_rung_that_refuses_stops_those_only_whose_letters_it_refused() -> None:
    """On three nodes a rung could not be declared for 30 s, and queues whose letters never wait stood still."""
    readiness = Readiness()
    refusals = RefusingQueues("/", readiness)
    refusals.refused(RUNG, "unroutable", "waits", is_rung=True, spent=False)
    refusals.holds(WAITS, frozenset({RUNG}))
    assert (refusals.room("waits", PREFETCH), refusals.room("other", PREFETCH)) == (0, PREFETCH)
    assert "attached queues whose letters it refused are not consumed" in str(readiness.reasons())
    refusals.refused("dlx-router.parking", "nacked", "waits", is_rung=False, spent=False)
    assert refusals.room("other", PREFETCH) == 1, "any letter may come to parking; none is held that asks it"
    refusals.holds(WAITS, frozenset({RUNG, "dlx-router.parking"}))
    assert refusals.room("other", PREFETCH) == 0
    refusals.took("dlx-router.parking")
    assert (refusals.room("waits", PREFETCH), refusals.room("other", PREFETCH)) == (0, PREFETCH)
    refusals.took(RUNG)
    assert refusals.room("waits", PREFETCH) == PREFETCH


def test_a_letter_is_taken_for_each_queue_that_refuses_and_that_none_here_asks() -> None:
    refusals = RefusingQueues("/", Readiness())
    refusals.refused(RUNG, "nacked", "waits", is_rung=True, spent=False)
    refusals.begin()
    refusals.holds(WAITS, frozenset({"dlx-router.delay.2000"}))
    assert refusals.room("waits", PREFETCH) == 1


def test_a_queue_with_nothing_left_to_prove_is_left_alone_until_another_letter_has_proved_it() -> None:
    refusals = RefusingQueues("/", Readiness())
    refusals.refused("parking", "nacked", "near", is_rung=False, spent=True)
    refusals.begin()
    assert (refusals.room("near", PREFETCH), refusals.room("other", PREFETCH)) == (0, 1)
    assert "left alone" in refusals.why_not("near")
    refusals.took("parking")
    assert refusals.room("near", PREFETCH) == PREFETCH
