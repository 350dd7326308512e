"""`run --observe`, beside production: what would be done stands in the journal, and nobody's queue is touched."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import pytest

from tests.journal import plain_reader
from tests.support.bulk import INBOX, law_holds
from tests.support.client import Client
from tests.support.eventually import consistently, eventually
from tests.support.router import Router
from tests.support.vhost import Vhost

Start = Callable[..., Router]

OBSERVE: Final = "dlx-router.observe"
POLICIES: Final = """
version: 1
attachments: [{queue: theirs}]
policies:
  - {name: work, match: "work.#", definition: {max-delivery-attempts: 2, redelivery-delay: 5s}}
"""


@pytest.fixture
def events(vhost: Vhost) -> Iterator[Callable[[int], list[dict[str, Any]]]]:
    """events(n) → the first n events of the journal."""
    with Client(vhost.amqp_url) as client:

        def read(count: int) -> list[dict[str, Any]]:
            eventually(lambda: client.exists("dlx-router.journal"), within=30)  # declared beside the letters
            channel = client.connection.channel()
            channel.basic_qos(prefetch_count=100)
            batch: list[dict[str, Any]] = []

            def more() -> bool:
                for method, how, body in channel.consume(
                    "dlx-router.journal", arguments={"x-stream-offset": "first"}, inactivity_timeout=0.5
                ):
                    if method is None:
                        return False
                    channel.basic_ack(method.delivery_tag)
                    batch.extend(plain_reader.events(how.content_encoding, body))
                    if len(batch) >= count:
                        return True
                return False

            eventually(more, within=30)
            channel.cancel()
            return batch

        yield read


def test_beside_a_dead_letter_queue_in_production(
    vhost: Vhost, amqp: Client, start_router: Start, events: Callable[[int], list[dict[str, Any]]]
) -> None:
    """The user's set-up dead-letters to `dlx`; a binding of exchange `dlx-router.observe` to it gives us copies."""
    amqp.exchange("dlx", "topic")
    amqp.queue("theirs", "quorum")
    amqp.bind("theirs", "dlx", "#")
    amqp.queue("work.a", dead_letter_exchange="dlx")
    amqp.publish("before", key="work.a", headers={"x-mine": 1})
    amqp.fail("work.a")
    before = amqp.take("theirs")
    router = start_router(POLICIES, "--observe")
    assert "observing" in router.ask("/readyz")[1]
    amqp.channel.exchange_bind(OBSERVE, "dlx", "#")
    amqp.publish("one", key="work.a", headers={"x-mine": 1})
    amqp.fail("work.a")
    (event,) = events(1)
    assert (event["kind"], event["observed"], event["failed_queue"]) == ("retried", True, "work.a")
    assert (event["attempts"], event["policy"], event["rung_ms"]) == (1, "work", 5000)
    assert event["exchange"] == "dlx"
    eventually(lambda: amqp.depth("theirs") == 1)
    assert consistently(lambda: amqp.depth("theirs") == 1), "not taken, though the policies attach it"
    kept = amqp.take("theirs")
    assert kept.body == b"one"
    there, was = (
        {name: value for name, value in message.headers.items() if name != "x-death"} for message in (kept, before)
    )
    assert (there, kept.redelivered) == (was, before.redelivered), "no delivery was counted"
    assert amqp.depth("work.a") == 0, "nothing came back"
    assert not [name for name in vhost.queues() if name.startswith(("DLQ.", "dlx-router.delay."))]
    assert router.metric("decisions_total", policy="work", action="retry") == 1
    eventually(partial(law_holds, router))


def test_what_waits_in_the_inbox_is_seen_and_stays(
    vhost: Vhost, amqp: Client, start_router: Start, events: Callable[[int], list[dict[str, Any]]]
) -> None:
    observer = start_router(POLICIES, "--observe")
    amqp.queue("work.a", dead_letter_exchange=INBOX)
    amqp.queue("other", dead_letter_exchange=INBOX)
    for queue in ("work.a", "other"):
        amqp.publish(queue, key=queue)
        amqp.fail(queue)
    by_queue = {event["failed_queue"]: event for event in events(2)}
    assert (by_queue["work.a"]["kind"], by_queue["other"]["kind"]) == ("retried", "parked")
    eventually(lambda: amqp.depth(INBOX) == 2)  # what was looked at comes back
    assert amqp.depth("dlx-router.parking") == 0
    assert "letter.park" not in observer.output, "no line says that it lies there"
    observer.stop()
    amqp.queue("theirs")
    start_router(POLICIES)
    assert amqp.take("dlx-router.parking").body == b"other"
    everything = events(4)
    real = {event["failed_queue"]: event for event in everything if "observed" not in event}
    assert set(real) == {"work.a", "other"}
    assert len({event["event_id"] for event in everything}) == 4, "what was done is not taken for a repetition"
