"""Conditions: what a policy asks of a letter before it is tried again, and what a letter shows to it.

How an expression is compiled is not the core's business (config/language/conditions.py); what it may look at is. See
docs/architecture.md ("Conditions").
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from dlx_router.core.letter import Letter


class ConditionFailed(Exception):
    """The condition could not be evaluated for this letter; the text says why. It then counts as false."""


class View(NamedTuple):
    """What a condition sees: the variables by name, and the two functions that look into the message."""

    variables: Mapping[str, str | int]
    header: Callable[[str], str]
    body: Callable[[str], Any]


@dataclass(frozen=True, slots=True)
class Condition:
    """One expression as it was written; `holds(view)` raises ConditionFailed and nothing else.

    `headers` and `pointers` are all that it may ask of the message: the journal shows them, so that it can be replayed.
    """

    text: str
    holds: Callable[[View], bool] = field(compare=False, repr=False)
    headers: tuple[str, ...] = ()
    pointers: tuple[str, ...] = ()


def view(letter: Letter, attempts: int, now_ms: int) -> View:
    """The letter as conditions see it. `age` is in whole seconds since its first death."""
    newest = letter.history[0] if letter.history else None
    return View(
        {
            "reason": letter.reason,
            "cause": letter.cause or "",
            "attempts": attempts,
            "redrives": letter.redrives,
            "age": max(now_ms - letter.first_death_ms, 0) // 1000,
            "queue": letter.failed_queue,
            "exchange": letter.exchange if newest is None else newest.exchange,
            "routing_key": newest.routing_keys[0] if newest is not None and newest.routing_keys else letter.routing_key,
            "vhost": letter.vhost,
            "content_type": letter.content_type,
            "size": letter.size,
        },
        lambda name: letter.header(name) or "",
        letter.body,
    )


class Answer(NamedTuple):
    """Whether the first condition holds that does, and the texts of those that could not be evaluated."""

    holds: bool
    failed: tuple[str, ...]


def any_holds(conditions: Sequence[Condition], seen: View) -> Answer:
    """Whether one of them holds. One that fails counts as false."""
    failed: list[str] = []
    for condition in conditions:
        try:
            if condition.holds(seen):
                return Answer(holds=True, failed=tuple(failed))
        except ConditionFailed as error:
            failed.append(f"{condition.text}: {error}")
    return Answer(holds=False, failed=tuple(failed))
