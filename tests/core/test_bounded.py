"""Bounded mappings: never over the bound, and what was put in comes out, unless it went because of the bound."""

import tracemalloc
from sys import getsizeof
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.core.bounded import ENTRY_BYTES, SHARE, Bounded, Recurring, weigh

MOST, MOST_BYTES = 6, 20_000
KEYS = st.integers(0, 11)
VALUES = st.recursive(
    st.binary(max_size=4000) | st.text(max_size=900), lambda children: st.lists(children, max_size=4).map(tuple)
)


def _size(key: object, value: object) -> int:
    return ENTRY_BYTES + weigh(key) + weigh(value)


@given(st.lists(st.tuples(st.sampled_from(["put", "forget", "del", "clear"]), KEYS, VALUES), max_size=60))
def test_a_bounded_mapping_is_never_over_its_bound_and_keeps_the_newest(steps: list[tuple[str, int, Any]]) -> None:
    kept: Bounded[int, Any] = Bounded(most=MOST, most_bytes=MOST_BYTES)
    model: dict[int, Any] = {}  # in the order of what was put last
    for what, key, value in steps:
        if what == "clear":
            kept.clear()
            model.clear()
        elif what == "put":
            kept[key] = value
            model.pop(key, None)
            if _size(key, value) * SHARE <= MOST_BYTES:
                while model and (
                    len(model) >= MOST or sum(_size(*item) for item in model.items()) + _size(key, value) > MOST_BYTES
                ):
                    del model[next(iter(model))]
                model[key] = value
        elif what == "forget" or key not in kept:
            kept.forget(key)
            model.pop(key, None)
        else:
            del kept[key], model[key]
        assert dict(kept) == model
        assert len(kept) <= MOST
        assert kept.held_bytes == sum(_size(*item) for item in model.items()) <= MOST_BYTES


TEXT = "x" * 1000


@pytest.mark.parametrize(
    "thing",
    [
        TEXT, TEXT.encode(), (TEXT,), [TEXT], {TEXT}, frozenset({TEXT}), {"key": TEXT}, {TEXT: 1}, {"deep": [(TEXT,)]},
        [{"deep": {"deeper": TEXT}}],
    ],
)  # fmt: skip
def test_what_lies_inside_is_weighed_too(thing: object) -> None:
    assert getsizeof(thing) <= weigh(thing)
    assert len(TEXT) <= weigh(thing) < 3 * len(TEXT)


def test_the_bytes_that_are_counted_are_those_that_are_held() -> None:
    """At least: what values share is counted each time."""
    for make in (lambda n: f"{n:0200}", lambda n: (str(n) * 40, (str(n), str(n).encode() * 9, n << 70))):
        tracemalloc.start()
        kept: Bounded[Any, Any] = Bounded(most=100_000, most_bytes=2_000_000)
        for n in range(20_000):
            kept[str(n), n] = make(n)
        held, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert kept.held_bytes <= 2_000_000
        assert held <= 2_000_000
        assert held >= 1_000_000  # the estimate is no excuse to keep nothing


def test_what_is_asked_for_once_is_not_kept() -> None:
    made: list[str] = []

    def make(key: str) -> str:
        made.append(key)
        return key.upper()

    of = Recurring(make, most=3, most_bytes=100_000)
    assert [of[name] for name in ("a", "b", "a", "a", "b", "c")] == ["A", "B", "A", "A", "B", "C"]
    assert (made, sorted(of)) == (["a", "b", "a", "b", "c"], ["a", "b"])
    for number in range(1000):
        of[str(number)]
    assert len(of._once) <= 3, "what is known to have been asked for is bounded too"
