"""The management API is away as a queue is begun: what it is, is asked for until it is told, and holds from then on."""

import uuid
from collections.abc import Callable, Iterator
from typing import Final
from urllib.parse import urlsplit

import pytest

from tests.support.bulk import INBOX, PARKING, QUARANTINE, record
from tests.support.client import Client
from tests.support.eventually import consistently, eventually
from tests.support.native import Native
from tests.support.proxy import Proxy
from tests.support.router import Router
from tests.support.vhost import Vhost

Start = Callable[..., Router]
UNKNOWN: Final = "its type and delivery limit are not verified"
STRICT = """
version: 1
policies: [{name: strict, queue: source, definition: {ordering: fifo}}]
attachments:
  - {queue: source, mode: relay, forward-to: {exchange: "", routing-key: full}, accept-delivery-limit: true}
"""


@pytest.fixture
def api(vhost: Vhost) -> Iterator[Proxy]:
    """What stands before the management API, and lets nobody in."""
    port = urlsplit(vhost.management_url).port
    assert port
    with Proxy(port) as proxy:
        proxy.refuse()
        yield proxy


@pytest.fixture
def behind(api: Proxy, vhost: Vhost) -> str:
    """The API's URL for the router."""
    place = urlsplit(vhost.management_url)
    return place._replace(netloc=f"guest:guest@127.0.0.1:{api.port}").geturl()


def consumers(amqp: Client) -> int:
    return int(amqp.channel.queue_declare("source", passive=True).method.consumer_count)


def says(router: Router, text: str, status: int) -> bool:
    answer = router.ask("/readyz")
    return answer[0] == status and text in answer[1]


def test_what_the_next_returns_would_delete_is_parked_once_the_limit_is_told(
    amqp: Client, api: Proxy, behind: str, start_router: Start
) -> None:
    amqp.queue("source", "quorum", delivery_limit=5)
    amqp.queue("full", max_length=1, overflow="reject-publish")
    amqp.publish("first", key="full")
    amqp.publish("near", key="source")
    for _ in range(2):
        amqp.await_message("source").put_back()
    router = start_router(STRICT, MANAGEMENT_URL=behind)
    eventually(lambda: router.metric("publish_refused_total", cause="nacked") > 1)
    assert says(router, UNKNOWN, 200)
    assert amqp.depth(PARKING) == 0
    api.heal()
    parked = amqp.take(PARKING, within=20)
    assert (parked.body, record(parked)["cause"]) == (b"near", "attempts_spent")
    eventually(lambda: says(router, "", 200) and not says(router, UNKNOWN, 200))
    assert consumers(amqp) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "mode", ["{queue: source}", "{queue: source, mode: relay, forward-to: {exchange: amq.fanout}}"]
)
@pytest.mark.usefixtures("newest")
def test_a_queue_that_must_not_be_attended_is_left_once_that_is_told_and_not_taken_again(
    mode: str, amqp: Client, api: Proxy, behind: str, start_router: Start
) -> None:
    amqp.queue("source", "quorum", delivery_limit=20)
    router = start_router(f"version: 1\nattachments: [{mode}]\n", MANAGEMENT_URL=behind)
    assert says(router, UNKNOWN, 200)
    assert consumers(amqp) == 1
    api.heal()
    eventually(lambda: says(router, "DLX208", 200) and consumers(amqp) == 0, within=120)
    api.refuse()
    assert consistently(lambda: says(router, "DLX208", 200) and consumers(amqp) == 0, for_s=3)


def test_a_look_after_a_crash_deletes_nothing_where_the_limit_was_told_late(
    amqp: Client, vhost: Vhost, api: Proxy, behind: str, start_router: Start
) -> None:
    """What crashed RabbitMQ lies elsewhere. The crash is a return before 4.3, and so is a look by AMQP 1.0."""
    if not vhost.broker.version.startswith("4.0"):
        pytest.skip("a look is a return on 4.0 to 4.2 only")
    amqp.queue("source", "quorum", delivery_limit=1)
    amqp.queue("full", max_length=1, overflow="reject-publish")
    for number in range(5):
        amqp.publish(str(number), key="source")
    amqp.publish("first", key="full")
    router = start_router(STRICT, MANAGEMENT_URL=behind)
    eventually(lambda: amqp.depth("source") == 0)
    assert says(router, UNKNOWN, 200)
    api.heal()
    eventually(lambda: not says(router, UNKNOWN, 200))
    with Native(vhost) as native:
        native.publish(INBOX, [{"properties": {"id": uuid.uuid4()}}])
    eventually(lambda: amqp.depth(QUARANTINE) == 1, within=20)
    eventually(lambda: amqp.depth(PARKING) == 5, within=30)
    assert "queue.not_searched" in router.output
