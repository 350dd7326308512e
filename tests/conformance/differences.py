"""What may differ between RabbitMQ's own dead lettering and ours: a closed list, each item a way to look past it.

Two outcomes are equal if they are the same once our own headers are taken off and times are read with tolerance. A
scenario that differs names each difference; looking past all that are named must make the outcomes the same, and
looking past all but one must not: what is named has to occur.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from difflib import ndiff
from typing import Final

from tests.conformance.typed import Fields, Seen, Value

TOLERANCE_S: Final = 3
OURS: Final = "dlx-router"
PARKING: Final = "parking"
BLIND: Final = "blind"  # where only a BCC leads
ROUND: Final = "round"  # where 3.10 lets nothing arrive a second time

Outcome = Mapping[str, tuple[Seen, ...]]  # queue, by its short name → what it holds, in order
Look = Callable[[Outcome], Outcome]


def messages(change: Callable[[Seen], Seen]) -> Look:
    """The outcome with each message changed."""
    return lambda outcome: {queue: tuple(map(change, held)) for queue, held in outcome.items()}


def without(queue: str) -> Look:
    """The outcome but for this queue."""
    return lambda outcome: {name: held for name, held in outcome.items() if name != queue}


def headers(change: Callable[[str, Value], Value | None]) -> Look:
    """The outcome with each header changed; None takes it off."""

    def changed(message: Seen) -> Seen:
        kept = ((name, change(name, value)) for name, value in message.headers)
        return replace(message, headers=tuple((name, value) for name, value in kept if value is not None))

    return messages(changed)


def _drop(*names: str) -> Callable[[str, Value], Value | None]:
    return lambda name, value: None if name in names else value


def _on_deaths(change: Callable[[tuple[Value, ...]], tuple[Value, ...]]) -> Callable[[str, Value], Value | None]:
    return lambda name, value: ("A", change(value[1])) if name == "x-death" and value[0] == "A" else value


def _tail_sorted(deaths: tuple[Value, ...]) -> tuple[Value, ...]:
    return (*deaths[:1], *sorted(deaths[1:], key=repr))


def _newest(deaths: tuple[Value, ...]) -> tuple[Value, ...]:
    return tuple(
        (tag, tuple((name, value) for name, value in entry if name in {"queue", "reason"})) for tag, entry in deaths[:1]
    )


def _sorted(value: Value) -> Value:
    tag, content = value
    if tag == "F":
        return tag, tuple(sorted((name, _sorted(inner)) for name, inner in content))
    return (tag, tuple(map(_sorted, content))) if tag == "A" else value


def _in_order_of_names(message: Seen) -> Seen:
    return replace(message, headers=tuple(sorted((name, _sorted(value)) for name, value in message.headers)))


def _history_looked_past(outcome: Outcome) -> Outcome:
    firsts = _drop("x-first-death-queue", "x-first-death-reason", "x-first-death-exchange")
    return headers(firsts)(headers(_on_deaths(_newest))(outcome))


# name → (how to look past it, why it is so)
ALLOWED: Final[Mapping[str, tuple[Look, str]]] = {
    "parked instead of dropped": (
        without(PARKING),
        (
            "what RabbitMQ drops or keeps for ever (no route, no exchange, an expiry cycle) lies in "
            "`dlx-router.parking`, "
            "with its cause"
        ),
    ),
    "tail order": (
        headers(_on_deaths(_tail_sorted)),
        (
            "RabbitMQ 3.10 misorders the entries of x-death behind the first as soon as there are "
            "three; ours are newest "
            "first"
        ),
    ),
    "history continued": (
        _history_looked_past,
        "RabbitMQ 4 starts x-death anew when a republished message dies; ours goes on counting",
    ),
    "CC removed": (
        headers(_drop("CC")),
        (
            "RabbitMQ 4 leaves CC on a letter whose routing key the policy replaced, as 3.10 did not; ours would "
            "route again, so it is in the record instead"
        ),
    ),
    "BCC keys": (without(BLIND), "the broker hides BCC from every client, so nobody but itself can route by it"),
    "false cycle": (
        without(ROUND),
        (
            "RabbitMQ 3.10, misled by that order, takes a lap with a rejection in it for a cycle and drops the "
            "letter; ours arrives"
        ),
    ),
    "delivery count": (
        headers(_drop("x-delivery-count", "x-acquired-count")),
        "RabbitMQ 4 takes the counter of failed deliveries along into the next quorum queue; ours are first deliveries",
    ),
    "field order": (messages(_in_order_of_names), "the order of fields in a table, which AMQP gives no meaning"),
}


def _ours_off(message: Seen) -> Seen:
    return replace(
        message,
        redelivered=False,
        headers=tuple(header for header in message.headers if not header[0].startswith(OURS)),
    )


def _near(span: tuple[float, float]) -> Callable[[str, Value], Value | None]:
    first, last = span[0] - TOLERANCE_S, span[1] + TOLERANCE_S

    def entry(fields: Fields) -> Fields:
        return tuple(
            (name, ("T", "now") if name == "time" and value[0] == "T" and first <= value[1] <= last else value)
            for name, value in fields
        )

    return _on_deaths(lambda deaths: tuple((tag, entry(fields)) for tag, fields in deaths if tag == "F"))


def comparable(outcome: Outcome, span: tuple[float, float]) -> Outcome:
    """The outcome without our headers; a time of a death within the run (`span`, epoch seconds) reads "now"."""
    return headers(_near(span))(messages(_ours_off)(outcome))


def past(outcome: Outcome, names: Collection[str]) -> Outcome:
    """The outcome, looked at past these differences."""
    for name in sorted(names):
        outcome = ALLOWED[name][0](outcome)
    return outcome


def _lines(outcome: Outcome) -> list[str]:
    return [line for queue, held in outcome.items() for message in held for line in _message_lines(queue, message)]


def _message_lines(queue: str, message: Seen) -> list[str]:
    where = f"{queue}: {message.body[:60]!r} from {message.exchange!r} by {message.routing_key!r}"
    again = f" redelivered={message.redelivered} length={len(message.body)}"
    return [where + again, *(f"    {name} = {value}" for name, value in (*message.properties, *message.headers))]


def judge(native: Outcome, routed: Outcome, declared: Collection[str], possible: Collection[str] = ()) -> None:
    """Equal but for what is declared, and all that is declared is there, but for what is only possible.

    AssertionError says what is not so.
    """
    expected, actual = _lines(past(native, declared)), _lines(past(routed, declared))
    assert actual == expected, "\n".join(["differs by more than is declared", *ndiff(expected, actual)])
    for difference in set(declared) - set(possible):
        others = set(declared) - {difference}
        assert past(routed, others) != past(native, others), f"declared, but not seen: {difference}"
