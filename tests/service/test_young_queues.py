"""A quorum queue that was made just now: RabbitMQ forgets it, with all that it confirmed, where it is killed then.

Its name is written to disk within a second and a half; until then the letters' sources are not acked.
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
def test_letters_in_a_queue_that_a_killed_broker_forgets_come_again(
    own_broker: brokers.Node, start_router: Start, policy: str, place: str
) -> None:
    own_broker.start()
    vhost = Vhost.make(own_broker, "young")
    router = start_router(policy, AMQP_URL=vhost.amqp_url, MANAGEMENT_URL=vhost.management_url)
    with Client(vhost.amqp_url) as amqp:
        amqp.queue("shop", kind="quorum", dead_letter_exchange=INBOX)
        for number in range(LETTERS):
            amqp.publish(str(number), key="shop")
        for _ in range(LETTERS):
            amqp.fail("shop")
        eventually(lambda: amqp.depth(place) == LETTERS, within=10)
    own_broker.kill()
    own_broker.start()
    router.await_ready(60)
    with Client(vhost.amqp_url) as amqp:
        if place == "DLQ.shop":
            eventually(lambda: amqp.depth(place) >= LETTERS, within=30)
        else:
            assert {amqp.take("shop", within=40).body for _ in range(LETTERS)} == {b"%d" % n for n in range(LETTERS)}
