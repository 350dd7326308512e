"""Letters that others hold: of a connection of ours that the broker has not missed yet, and of consumers elsewhere."""

from typing import Final

import pytest

from tests.redrive.conftest import Shop
from tests.support.bulk import DEAD, pour
from tests.support.client import Client
from tests.support.eventually import consistently, eventually
from tests.support.vhost import cut

pytestmark = pytest.mark.usefixtures("newest")
N: Final = 60
HELD: Final = 40


def held_by(client: Client, queue: str) -> None:
    """A consumer that takes HELD letters at most, and settles none."""
    client.channel.basic_qos(prefetch_count=HELD)
    client.channel.basic_consume(queue, lambda *_: None)


def test_a_task_whose_connection_was_lost_is_not_done_while_another_still_holds_letters(shop: Shop) -> None:
    """The broker keeps what a dead connection had until it misses heartbeats; the task was done at once."""
    queue = shop.failed("ghost.a", ["0"])
    pour(shop.amqp, queue, [str(number) for number in range(1, N)], DEAD)
    shop.amqp.queue("ghost.mended")
    task = shop.start(queue, rate=2, to={"routing_key": "ghost.mended"})
    eventually(lambda: shop.task(task)["counts"]["sent"] > 0, 20)
    with Client(shop.vhost.amqp_url) as ghost:
        held_by(ghost, queue)
        cut(shop.vhost, "redrive consume")
        assert eventually(lambda: shop.task(task)["why"].startswith("interrupted: "))
        assert consistently(lambda: shop.task(task)["state"] == "running")
    done = shop.ends(task, within=60)
    assert done["why"] == ""
    eventually(lambda: shop.amqp.depth(queue) == 0)
    assert shop.amqp.depth("ghost.mended") >= N


def test_who_consumes_the_queue_meanwhile_is_told_of(shop: Shop) -> None:
    queue = shop.failed("beside.a", [str(number) for number in range(N)])
    with Client(shop.vhost.amqp_url) as consumer:
        held_by(consumer, queue)
        eventually(lambda: shop.amqp.depth(queue) == N - HELD)
        done = shop.ends(shop.start(queue, not_a_dead_letter_queue=True))
    assert (done["counts"]["sent"], done["why"]) == (
        N - HELD,
        "others consume the queue (1), and may hold letters of it",
    )
