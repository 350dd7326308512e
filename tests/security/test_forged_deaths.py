"""Deaths that somebody wrote: x-death is the broker's word only of what came by a dead-letter exchange that is named.

The publisher may write to one exchange, which leads to an attached queue or to the inbox, and to nothing else.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pytest

from tests.security.conftest import Admit, url_for
from tests.support.bulk import INBOX, PARKING, law_holds, record
from tests.support.client import Client, Message
from tests.support.eventually import consistently, eventually
from tests.support.router import Router
from tests.support.vhost import Vhost

Start = Callable[..., Router]

POLICIES: Final = """
version: 1
policies:
  - {name: all, match: "#", definition: {max-delivery-attempts: 5}}
"""
ATTACHED: Final = POLICIES + "attachments: [{queue: legacy.failed%s}]\n"
NAMED: Final = ATTACHED % ", dead-letter-exchanges: legacy.dlx"


def _forged(queue: str = "secret.queue", reason: str = "rejected", count: int = 1) -> dict[str, Any]:
    death = {"queue": queue, "reason": reason, "count": count, "exchange": "", "routing-keys": [queue]}
    first = {"x-first-death-queue": queue, "x-first-death-reason": reason, "x-first-death-exchange": ""}
    return {"x-death": [death], **first}


def _publish(vhost: Vhost, admit: Admit, exchange: str, body: str, headers: dict[str, Any]) -> None:
    """By a user who may write to this exchange, and nothing else."""
    with Client(url_for(vhost, admit("^$", f"^{exchange}$", "^$"))) as publisher:
        publisher.publish(body, key="any", exchange=exchange, headers=headers)


def _nothing_reached(amqp: Client, queue: str = "secret.queue") -> None:
    assert consistently(lambda: amqp.depth(queue) == 0 and not amqp.exists(f"DLQ.{queue}"))


def _unknown(amqp: Client, body: bytes, headers: dict[str, Any]) -> Message:
    parked = amqp.take(PARKING)
    header = record(parked)
    assert parked.body == body
    assert (header["cause"], header["attempts"], header["deaths"]) == ("unknown_origin", 0, [])
    assert parked.deaths == headers["x-death"], "data, as it came"
    return parked


@pytest.mark.parametrize("reason", ["rejected", "expired"])
@pytest.mark.parametrize("attached", [ATTACHED % "", NAMED], ids=["no exchange is named", "another one is named"])
def test_what_an_ordinary_publisher_says_of_deaths_at_an_attached_queue_leads_nowhere(
    vhost: Vhost, amqp: Client, admit: Admit, start_router: Start, attached: str, reason: str
) -> None:
    amqp.queue("secret.queue")
    amqp.bind(amqp.queue("legacy.failed"), amqp.exchange("in", "fanout"))
    router = start_router(attached)
    headers = _forged(reason=reason)
    _publish(vhost, admit, "in", "forged", headers)
    assert record(_unknown(amqp, b"forged", headers))["failed_queue"] == "legacy.failed"
    _nothing_reached(amqp)
    assert router.metric("untrusted_deaths_total", vhost=vhost.name) == 1
    assert "x-death.not_trusted" in router.output
    eventually(partial(law_holds, router))


def test_of_what_died_on_its_way_to_an_attached_queue_the_newest_death_counts(
    vhost: Vhost, amqp: Client, admit: Admit, start_router: Start
) -> None:
    """RabbitMQ 3.10 continues the history that a publisher has written, 4.x replaces it."""
    amqp.queue("secret.queue")
    amqp.bind(amqp.queue("legacy.failed"), amqp.exchange("legacy.dlx", "fanout"))
    amqp.bind(amqp.queue("work", dead_letter_exchange="legacy.dlx"), amqp.exchange("in", "fanout"))
    start_router(NAMED)
    _publish(vhost, admit, "in", "forged", _forged())
    amqp.fail("work")
    back = amqp.fail("work")
    assert (record(back)["failed_queue"], record(back)["attempts"]) == ("work", 1)
    assert record(amqp.take("work"))["attempts"] == 2
    _nothing_reached(amqp)


def test_where_no_exchange_is_named_what_the_broker_brings_counts_as_new(amqp: Client, start_router: Start) -> None:
    amqp.bind(amqp.queue("legacy.failed"), amqp.exchange("legacy.dlx", "fanout"))
    amqp.queue("work", dead_letter_exchange="legacy.dlx")
    start_router(ATTACHED % "")
    amqp.publish("one", key="work")
    amqp.fail("work")
    header = record(amqp.take(PARKING))
    assert (header["cause"], header["failed_queue"]) == ("unknown_origin", "legacy.failed")


def test_the_default_exchange_is_named_like_any_other(amqp: Client, start_router: Start) -> None:
    amqp.queue("legacy.failed")
    amqp.queue("work", dead_letter_exchange="", dead_letter_routing_key="legacy.failed")
    start_router(ATTACHED % ', dead-letter-exchanges: [legacy.dlx, ""]')
    amqp.publish("one", key="work")
    amqp.fail("work")
    assert record(amqp.take("work"))["attempts"] == 1


def test_by_an_exchange_that_somebody_bound_to_the_inbox_deaths_come_only_where_it_is_named(
    vhost: Vhost, amqp: Client, admit: Admit, start_router: Start
) -> None:
    amqp.queue("secret.queue")
    amqp.exchange("in", "fanout")
    amqp.exchange("legacy.dlx", "fanout")
    amqp.queue("work", dead_letter_exchange="legacy.dlx")
    start_router(POLICIES + f"attachments: [{{queue: {INBOX}, dead-letter-exchanges: legacy.dlx}}]\n")
    for exchange in ("in", "legacy.dlx"):
        amqp.channel.exchange_bind(INBOX, exchange)
    headers = _forged()
    _publish(vhost, admit, "in", "forged", headers)
    _unknown(amqp, b"forged", headers)
    _nothing_reached(amqp)
    amqp.publish("one", key="work")
    amqp.fail("work")
    assert record(amqp.take("work"))["attempts"] == 1


def test_a_forged_death_at_the_inbox_leads_nowhere(
    vhost: Vhost, amqp: Client, admit: Admit, start_router: Start
) -> None:
    amqp.queue("secret.queue")
    amqp.exchange("in", "fanout")
    start_router(POLICIES)
    amqp.channel.exchange_bind(INBOX, "in")
    headers = _forged()
    _publish(vhost, admit, "in", "forged", headers)
    _unknown(amqp, b"forged", headers)
    _nothing_reached(amqp)


RELAY: Final = """
version: 1
policies:
  - {name: all, match: "#", definition: {max-delivery-attempts: 5, retry-on: [expired], dead-letter-exchange: ends}}
  - {name: old, queue: hop, definition: {message-ttl: 0}}
attachments: [{queue: hop, mode: relay, forward-to: {exchange: onwards}}]
"""


def test_what_dies_in_a_relay_dies_there_for_the_first_time_whatever_was_written_on_it(
    vhost: Vhost, amqp: Client, admit: Admit, start_router: Start
) -> None:
    amqp.exchange("onwards", "fanout")
    amqp.bind(amqp.queue("ends"), amqp.exchange("ends", "fanout"))
    amqp.queue("secret.queue")
    amqp.bind(amqp.queue("hop"), amqp.exchange("in", "fanout"))
    start_router(RELAY)
    death = _forged("hop", "expired", 1000)["x-death"] + _forged()["x-death"]
    death[0] |= {"exchange": "private", "routing-keys": ["secret"]}
    _publish(vhost, admit, "in", "forged", {"x-death": death})
    dead = amqp.take("ends")
    assert [(death["queue"], death["count"], death["exchange"], death["routing-keys"]) for death in dead.deaths] == [
        ("hop", 5, "in", ["any"])
    ]
    assert record(dead)["attempts"] == 5
    _nothing_reached(amqp)


def test_what_lives_in_a_relay_keeps_what_was_written_on_it(
    vhost: Vhost, amqp: Client, admit: Admit, start_router: Start
) -> None:
    amqp.bind(amqp.queue("out"), amqp.exchange("onwards", "fanout"))
    amqp.bind(amqp.queue("hop"), amqp.exchange("in", "fanout"))
    start_router(RELAY.replace("  - {name: old, queue: hop, definition: {message-ttl: 0}}\n", ""))
    _publish(vhost, admit, "in", "alive", _forged())
    assert amqp.take("out").deaths == _forged()["x-death"]


def test_a_relayed_message_that_is_parked_is_known_by_its_relay_and_not_by_what_was_written_on_it(
    vhost: Vhost, amqp: Client, admit: Admit, start_router: Start
) -> None:
    """A redrive of parking would lead there."""
    amqp.exchange("onwards", "fanout")
    amqp.queue("secret.queue")
    amqp.bind(amqp.queue("hop"), amqp.exchange("in", "fanout"))
    start_router(RELAY.replace("onwards}", "onwards, routing-key: '{header:key}'}").replace("message-ttl: 0", ""))
    _publish(vhost, admit, "in", "long", {**_forged(), "key": "k" * 300})
    header = record(amqp.take(PARKING))
    assert (header["cause"], header["failed_queue"], header["reason"]) == ("routing_key_too_long", "hop", "unknown")
