"""Attempts: a step that the target refused did not happen, and a parked letter says why and what to do."""

from typing import Any

import pytest

from dlx_router.core.attempts import outcomes, why_parked
from dlx_router.core.words import Cause


def step(kind: str, **own: Any) -> dict[str, Any]:
    plain = {"kind": kind, "cause": None, "refused": None, "redrives": 0, "tries": 0, "attempts": 1, "redrive_id": None}
    return {**plain, **own}


DEAD = step("dead_lettered", cause="attempts_spent")
HELD = step("held", cause="missing_exchange", refused="dlx")
PARKED = step("parked", cause="missing_exchange", refused="dlx")


@pytest.mark.parametrize(
    ("journey", "happened"),
    [
        ([DEAD], ["done"]),
        ([DEAD, HELD], ["refused", None]),
        ([DEAD, PARKED], ["refused", "done"]),
        ([DEAD, HELD, DEAD | {"tries": 1}, HELD | {"tries": 1}, DEAD | {"tries": 2}], ["refused", None] * 2 + ["done"]),
        ([DEAD, DEAD | {"tries": 1}, DEAD | {"tries": 2}], ["refused", "refused", "done"]),  # holds are not told
        ([DEAD, step("leased"), step("lease_ended"), HELD], ["refused", None, None, None]),
        ([DEAD, step("quarantined", cause="too_large")], ["refused", None]),
        ([step("retried"), step("released"), DEAD], ["done", "done", "done"]),
        ([step("released"), step("held", cause="outage")], ["done", None]),  # it died again, and its queue rests
        ([DEAD, step("redriven", redrives=1), HELD | {"redrives": 1}], ["done", "refused", None]),
        ([DEAD, step("redriven", redrives=1), step("dead_lettered", redrives=1)], ["done", "done", "done"]),
    ],
)
def test_each_attempt_is_paired_with_its_outcome(journey: list[dict[str, Any]], happened: list[str | None]) -> None:
    paired = outcomes(journey)
    assert [each["outcome"] for each in paired] == happened
    for at, each in enumerate(paired):
        if each["outcome"] == "refused" and journey[at + 1]["kind"] in {"held", "parked"}:
            assert (each["outcome_cause"], each["outcome_refused"]) == ("missing_exchange", "dlx")


@pytest.mark.parametrize("cause", [*Cause, "malformed: no table", "new_cause", None])
@pytest.mark.parametrize("state", ["parked", "quarantined"])
def test_a_letter_in_parking_says_why_and_what_to_do(cause: str | None, state: str) -> None:
    letter = {"state": state, "cause": cause, "failed_queue": "work", "policy": "orders"}
    told = why_parked(letter, [DEAD, step(state, cause=cause, refused="dlx")])
    assert told is not None
    assert told["why"]
    assert told["resolve"]
    assert not {"{", "}"} & {*told["why"], *told["resolve"]}


def test_a_letter_that_a_task_parked_names_it_and_one_elsewhere_says_nothing() -> None:
    letter = {"state": "parked", "cause": "attempts_spent", "failed_queue": "work", "policy": None}
    told = why_parked(letter, [step("parked", redrive_id="4711")])
    assert told is not None
    assert "4711" in told["why"]
    assert why_parked({**letter, "state": "dead"}, [DEAD]) is None
