"""What a target does not take, in seconds: the short forms of scenes in tests/service, for mutants to fail on."""

from collections.abc import Callable

from tests.support.bulk import PARKING, bodies, dying_queue, pour, record, take_many
from tests.support.client import Client
from tests.support.eventually import eventually
from tests.support.router import Router

Start = Callable[..., Router]

POLICIES = """
version: 1
policies:
  - {name: work, match: "work.#", definition: {dead-letter-exchange: target}}
"""


def test_what_nobody_takes_is_parked(amqp: Client, start_router: Start) -> None:
    amqp.exchange("target", "fanout")
    start_router(POLICIES, UNROUTABLE_GRACE="0s")
    pour(amqp, dying_queue(amqp, "work.a"), ["1", "2", "3"])
    parked = take_many(amqp, PARKING, 3, within=8)
    assert bodies(parked) == ["1", "2", "3"]
    assert {record(letter)["cause"] for letter in parked} == {"unroutable"}


def test_what_a_full_target_refuses_is_held(amqp: Client, start_router: Start) -> None:
    amqp.bind(amqp.queue("full", max_length=5, overflow="reject-publish"), amqp.exchange("target", "fanout"))
    router = start_router(POLICIES)
    pour(amqp, dying_queue(amqp, "work.a"), [str(number) for number in range(40)])
    eventually(lambda: router.metric("settled_total", action="hold") >= 30, within=8)
    assert amqp.depth(PARKING) == 0
