"""An ack counts once the broker has read it: what a killed router sends twice has a bound."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final
from urllib.parse import urlsplit

import pytest

from tests.redrive.conftest import Shop
from tests.support.bulk import DEAD, pour, take_many
from tests.support.client import Client
from tests.support.eventually import eventually
from tests.support.policies import POLICY
from tests.support.proxy import Proxy
from tests.support.router import Router
from tests.support.vhost import Vhost

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

Start = Callable[..., Router]
LETTERS: Final = 4000
TWICE: Final = 1000  # docs/redrive.md ("What a task promises")
FILTER: Final = 'reason == "rejected"'


@pytest.fixture
def line(vhost: Vhost) -> Iterator[Proxy]:
    port = urlsplit(vhost.amqp_url).port
    assert port
    with Proxy(port, frames=True) as proxy:
        yield proxy


@pytest.mark.usefixtures("newest")
@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_router_whose_acks_are_not_read_sends_1000_messages_more_and_says_what_it_waits_for(
    vhost: Vhost, amqp: Client, line: Proxy, start_router: Start, kind: str
) -> None:
    url = urlsplit(vhost.amqp_url)._replace(netloc=f"guest:guest@127.0.0.1:{line.port}").geturl()
    shop = Shop(vhost, amqp, start_router(POLICY, AMQP_URL=url, HEARTBEAT="60"))
    amqp.queue("work")
    queue = amqp.queue("source", kind)
    pour(amqp, queue, map(str, range(LETTERS)), DEAD)
    asked = {"filter": FILTER, "to": {"routing_key": "work"}, "not_a_dead_letter_queue": True}
    task = shop.start(queue, rate=200, **asked)
    eventually(lambda: amqp.depth("work") > 0, 30)
    line.hold("redrive consume")
    eventually(lambda: "acks" in shop.task(task)["why"] or shop.task(task)["state"] == "done", 60)
    assert "the broker has not read" in shop.task(task)["why"]
    shop.router.kill()
    line.cut()
    line.heal()
    shop.router.start()
    assert shop.ends_led(task, 120)["state"] == "done"
    copies = Counter(message.body for message in take_many(amqp, "work", amqp.depth("work"), 60))
    assert len(copies) == LETTERS
    assert sum(copies.values()) - LETTERS <= TWICE
