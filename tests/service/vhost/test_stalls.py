"""A consumer that stands still: the broker counts messages as ready and delivers none, and says nothing about it."""

import itertools
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import urlsplit

import pytest

from dlx_router.broker.consumer import Consumer
from dlx_router.broker.topology import TopologyError
from dlx_router.core.names import Names
from dlx_router.service.sources.consumers import Consumers
from dlx_router.service.vhost.stalls import MOST, Stalls
from dlx_router.telemetry.metrics import Metrics
from dlx_router.telemetry.readiness import Readiness
from tests.support.bulk import DEAD, INBOX, PARKING, pour, rests
from tests.support.client import Client
from tests.support.eventually import consistently, eventually
from tests.support.proxy import Proxy
from tests.support.router import Router
from tests.support.vhost import Vhost

Start = Callable[..., Router]

NONE = "version: 1\npolicies: []\n"
ATTACHED = "version: 1\npolicies: []\nattachments: [{queue: mine, dead-letter-exchanges: ''}]\n"
RESUBSCRIBED = "consumer_resubscriptions_total"
RETRIED = """
version: 1
policies: [{name: shop, queue: shop, definition: {max-delivery-attempts: 5, redelivery-delay: 100ms}}]
"""
BIND_OK = (50, 21)


@pytest.fixture
def line(vhost: Vhost) -> Iterator[Proxy]:
    port = urlsplit(vhost.amqp_url).port
    assert port
    with Proxy(port, frames=True) as proxy:
        yield proxy


@pytest.fixture
def behind(line: Proxy, vhost: Vhost) -> dict[str, str]:
    """Settings of a router that reaches its broker by the line, and may hold few letters."""
    place = urlsplit(vhost.amqp_url)
    url = place._replace(netloc=f"guest:guest@127.0.0.1:{line.port}").geturl()
    return {"AMQP_URL": url, "PREFETCH": "10"}


def numbered(count: int) -> list[str]:
    return [str(number) for number in range(count)]


@pytest.mark.slow
def test_an_inbox_that_is_not_delivered_is_subscribed_anew(
    amqp: Client, line: Proxy, behind: dict[str, str], start_router: Start
) -> None:
    router = start_router(NONE, **behind)
    line.swallow_deliveries("consume")
    pour(amqp, INBOX, numbered(50), DEAD)
    eventually(lambda: router.ask("/readyz")[0] == 503 and INBOX in router.ask("/readyz")[1], within=15)
    assert router.metric("messages_ready", queue=INBOX) == 40
    eventually(lambda: amqp.depth(PARKING) == 50, within=15)
    router.await_ready()
    assert router.metric(RESUBSCRIBED, queue=INBOX, reason="not_delivered") == 1
    assert "consumer.resubscribed" in router.output
    assert "session.ended" not in router.output
    eventually(lambda: router.metric("messages_ready", queue=INBOX) == 0)
    rests(router)


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_where_that_does_not_help_the_connection_is_made_anew(
    amqp: Client, line: Proxy, behind: dict[str, str], start_router: Start
) -> None:
    router = start_router(NONE, **behind)
    line.swallow_deliveries("consume", for_good=True)
    pour(amqp, INBOX, numbered(50), DEAD)
    eventually(lambda: router.metric(RESUBSCRIBED, queue=INBOX, reason="not_delivered") == 1, within=15)
    consistently(lambda: router.ask("/readyz")[0] == 503, for_s=3)
    eventually(lambda: amqp.depth(PARKING) == 50, within=20)
    router.await_ready()
    assert router.output.count("session.ended") == 1
    assert router.metric(RESUBSCRIBED, queue=INBOX, reason="connection") == 1


@pytest.mark.slow
def test_who_waits_for_others_does_not_stand_still(amqp: Client, start_router: Start) -> None:
    """All that may be here is here; somebody else is the single active consumer."""
    amqp.queue("mine", single_active_consumer=True)
    amqp.channel.basic_qos(prefetch_count=1)
    amqp.channel.basic_consume("mine", lambda *_: None)
    router = start_router(ATTACHED, PREFETCH="5")
    pour(amqp, "mine", numbered(20), DEAD)
    consistently(lambda: router.ask("/readyz")[0] == 200, for_s=12)
    assert router.metric(RESUBSCRIBED) == 0


def test_two_thousand_quiet_queues_are_asked_about_in_turn_and_few_at_a_time() -> None:
    """Who delivers is not asked about; who delivers nothing has its turn within 90 s."""
    names, metrics = Names("dlx-router"), Metrics()
    consumers = Consumers("/", names, b"", metrics, lambda *_: None)
    made = [Consumer(None, f"q{at}", 10, sink=lambda *_: None, on_lost=lambda *_: None) for at in range(2000)]  # type: ignore[arg-type]  # nothing is sent
    consumers._consumers.update({consumer.queue: consumer for consumer in made})
    stalls = Stalls("/", names, (names.inbox,), metrics, Readiness())
    asked: set[str] = set()
    for _ in range(45):
        turn = stalls._asked(consumers)
        assert turn[0] == names.inbox
        assert len(turn) <= 1 + MOST
        asked |= {*turn}
    assert len(asked) == 2001


class Answers:
    """A broker whose answers are given: ready messages and consumers of the inbox; None: it is silent."""

    def __init__(self, answers: list[tuple[int, int] | None]) -> None:
        self._answers = iter(answers)

    async def censuses(self, queues: list[str]) -> dict[str, tuple[int, int]]:
        answer = next(self._answers)
        if answer is None:
            raise TopologyError("silent")
        return dict.fromkeys(queues, answer)


async def test_who_was_silent_and_delivers_nothing_is_not_ready_in_between() -> None:
    """A node without a majority answered once in half a minute: five seconds of 200 until it was seen to stand."""
    names, metrics, readiness = Names("dlx-router"), Metrics(), Readiness()
    readiness.clear("start")
    consumers = Consumers("/", names, b"", metrics, lambda *_: None)
    consumers.link = cast("Any", SimpleNamespace(rests=False, is_receiving=False))
    inbox = Consumer(cast("Any", None), names.inbox, 10, sink=lambda *_: None, on_lost=lambda *_: None)
    consumers._consumers[names.inbox] = inbox
    session = SimpleNamespace(vhost="/", consumers=consumers, resubscribe=lambda _: None, trouble=lambda _: None)
    clock = itertools.count(0.0, 2.0)
    stalls = Stalls("/", names, (names.inbox,), metrics, readiness, clock=lambda: next(clock))
    answers = Answers([(0, 1), None, (0, 0), (0, 0), (0, 0), (0, 0), (0, 1), (5, 1), None, (5, 1), (4, 1)])
    ready = []
    for at in range(11):
        inbox.last_tag = at // 10
        await stalls._look(session, cast("Any", answers))
        ready.append(readiness.ready)
    assert ready == [True, False, False, False, False, False, True, True, False, False, True]


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_a_session_begins_though_nothing_can_be_bound(
    amqp: Client, line: Proxy, behind: dict[str, str], start_router: Start
) -> None:
    """As on a cluster whose metadata has lost its leader: queues deliver, and who binds waits. All was there before."""
    amqp.queue("shop", dead_letter_exchange=INBOX)
    router = start_router(RETRIED, **behind)
    amqp.publish("first", key="shop")
    comes_back(amqp, "first")
    line.unanswered.add(BIND_OK)
    line.cut()
    amqp.publish("second", key="shop")
    comes_back(amqp, "second")
    pour(amqp, INBOX, numbered(50), DEAD)
    eventually(lambda: amqp.depth(PARKING) == 50, within=12)
    assert "topology.unconfirmed" in router.output
    line.unanswered.clear()
    line.cut()
    router.await_ready()


def comes_back(amqp: Client, body: str) -> None:
    """It is rejected once, and comes again by its way through a rung."""
    assert amqp.fail("shop").body == body.encode()
    assert amqp.take("shop", within=20).body == body.encode()
