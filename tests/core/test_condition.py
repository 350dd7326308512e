"""Conditions: what they see of a letter, and which of several decides."""

from typing import Any, Final

import pytest

from dlx_router.core.condition import Answer, Condition, ConditionFailed, View, any_holds, view
from tests.core.core_samples import NOW, death, letter

NOTHING_SEEN: Final = View({}, lambda _name: "", lambda _pointer: None)


def says(text: str, answer: bool | str) -> Condition:  # noqa: FBT001 - a table's cell
    """A condition that holds, does not, or fails with this text."""

    def holds(_seen: View) -> bool:
        if isinstance(answer, str):
            raise ConditionFailed(answer)
        return answer

    return Condition(text, holds)


def test_a_condition_sees_the_letter_by_these_names() -> None:
    died = letter(
        history=(death("work", "expired", routing_keys=("order.created", "cc.one")), death("other")),
        cause="loop",
        redrives=2,
        content_type="application/json",
        size=41,
        first_death_ms=NOW - 61_999,
    )
    assert view(died, 3, NOW).variables == {
        "reason": "expired",
        "cause": "loop",
        "attempts": 3,
        "redrives": 2,
        "age": 61,
        "queue": "work",
        "exchange": "shop",
        "routing_key": "order.created",
        "vhost": "/",
        "content_type": "application/json",
        "size": 41,
    }


@pytest.mark.parametrize(
    ("fields", "exchange", "key"),
    [
        ({}, "shop", "order.created"),
        ({"history": (death(exchange="", routing_keys=("k", "copy")), death())}, "", "k"),
        ({"history": (death(routing_keys=()),)}, "shop", "came.by"),
        ({"history": (death(routing_keys=("",)),)}, "shop", ""),
        ({"history": ()}, "dlx-router.inbox", "came.by"),
    ],
)
def test_exchange_and_key_are_those_of_the_newest_death_or_of_the_delivery(
    fields: dict[str, Any], exchange: str, key: str
) -> None:
    seen = view(letter(**{"routing_key": "came.by", **fields}), 1, NOW).variables
    assert (seen["exchange"], seen["routing_key"]) == (exchange, key)


@pytest.mark.parametrize(
    ("conditions", "answer"),
    [
        ([], Answer(holds=False, failed=())),
        ([says("a", answer=False)], Answer(holds=False, failed=())),
        ([says("a", answer=False), says("b", answer=True)], Answer(holds=True, failed=())),
        ([says("a", "no number"), says("b", answer=True)], Answer(holds=True, failed=("a: no number",))),
        ([says("a", answer=True), says("b", "never asked")], Answer(holds=True, failed=())),
        ([says("a", "x"), says("b", answer=False), says("c", "y")], Answer(holds=False, failed=("a: x", "c: y"))),
    ],
)
def test_the_first_that_holds_decides_and_one_that_fails_counts_as_false(
    conditions: list[Condition], answer: Answer
) -> None:
    assert any_holds(conditions, NOTHING_SEEN) == answer


def test_conditions_are_shown_what_was_seen_and_equal_when_they_are_written_alike() -> None:
    old = Condition("age > 60", lambda seen: int(seen.variables["age"]) > 60)
    at = [any_holds([old], view(letter(first_death_ms=NOW), 1, NOW + later)).holds for later in (60_000, 61_000)]
    assert at == [False, True]
    assert old == says("age > 60", answer=False) != says("age > 61", answer=False)
