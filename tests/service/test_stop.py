"""A stop where the broker lets nothing end: it takes no longer than the grace that is shipped, so nobody is killed."""

import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import pytest
import yaml

from dlx_router.config.environment.settings import Settings
from dlx_router.service.app import ENDS_S
from tests.docs.pages import ROOT
from tests.leases.conftest import Bench
from tests.redrive.conftest import Shop
from tests.support.bulk import bodies, take_many
from tests.support.client import Client, Message
from tests.support.eventually import consistently, eventually
from tests.support.policies import POLICY
from tests.support.proxy import Proxy
from tests.support.router import Router
from tests.support.vhost import Vhost
from tools import brokers

Start = Callable[..., Router]
DRAIN_S: Final = 5
N: Final = 300
LETTERS: Final = {f"{number}" for number in range(N)}
DEAD: Final = "version: 1\npolicies: [{name: all, match: '#', definition: {max-delivery-attempts: 1}}]\n"
LINED: Final = DEAD.replace("{max-", "{ordering: fifo, max-")
RELAYED: Final = """version: 1
attachments: [{queue: line, mode: relay, forward-to: {exchange: "", routing-key: out}}]
policies: [{name: all, queue: line, definition: {}}]
"""
FIFO: Final = "dlx-router.inbox.fifo"
ENDS: Final = {(10, 51), (20, 41), (60, 31), (60, 80)}  # close-ok of connection and channel, cancel-ok, ack


def at_work(vhost: Vhost, amqp: Client, router: Router) -> None:
    """A redrive of DLQ.work, and leases of DLQ.leased."""
    bench, shop = Bench(vhost, amqp, router), Shop(vhost, amqp, router)
    assert len(bench.receive(bench.failed("leased", ["a", "b"], "quorum"), max=2, visibility="10m")) == 2
    task = shop.start(shop.failed("work", sorted(LETTERS)), rate=20)
    eventually(lambda: shop.task(task)["counts"]["sent"] >= 10, 20, every=0.1)


def is_stopped_in_time(router: Router) -> None:
    """By SIGTERM, once: whoever has to be killed is too late."""
    began = time.monotonic()
    router.signal(signal.SIGTERM)
    eventually(lambda: not router.running, within=DRAIN_S + 60, every=0.1)
    assert time.monotonic() - began < DRAIN_S + 10 * ENDS_S, router.output[-3000:]


def left(amqp: Client, queue: str) -> list[Message]:
    return take_many(amqp, queue, amqp.depth(queue)) if amqp.exists(queue) else []


@contextmanager
def alarmed(node: brokers.Node) -> Iterator[None]:
    """The broker blocks who publishes, until the end of the block."""
    node.rabbitmqctl("set_vm_memory_high_watermark", "0.0")
    try:
        yield
    finally:
        node.rabbitmqctl("set_vm_memory_high_watermark", "absolute", "1GB")


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_behind_an_alarm_a_stop_gives_back_what_tasks_and_leases_hold_and_ends_in_time(
    own_broker: brokers.Node, start_router: Start, request: pytest.FixtureRequest
) -> None:
    """What goes back by nack is no failed delivery on 4.3; a connection that is lost would be one."""
    own_broker.start()
    vhost = Vhost.make(own_broker, "alarmed")
    request.addfinalizer(vhost.close)
    urls = {"AMQP_URL": vhost.amqp_url, "MANAGEMENT_URL": vhost.management_url}
    with Client(vhost.amqp_url) as amqp:
        router = start_router(POLICY, **urls, DRAIN_SECONDS=str(DRAIN_S))
        at_work(vhost, amqp, router)
        with alarmed(own_broker):
            eventually(lambda: "the broker blocks publishers" in router.ask("/readyz")[1], within=40)
            is_stopped_in_time(router)
    with Client(vhost.amqp_url) as amqp:
        eventually(lambda: amqp.depth("DLQ.leased") == 2)
        kept = [*left(amqp, "DLQ.work"), *left(amqp, "DLQ.leased")]
        assert {*bodies([*kept, *left(amqp, "work")])} == LETTERS | {"a", "b"}
        assert [letter.body for letter in kept if "x-delivery-count" in letter.headers] == []


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
@pytest.mark.parametrize("answers", ["nothing", "only what tells that it lives"])
def test_a_broker_that_does_not_answer_keeps_no_router_from_ending(
    vhost: Vhost, amqp: Client, start_router: Start, answers: str
) -> None:
    parts = urlsplit(vhost.amqp_url)
    with Proxy(parts.port or 0, frames=True) as proxy:
        url = parts._replace(netloc=f"guest:guest@127.0.0.1:{proxy.port}").geturl()
        router = start_router(POLICY, AMQP_URL=url, DRAIN_SECONDS=str(DRAIN_S))
        at_work(vhost, amqp, router)
        if answers == "nothing":
            proxy.stall()
        else:
            proxy.unanswered |= ENDS
        is_stopped_in_time(router)
    eventually(lambda: amqp.depth("DLQ.leased") == 2)
    eventually(lambda: amqp.depth("DLQ.work") + amqp.depth("work") >= N)
    assert {*bodies([*left(amqp, "DLQ.work"), *left(amqp, "work")])} == LETTERS


def test_what_comes_before_the_broker_knows_of_a_stop_is_settled_by_it(
    vhost: Vhost, amqp: Client, start_router: Start
) -> None:
    """Nothing was in flight, so the drain was over at once; two letters of a rolling update went out twice."""
    parts = urlsplit(vhost.amqp_url)
    amqp.queue("work", "quorum", dead_letter_exchange="dlx-router.inbox", message_ttl=0)
    with Proxy(parts.port or 0, frames=True) as proxy:
        url = parts._replace(netloc=f"guest:guest@127.0.0.1:{proxy.port}").geturl()
        router = start_router(DEAD, AMQP_URL=url)
        proxy.hold("consume")
        router.signal(signal.SIGTERM)
        eventually(lambda: "draining" in router.ask("/readyz")[1])
        for number in range(20):
            amqp.publish(f"{number}", key="work")
        eventually(lambda: amqp.exists("DLQ.work") and amqp.depth("DLQ.work") == 20)
        proxy.heal()
        eventually(lambda: not router.running)
        assert router.exit_code == 0, router.output[-3000:]
    assert amqp.depth("dlx-router.inbox") == 0
    assert consistently(lambda: amqp.depth("DLQ.work") == 20, for_s=0.5)


@pytest.mark.parametrize(
    ("policies", "source", "target"), [(LINED, FIFO, "DLQ.line"), (RELAYED, "line", "out")], ids=["inbox", "relay"]
)
def test_the_next_router_overtakes_no_letter_of_the_one_that_stops(  # noqa: PLR0917 - fixtures and parameters
    vhost: Vhost, amqp: Client, start_router: Start, tmp_path: Path, policies: str, source: str, target: str
) -> None:
    """What is in order has one consumer at a time. Cancelled, it made way at once, though a letter was under way."""
    (tmp_path / "key").write_bytes(os.urandom(32))
    shared, parts = {"PROVENANCE_KEY_FILE": str(tmp_path / "key")}, urlsplit(vhost.amqp_url)
    if source == FIFO:
        amqp.queue("line", "quorum", dead_letter_exchange=FIFO, message_ttl=0)
    else:
        amqp.queue("line", single_active_consumer=True)
        amqp.queue(target)
    with Proxy(parts.port or 0, frames=True) as proxy:
        url = parts._replace(netloc=f"guest:guest@127.0.0.1:{proxy.port}").geturl()
        first = start_router(policies, AMQP_URL=url, **shared)
        amqp.publish("0", key="line")
        eventually(lambda: amqp.exists(target) and amqp.depth(target) == 1)
        second = start_router(policies, **shared)
        proxy.hold("publish")
        for number in range(1, 41):
            amqp.publish(f"{number}", key="line")
        eventually(lambda: first.metric("deliveries_total", source=source) >= 2)
        first.signal(signal.SIGTERM)
        eventually(lambda: "draining" in first.ask("/readyz")[1])
        assert consistently(lambda: amqp.depth(target) == 1, for_s=1)
        assert second.metric("deliveries_total", source=source) == 0
        proxy.heal()
        eventually(lambda: not first.running)
        assert first.exit_code == 0, first.output[-3000:]
    assert [int(letter.body) for letter in take_many(amqp, target, 41)] == [*range(41)]
    assert second.metric("deliveries_total", source=source) > 0


def test_a_stop_fits_into_the_grace_that_is_shipped() -> None:
    lasts_s = Settings.model_fields["drain_seconds"].default + ENDS_S
    values = yaml.safe_load((ROOT / "charts/dlx-router/values.yaml").read_text(encoding="utf-8"))
    assert values["settings"]["drainSeconds"] + ENDS_S <= values["terminationGracePeriodSeconds"]
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
    assert lasts_s <= int(compose["services"]["router"]["stop_grace_period"].removesuffix("s"))
    (told,) = re.findall(
        r"the whole stop ends at most (\d+) s later", (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    )
    assert int(told) == ENDS_S
