"""A filter that means a tenth of a queue: the rest keeps its order, and no look ends a letter, on each broker.

DLX_ROUTER_SIFT_LETTERS=100000 is the full size: `make redrive-sift`.
"""

import os
from itertools import pairwise
from typing import Final

import pytest

from tests.redrive.conftest import Shop
from tests.support.bulk import DEAD, pour, take_many
from tests.support.eventually import eventually

N: Final = int(os.environ.get("DLX_ROUTER_SIFT_LETTERS", "3000"))


# A busy machine is several times slower; on one at rest 100,000 letters take a minute.
@pytest.mark.slow
@pytest.mark.timeout(120 + N // 25)
@pytest.mark.parametrize("kind", ["quorum", "classic"])
def test_a_tenth_goes_and_the_rest_keeps_its_order(shop: Shop, kind: str) -> None:
    queue = shop.failed(f"sift.{kind}", ["0"])
    shop.amqp.take(queue)
    if kind == "classic":
        queue = shop.amqp.queue("sift.source", "classic")
    mended = shop.amqp.queue(f"sift.{kind}.mended")
    bodies = [str(number) for number in range(N)]
    pour(shop.amqp, queue, bodies, DEAD)
    asked = {"filter": 'body("") % 10 == 7', "to": {"routing_key": mended}, "not_a_dead_letter_queue": True}
    done = shop.ends(shop.start(queue, **asked), within=60 + N // 50)
    meant = bodies[7::10]
    assert (done["counts"]["sent"], done["counts"]["left"], done["why"]) == (len(meant), N - len(meant), "")
    sent = take_many(shop.amqp, mended, len(meant), 60 + N // 200)
    assert [message.body.decode() for message in sent] == meant
    rest = take_many(shop.amqp, queue, N - len(meant), 60 + N // 100)
    numbers = [int(message.body) for message in rest]
    breaks = [pair for pair in pairwise(numbers) if pair[0] > pair[1]]
    assert (breaks[:5], len(set(numbers))) == ([], N - len(meant))
    counted = {message.headers.get("x-delivery-count", 0) for message in rest}
    assert max(counted) <= 2, counted  # before 4.3 each look counts; the queue has no limit
    assert shop.amqp.depth(queue) == 0


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_no_channel_holds_more_than_2000_messages(shop: Shop) -> None:
    """For each ack RabbitMQ searches the list of what its channel holds: with 27,000 in it a redrive hardly moved."""
    queue = shop.amqp.queue("sift.held", "classic")
    shop.amqp.queue("sift.slowly")
    pour(shop.amqp, queue, map(str, range(5000)), DEAD)
    asked = {"filter": 'body("") % 100 == 7', "to": {"routing_key": "sift.slowly"}, "not_a_dead_letter_queue": True}
    task = shop.start(queue, rate=1, **asked)

    def held() -> list[int]:
        channels = shop.vhost.get(f"vhosts/{shop.vhost.quoted}/channels")
        return [channel.get("messages_unacknowledged", 0) for channel in channels]

    eventually(lambda: sum(held()) >= 4000, 90)
    assert max(held()) <= 2000
    assert shop.call("POST", f"/{task}/cancel").status_code == 200
