"""RabbitMQ is killed just after a queue was made: it forgets a name that is not on disk yet, and all in that queue.

Its files are written a second later, or once another quorum queue is made: which is what the router does.
"""

from collections.abc import Callable

import pytest

from tests.support.bulk import INBOX
from tests.support.client import Client
from tests.support.eventually import eventually
from tests.support.router import Router
from tests.support.vhost import Vhost
from tools import brokers

Start = Callable[..., Router]
LETTERS = 20
JOURNAL = "dlx-router.journal"
WAITS = """
version: 1
policies: [{name: shop, queue: shop, definition: {max-delivery-attempts: 3, redelivery-delay: 4s}}]
"""
DIES = """
version: 1
policies:
  - name: shop
    queue: shop
    definition: {max-delivery-attempts: 1, auto-create-dead-letter-resources: true, dead-letter-queue-type: quorum}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "place"), [(WAITS, "dlx-router.delay.4000"), (DIES, "DLQ.shop")], ids=["waits", "dead"]
)
def test_the_first_letters_of_a_new_queue_survive(
    own_broker: brokers.Node, start_router: Start, policy: str, place: str
) -> None:
    own_broker.start()
    vhost = Vhost.make(own_broker, "new")
    router = start_router(policy, AMQP_URL=vhost.amqp_url, MANAGEMENT_URL=vhost.management_url)
    with Client(vhost.amqp_url) as amqp:
        amqp.queue("shop", kind="quorum", dead_letter_exchange=INBOX)
        for number in range(LETTERS):
            amqp.publish(str(number), key="shop")
        for _ in range(LETTERS):
            amqp.fail("shop")
        eventually(lambda: amqp.exists(place) and amqp.depth(place) == LETTERS, within=20)
    own_broker.kill()
    own_broker.start()
    router.await_ready(60)
    with Client(vhost.amqp_url) as amqp:
        last = "shop" if place != "DLQ.shop" else place
        assert {amqp.take(last, within=40).body for _ in range(LETTERS)} == {b"%d" % n for n in range(LETTERS)}
    vhost.api.close()


@pytest.mark.slow
def test_letters_go_on_where_the_broker_forgot_what_leads_its_streams(
    own_broker: brokers.Node, start_router: Start
) -> None:
    """A stream that was the node's first is there then, and whoever publishes to it loses the connection, for good."""
    own_broker.start()
    vhost = Vhost.make(own_broker, "new")
    with Client(vhost.amqp_url) as amqp:
        amqp.queue(JOURNAL, kind="stream")
    own_broker.kill()
    own_broker.start()
    with Client(vhost.amqp_url) as amqp:
        amqp.queue("shop", kind="quorum", dead_letter_exchange=INBOX)
        router = start_router(DIES, AMQP_URL=vhost.amqp_url, MANAGEMENT_URL=vhost.management_url)
        amqp.publish("x", key="shop")
        amqp.fail("shop")
        assert amqp.take("DLQ.shop", within=40).body == b"x"
        eventually(lambda: "the journal of vhost 'new' cannot be written" in router.ask("/readyz")[1], within=20)
    vhost.api.close()
