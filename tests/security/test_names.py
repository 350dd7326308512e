"""Names that the broker reads as others: whoever publishes to an attached queue reaches nothing of the router's own."""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import pytest

from tests.support.bulk import PARKING, law_holds, record
from tests.support.client import Client
from tests.support.eventually import consistently, eventually
from tests.support.router import Router
from tests.support.vhost import Vhost

Start = Callable[..., Router]

OWN: Final = ("state", "journal", "inbox", "release", "parking", "quarantine", "retired", "declared")
SPELT: Final = ("dlx-router.\n{}", "\rdlx-router.{}", "dlx-\r\nrouter.{}", "dlx-router.{}\n")
POLICIES: Final = """
version: 1
policies:
  - {name: all, match: "#", definition: {max-delivery-attempts: 3, redelivery-delay: 0}}
attachments:
  - {queue: attached, dead-letter-exchanges: ""}  # so that what a publisher writes is believed
"""
OWN_KEY: Final = "dlx-router.quarantine"
RELAY: Final = """
version: 1
policies: [{name: all, match: "#"}]
attachments:
  - {queue: entry, mode: relay, forward-to: {exchange: "", routing-key: "{routing_key}.quarantine"}}
"""


def _died(queue: str, exchange: str = "", keys: tuple[str, ...] = ("k",)) -> dict[str, Any]:
    """x-death as a publisher may write it."""
    entry = {"queue": queue, "reason": "rejected", "count": 1, "exchange": exchange, "routing-keys": list(keys)}
    return {"x-death": [entry | {"time": datetime(2026, 1, 1, tzinfo=UTC)}]}


def _bound(vhost: Vhost) -> set[str]:
    """The queues that the way back leads to."""
    return {
        binding["destination"] for binding in vhost.get(f"exchanges/{vhost.quoted}/dlx-router.return/bindings/source")
    }


def _hostile() -> list[dict[str, Any]]:
    names = [spelt.format(name) for name in OWN for spelt in SPELT]
    deaths = [_died(name) for name in names]
    deaths += [_died("work", exchange=name) for name in names[:4]]
    deaths += [_died("work", keys=("k", name, f"to:{name}")) for name in names[:4]]
    return [death | {"CC": ["dlx-router.\nstate"], "reply": "dlx-router.\nstate"} for death in deaths]


def test_own_names_with_cr_and_lf_in_a_history_lead_to_no_queue_of_the_routers(
    vhost: Vhost, amqp: Client, start_router: Start
) -> None:
    for queue in ("attached", "work"):
        amqp.queue(queue)
    router = start_router(POLICIES)
    sent = _hostile()
    for number, headers in enumerate(sent):
        properties = {"reply_to": "dlx-router.\njournal", "message_id": str(number)}
        amqp.publish(f"hostile {number}", key="attached", headers=headers, **properties)
    eventually(lambda: router.metric("in_flight") == 0 and amqp.depth("attached") == 0, 20)
    assert amqp.depth("dlx-router.state") <= 1, "the router's own message, if it is not with its reader"
    assert _bound(vhost) <= {"work"}
    assert {queue for queue in vhost.queues() if queue.startswith("DLQ.")} <= {"DLQ.work"}
    amqp.publish("good", key="attached", headers=_died("work"))
    eventually(lambda: amqp.depth("attached") == 0)
    eventually(lambda: amqp.depth(PARKING) + amqp.depth("work") == len(sent) + 1, 20)
    assert consistently(lambda: router.ask("/readyz")[0] == 200)
    assert router.metric("settled_total", action="quarantine") == 0
    parked = [amqp.take(PARKING) for _ in range(amqp.depth(PARKING))]
    assert {record(message)["cause"] for message in parked} <= {"unknown_origin", "unroutable", "forbidden"}
    eventually(partial(law_holds, router))


def test_a_queue_whose_name_the_broker_reads_as_anothers_gives_that_one_no_letters(
    vhost: Vhost, amqp: Client, start_router: Start
) -> None:
    """Only a definitions file can make such a queue: AMQP would look at, and bind, the other."""
    for queue in ("attached", "work"):
        amqp.queue(queue)
    router = start_router(POLICIES, UNROUTABLE_GRACE="0s")
    amqp.publish("strange", key="attached", headers=_died("wo\nrk"))
    parked = amqp.take(PARKING)
    assert (record(parked)["cause"], record(parked)["failed_queue"]) == ("unroutable", "wo\nrk")
    assert consistently(lambda: amqp.depth("work") == 0)
    assert "work" not in _bound(vhost)
    assert router.ask("/readyz")[0] == 200


@pytest.mark.usefixtures("newest")
def test_a_relay_whose_key_a_message_chooses_leads_to_no_queue_of_the_routers(
    vhost: Vhost, amqp: Client, start_router: Start
) -> None:
    amqp.queue("entry")
    amqp.bind("entry", amqp.exchange("in", "fanout"))
    router = start_router(RELAY)
    before = amqp.depth("dlx-router.quarantine")
    amqp.publish("forged", exchange="in", key="dlx-router")
    parked = amqp.take(PARKING)
    assert (parked.body, record(parked)["cause"], record(parked)["target"]) == (b"forged", "forbidden", OWN_KEY)
    assert consistently(lambda: amqp.depth("dlx-router.quarantine") == before)
    assert router.ask("/readyz")[0] == 200
