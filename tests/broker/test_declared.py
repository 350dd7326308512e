"""What stands under our names and is not as we declare it: harmful is what can cost a letter."""

from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.broker.declared import Found, of_bindings, of_exchange, of_queue, owned, refused
from dlx_router.broker.definitions import Binding, Exchange, Queue
from dlx_router.core.names import RUNGS, Names

NAMES: Final = Names("dlx-router")
ALL: Final = owned(NAMES, [NAMES.delay(ms) for ms in RUNGS] + [NAMES.delayed("orders")])
QUEUES: Final = [entry for entry in ALL if isinstance(entry, Queue)]
VERSIONS: Final = [(3, 10), (4, 0), (4, 3)]
HARMFUL: Final = st.sampled_from(
    [("x-message-ttl", 99), ("x-expires", 1), ("x-max-length", 1), ("x-max-length-bytes", 1), ("x-delivery-limit", 20)]
)


def found(queue: Queue, **changed: Any) -> Found:
    arguments = {**queue.arguments, **{f"x-{key.replace('_', '-')}": value for key, value in changed.items()}}
    arguments = {key: value for key, value in arguments.items() if value is not None}
    return Found(str(arguments.get("x-queue-type", "classic")), arguments)


def harm(queue: Queue, there: Found, version: tuple[int, ...] = (4, 3)) -> list[str]:
    return [odd.key for odd in of_queue(queue, there, NAMES, version) if odd.harmful]


@given(st.sampled_from(QUEUES), st.sampled_from(VERSIONS))
def test_what_we_declared_ourselves_is_no_different(queue: Queue, version: tuple[int, ...]) -> None:
    assert of_queue(queue, found(queue), NAMES, version) == []


@given(st.sampled_from(QUEUES), HARMFUL, st.sampled_from(VERSIONS))
def test_what_ends_limits_or_deletes_letters_is_harmful_wherever_it_stands(
    queue: Queue, odd: tuple[str, int], version: tuple[int, ...]
) -> None:
    there = Found("quorum", {**queue.arguments, "x-overflow": "drop-head", odd[0]: odd[1]})
    is_rung = "x-message-ttl" in queue.arguments
    assert odd[0] in harm(queue, there, version) or (is_rung and odd[0] == "x-delivery-limit")


@given(st.sampled_from([queue for queue in QUEUES if "x-dead-letter-strategy" in queue.arguments]))
def test_at_least_once_needs_a_queue_that_refuses(queue: Queue) -> None:
    assert harm(queue, found(queue, overflow=None)) == ["x-overflow"]


@given(st.sampled_from([queue for queue in QUEUES if "x-dead-letter-exchange" in queue.arguments]), st.data())
def test_who_leads_somewhere_else_than_we_do_is_harmful(queue: Queue, data: st.DataObject) -> None:
    keys = ["dead_letter_exchange", "dead_letter_strategy", "dead_letter_routing_key"]
    key = data.draw(st.sampled_from([option for option in keys if f"x-{option.replace('_', '-')}" in queue.arguments]))
    assert harm(queue, found(queue, **{key: data.draw(st.sampled_from([None, "elsewhere"]))}))


@given(st.sampled_from(QUEUES), st.text(min_size=1).filter(lambda key: key != "queue-type"), st.integers())
def test_what_nobody_knows_is_no_harm(queue: Queue, key: str, value: int) -> None:
    there = Found("quorum", {**queue.arguments, f"y-{key}": value})
    assert [odd.harmful for odd in of_queue(queue, there, NAMES, (4, 3))] == [False]


@pytest.mark.parametrize(
    ("limit", "version", "harmful"),
    [(None, (3, 10), False), (None, (4, 0), True), (-1, (4, 0), False), (-1, (3, 10), True), (20, (3, 10), True)],
)
def test_a_limit_that_no_letter_reaches_is_as_good_as_ours(
    limit: int | None,
    version: tuple[int, ...],
    harmful: bool,  # noqa: FBT001 - a table
) -> None:
    queue = next(candidate for candidate in QUEUES if candidate.name == NAMES.inbox)
    assert bool(harm(queue, found(queue, delivery_limit=limit), version)) is harmful


def test_a_parking_that_refuses_beyond_a_length_is_worth_a_note_and_an_inbox_is_not() -> None:
    for name, harmful in ((NAMES.parking, False), (NAMES.inbox, True), (NAMES.retired, True)):
        queue = next(candidate for candidate in QUEUES if candidate.name == name)
        [odd] = of_queue(queue, found(queue, max_length=1000), NAMES, (4, 3))
        assert odd.harmful is harmful


@pytest.mark.parametrize("flag", ["durable", "auto_delete", "exclusive"])
def test_a_queue_that_goes_by_itself_is_harmful(flag: str) -> None:
    queue = QUEUES[0]
    there = Found("quorum", queue.arguments, **{flag: flag != "durable"})
    assert harm(queue, there) == [flag.replace("_", "-")]


def test_exchanges_of_another_type_and_bindings_beside_ours_are_found() -> None:
    inbox = Exchange(NAMES.inbox, "fanout")
    assert [odd.key for odd in of_exchange(inbox, Found("direct"), NAMES) if odd.harmful] == ["type"]
    assert of_exchange(inbox, Found("fanout"), NAMES) == []
    odd = of_exchange(inbox, Found("fanout", {"alternate-exchange": "x", "y": 1}), NAMES)
    assert [(difference.key, difference.harmful) for difference in odd] == [("alternate-exchange", True), ("y", False)]
    bound = {(binding.exchange, binding.queue, binding.key) for binding in ALL if isinstance(binding, Binding)}
    good = bound | {(NAMES.return_, "work", "to:work"), (NAMES.inbox, NAMES.observe, ""), ("amq.topic", "work", "#")}
    assert of_bindings(ALL, good, NAMES) == []
    assert [odd.harmful for odd in of_bindings(ALL, bound - {(NAMES.release,) * 2 + ("",)}, NAMES)] == [True]
    rung = NAMES.delay(1000)
    assert [odd.harmful for odd in of_bindings(ALL, bound - {(rung, rung, "")}, NAMES)] == [False]
    assert [odd.harmful for odd in of_bindings(ALL, bound | {(NAMES.release, NAMES.inbox, "")}, NAMES)] == [True]
    assert [odd.harmful for odd in of_bindings(ALL, bound | {(NAMES.inbox, "copies", "")}, NAMES)] == [False]
    assert [odd.harmful for odd in of_bindings(ALL, bound | {(NAMES.return_, "spy", "to:work")}, NAMES)] == [False]


@pytest.mark.parametrize(
    ("said", "read"),
    [
        ("received none but current is the value '5' of type 'signedint'", ("x-max-length", 5)),
        ("received the value 'a' of type 'longstr' but current is none", ("x-max-length", None)),
        ("received 'true' but current is 'false'", ("x-max-length", False)),
        ("received 'fanout' but current is 'direct'; it is tried again", ("x-max-length", "direct")),
        ("received none but current is the value '' of type 'longstr'", ("x-max-length", "")),
    ],
)
def test_what_the_broker_says_of_a_declaration_is_understood(said: str, read: tuple[str, object]) -> None:
    text = f"declaring: PRECONDITION_FAILED - inequivalent arg 'x-max-length' for queue 'q' in vhost '/': {said}"
    assert refused(text) == read
