"""Letters that nobody foresaw, and ends at the wrong moment: one letter pays at most, its neighbours nothing."""

import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.alone import alone, refuse_over
from tests.support.bulk import INBOX, PARKING, QUARANTINE, every_body, frozen, law_holds, rests
from tests.support.client import Client
from tests.support.eventually import consistently, eventually
from tests.support.router import Router
from tests.support.vhost import Vhost
from tools import brokers

pytestmark = pytest.mark.usefixtures("newest")
Start = Callable[..., Router]

POLICIES: Final = """
version: 1
attachments: [{queue: old.failed, dead-letter-exchanges: ''}]
policies:
  - {name: work, match: "work.#", definition: {max-delivery-attempts: 3, redelivery-delay: 5s}}
"""
PLAIN: Final = POLICIES.replace("attachments: [{queue: old.failed, dead-letter-exchanges: ''}]\n", "")
MOST: Final = (1 << 63) - 1
FRAME: Final = 131_072


def told(**fields: Any) -> dict[str, Any]:
    """An entry of x-death as anybody may write it."""
    return {"queue": "work.a", "reason": "rejected", "count": 1, "exchange": "", "routing-keys": ["work.a"]} | fields


# (history, where it ends)
HISTORIES: Final = {
    "key-over-255-bytes": ([told(count=3, **{"routing-keys": ["k" * 300]})], "DLQ.transient"),
    "exchange-over-255-bytes": ([told(exchange="é" * 200)], QUARANTINE),
    "queue-over-255-bytes": ([told(queue="work." + "q" * 300)], QUARANTINE),
    "counts-beyond-64-bits": ([told(count=MOST), told(count=MOST)], "DLQ.transient"),
    "negative-time": ([told(time=-1), told(time=-1), told(time=-1)], "DLQ.transient"),
}


def test_a_history_that_nobody_can_write_again_stops_nobody(amqp: Client, start_router: Start) -> None:
    amqp.queue("old.failed")
    for name, (entries, _) in HISTORIES.items():
        amqp.publish(name, key="old.failed", headers={"x-death": entries})
    router = start_router(POLICIES)
    amqp.publish("next", key="old.failed")
    assert amqp.take(PARKING).body == b"next"
    for place in ("DLQ.transient", QUARANTINE):
        odd = {name for name, (_, end) in HISTORIES.items() if end == place}
        eventually(partial(amqp.exists, place))
        assert every_body(amqp, place, len(odd)) == odd
    rests(router)
    assert "session.ended" not in router.output


def test_a_letter_that_cannot_be_written_costs_its_neighbours_no_returns(
    amqp: Client, vhost: Vhost, tmp_path: Path
) -> None:
    """A quorum queue without a dead-letter exchange deletes what is returned 21 times."""
    amqp.queue("old.failed", "quorum")
    amqp.publish("odd", key="old.failed", headers={"x-death": [told(exchange="x" * 300)]})
    for number in range(50):
        amqp.publish(str(number), key="old.failed")
    (tmp_path / "policies.yaml").write_text(POLICIES, encoding="utf-8")
    router = Router(amqp_url=vhost.amqp_url, policies=tmp_path, log=tmp_path / "log").start()
    try:
        eventually(lambda: router.metric("settled_total") == 51)
        assert amqp.depth(PARKING) == 50
        assert amqp.take(QUARANTINE).body == b"odd"
        assert router.metric("given_back_total") == 0
    finally:
        router.close()


# -- what is larger than we may publish -------------------------------------------------------------------------------


def test_a_quarantine_that_is_gone_gets_the_letter_that_has_no_room_for_a_number(
    amqp: Client, start_router: Start
) -> None:
    router = start_router(PLAIN)
    amqp.channel.queue_delete(QUARANTINE)
    amqp.publish("large", key=INBOX, headers={"x-death": "no list", "x": "y" * (FRAME - 3000)})
    eventually(lambda: amqp.exists(QUARANTINE), 20)
    assert amqp.take(QUARANTINE).body == b"large"
    router.await_ready()
    rests(router)


def test_a_header_over_a_frame_in_an_attached_queue_is_quarantined_without_its_deaths(
    amqp: Client, start_router: Start
) -> None:
    amqp.queue("old.failed")
    amqp.queue("old", message_ttl=0, dead_letter_exchange="", dead_letter_routing_key="old.failed")
    amqp.publish("large", key="old", headers={"x": "y" * (FRAME - 8 - 14 - 4 - 1 - 7)})
    eventually(lambda: amqp.depth("old.failed") == 1)
    amqp.publish("next", key="old.failed")
    router = start_router(POLICIES)
    assert amqp.take(PARKING).body == b"next"
    kept = amqp.take(QUARANTINE)
    assert (kept.body, len(kept.headers["x"])) == (b"large", FRAME - 8 - 14 - 4 - 1 - 7)
    rests(router)
    assert "session.ended" not in router.output


@pytest.mark.slow
def test_a_letter_that_nobody_may_publish_stays_in_its_attached_queue_and_stops_no_other(
    own_broker: brokers.Node, tmp_path: Path
) -> None:
    with alone(own_broker, tmp_path, POLICIES) as (router, amqp):
        amqp.queue("old.failed", "quorum")
        amqp.publish("x" * 20_000, key="old.failed")
        refuse_over(own_broker, 10_000)
        router.start(wait=False)
        eventually(lambda: "left alone" in router.ask("/readyz")[1], 30)
        amqp.publish("next", key=INBOX)
        assert amqp.take(PARKING).body == b"next"
        assert amqp.depth("old.failed") == 1
        assert consistently(lambda: "session.ended" not in router.output)
        eventually(lambda: law_holds(router))


# -- alarms and ends --------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_goes_to_quarantine_alone_waits_for_the_end_of_an_alarm_too(
    own_broker: brokers.Node, tmp_path: Path
) -> None:
    with alone(own_broker, tmp_path, PLAIN, {"CONFIRM_TIMEOUT": "1s", "HEARTBEAT": "300"}) as (router, amqp):
        router.start()
        amqp.publish("before", key=INBOX, headers={"x-death": "no list"})
        assert amqp.take(QUARANTINE).body == b"before"
        with frozen(router):
            for number in range(5):
                amqp.publish(str(number), key=INBOX, headers={"x-death": "no list"})
            own_broker.rabbitmqctl("set_vm_memory_high_watermark", "0.000001")
        eventually(lambda: "blocks publishers" in router.ask("/readyz")[1], 120)
        consistently(lambda: router.metric("in_flight") > 0, for_s=3)
        own_broker.rabbitmqctl("set_vm_memory_high_watermark", "0.9")
        eventually(lambda: router.metric("settled_total", action="quarantine") == 6, 120)
        assert amqp.depth(QUARANTINE) == 5
        assert "session.ended" not in router.output


def test_a_relay_that_is_left_leaves_nothing_open_and_nothing_refused(amqp: Client, start_router: Start) -> None:
    amqp.queue("in")
    amqp.bind(amqp.queue("out"), amqp.exchange("next", "fanout"))
    relay = "version: 1\nattachments: [{queue: in, mode: relay, forward-to: {exchange: next}}]\n"
    router = start_router(relay)
    amqp.publish("one", key="in")
    assert amqp.take("out").body == b"one"
    (router.policies / "policies.yaml").write_text("version: 1\n", encoding="utf-8")
    router.signal(signal.SIGHUP)
    eventually(lambda: "source.left" in router.output)
    assert consistently(lambda: router.metric("publish_refused_total") == 0)
