"""A node that is frozen: its sockets stay, its kernel takes what is sent, and nobody answers."""

import os
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from urllib.parse import urlsplit

import pytest

from tests.support.bulk import DEAD, INBOX, PARKING, pour
from tests.support.client import Client
from tests.support.eventually import consistently, eventually
from tests.support.proxy import Proxy
from tests.support.router import Router
from tests.support.vhost import Vhost
from tools import brokers

pytestmark = pytest.mark.usefixtures("newest")  # the router's side: it is the same on every version
Start = Callable[..., Router]
NONE = "version: 1\npolicies: []\n"
NOTICED_S = 10.0


@pytest.fixture(scope="module")
def node(broker: brokers.Broker) -> Iterator[brokers.Node]:
    """One for all scenes here."""
    if not isinstance(broker, brokers.Node):
        pytest.skip("a broker that was given cannot be frozen")
    fresh = brokers.Node(broker.program)
    fresh.start()
    yield fresh
    fresh.close()


@pytest.fixture
def private(node: brokers.Node, request: pytest.FixtureRequest) -> Iterator[Vhost]:
    vhost = Vhost.make(node, re.sub(r"\W+", "-", request.node.name)[:40])
    yield vhost
    vhost.close()


@contextmanager
def freezing(node: brokers.Node) -> Iterator[None]:
    """SIGSTOP to all of the node's processes, SIGCONT at the end."""
    group = int((node.work / "groups").read_text(encoding="utf-8"))
    os.killpg(group, signal.SIGSTOP)
    try:
        yield
    finally:
        os.killpg(group, signal.SIGCONT)


def holds(amqp: Client, letters: int) -> bool:
    return amqp.depth(PARKING) == letters


def is_left(line: Proxy) -> bool:
    return not line.connections


def on(vhost: Vhost) -> dict[str, str]:
    return {"AMQP_URL": vhost.amqp_url, "MANAGEMENT_URL": vhost.management_url}


@pytest.mark.slow
def test_a_frozen_node_is_noticed_within_ten_seconds(node: brokers.Node, private: Vhost, start_router: Start) -> None:
    """By the settings that everybody has; and readiness says so for as long as it lasts."""
    router = start_router(NONE, **on(private))
    with freezing(node):
        eventually(lambda: router.ask("/readyz")[0] == 503, within=NOTICED_S)
        assert "does not answer" in router.ask("/readyz")[1]
        eventually(lambda: "no sign of life" in router.output, within=NOTICED_S)  # and all of the session is ended
        consistently(lambda: router.ask("/readyz")[0] == 503, for_s=3)
    router.await_ready(within=40)
    with Client(private.amqp_url) as amqp:
        pour(amqp, INBOX, ["after"], DEAD)
        eventually(lambda: amqp.depth(PARKING) == 1)


@pytest.mark.slow
def test_the_next_node_of_the_ring_takes_over(vhost: Vhost, amqp: Client, start_router: Start) -> None:
    """Two ways to one broker stand for two nodes; each is frozen in turn, and the router goes round."""
    port = urlsplit(vhost.amqp_url).port or 0
    with Proxy(port) as proxy, Proxy(port) as other:
        hosts = f"guest:guest@127.0.0.1:{proxy.port},127.0.0.1:{other.port}"
        router = start_router(NONE, AMQP_URL=urlsplit(vhost.amqp_url)._replace(netloc=hosts).geturl())
        for number in range(2):
            used, free = (proxy, other) if proxy.connections else (other, proxy)
            used.stall()
            eventually(lambda: router.ask("/readyz")[0] == 503, within=NOTICED_S)
            router.await_ready(within=20)
            assert free.connections > 0
            pour(amqp, INBOX, [str(number)], DEAD)
            eventually(partial(holds, amqp, number + 1))
            used.cut()
            used.heal()
            eventually(partial(is_left, used))
    assert router.output.count("broker.silent") >= 2
