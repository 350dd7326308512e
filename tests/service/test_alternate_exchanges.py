"""An alternate exchange of the router's own exchanges takes what has no way there, confirmed: no letter goes by it."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import pytest

from tests.support.bulk import INBOX, PARKING
from tests.support.client import Client
from tests.support.eventually import consistently, eventually
from tests.support.router import Router
from tests.support.vhost import Vhost

Start = Callable[..., Router]

POLICIES: Final = """
version: 1
policies:
  - {name: work, match: "work.#", definition: {max-delivery-attempts: 5}}
  - {name: shop, match: "shop.#", definition: {max-delivery-attempts: 1, dead-letter-exchange: graves}}
"""
RETURN: Final = "dlx-router.return"
OWN: Final = ("declared", "inbox", "inbox.fifo", "release", "return")
BOTH: Final = pytest.mark.parametrize("settings", [{}, {"MANAGEMENT_URL": ""}], ids=["management", "amqp"])


def died_at(queue: str) -> Mapping[str, object]:
    """Headers by which a letter in the inbox failed there."""
    return {"x-death": [{"queue": queue, "reason": "rejected", "count": 1, "exchange": "", "routing-keys": [queue]}]}


@pytest.fixture
def elsewhere(amqp: Client) -> str:
    """A queue of somebody else, to which the alternate exchange `anything` leads."""
    amqp.bind(amqp.queue("elsewhere"), amqp.exchange("anything", "fanout"))
    return "elsewhere"


@contextmanager
def policy(vhost: Vhost, pattern: str = ".*") -> Iterator[None]:
    """Inside the block it gives exchanges an alternate exchange."""
    set_policy(vhost, "catch-all", pattern, {"alternate-exchange": "anything"})
    yield
    vhost.api.delete(f"policies/{vhost.quoted}/catch-all").raise_for_status()


def set_policy(vhost: Vhost, name: str, pattern: str, definition: Mapping[str, str], priority: int = 0) -> None:
    """A RabbitMQ policy on exchanges and queues."""
    body = {"pattern": pattern, "definition": dict(definition), "priority": priority, "apply-to": "all"}
    vhost.put(f"policies/{vhost.quoted}/{name}", body)


def return_one(amqp: Client) -> None:
    """The way back to the queue is bound, and the router knows it."""
    amqp.queue("work.a")
    amqp.publish("first", key=INBOX, headers=died_at("work.a"))
    assert amqp.take("work.a").body == b"first"


def lose_binding(amqp: Client) -> None:
    """Somebody makes the failed queue anew; the router does not know that nothing leads there any more."""
    amqp.channel.queue_delete("work.a")
    amqp.queue("work.a")


@pytest.mark.slow
def test_once_a_policy_was_seen_no_retry_whose_binding_went_goes_by_its_alternate_exchange(
    vhost: Vhost, amqp: Client, elsewhere: str, start_router: Start
) -> None:
    """It lay in a queue of somebody else, and was journaled as retried; the router looks each minute."""
    router = start_router(POLICIES)
    return_one(amqp)
    with policy(vhost):
        eventually(lambda: router.says_ready(503, f"alternate-exchange on exchange '{RETURN}'"), within=75)
        lose_binding(amqp)
        amqp.publish("second", key=INBOX, headers=died_at("work.a"))
        assert consistently(lambda: amqp.depth(elsewhere) == 0, for_s=1)
    router.await_ready(within=30)
    assert amqp.take("work.a").body == b"second"


def test_a_catch_all_policy_with_an_alternate_exchange_is_named_and_nothing_is_consumed(
    vhost: Vhost, amqp: Client, elsewhere: str, start_router: Start
) -> None:
    with policy(vhost):
        router = start_router(POLICIES, wait=False)
        named = [f"policy 'catch-all' sets alternate-exchange on exchange 'dlx-router.{name}'" for name in OWN]
        eventually(lambda: router.says_ready(503, *named, "exclude the router's exchanges", "apply"), within=20)
        amqp.queue("work.a")
        amqp.publish("waits", key=INBOX, headers=died_at("work.a"))
        assert consistently(lambda: amqp.depth(INBOX) == 1, for_s=1)
    router.await_ready(within=30)
    assert amqp.take("work.a").body == b"waits"
    assert amqp.depth(elsewhere) == 0


@BOTH
@pytest.mark.parametrize(("name", "kind"), [("return", "direct"), ("release", "fanout"), ("declared", "fanout")])
@pytest.mark.usefixtures("elsewhere")
def test_an_exchange_that_was_declared_with_an_alternate_exchange_is_named_and_nothing_is_consumed(
    name: str, kind: str, settings: dict[str, str], amqp: Client, start_router: Start
) -> None:
    exchange = f"dlx-router.{name}"
    amqp.channel.exchange_declare(exchange, kind, durable=True, arguments={"alternate-exchange": "anything"})
    router = start_router(POLICIES, wait=False, **settings)
    words = f"exchange '{exchange}' has alternate-exchange 'anything' where the router declares (none)", "delete it"
    eventually(lambda: router.says_ready(503, *words), within=20)
    amqp.publish("waits", key=INBOX)
    assert consistently(lambda: amqp.depth(INBOX) == 1, for_s=1)
    amqp.channel.exchange_delete(exchange)
    router.await_ready(within=30)
    assert amqp.take(PARKING).body == b"waits"


@BOTH
@pytest.mark.usefixtures("elsewhere")
def test_who_deletes_the_exchange_of_an_inbox_is_told_what_is_dropped_meanwhile(
    settings: dict[str, str], amqp: Client, start_router: Start
) -> None:
    amqp.channel.exchange_declare(INBOX, "fanout", durable=True, arguments={"alternate-exchange": "anything"})
    router = start_router(POLICIES, wait=False, **settings)
    words = f"exchange '{INBOX}' has alternate-exchange 'anything'", "the broker drops what dies"
    eventually(lambda: router.says_ready(503, *words), within=20)
