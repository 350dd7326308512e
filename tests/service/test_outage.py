"""Outage: while everything dies at a queue its letters wait; none is parked or dead, none uses up its attempts."""

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import pytest

from dlx_router.config.policy_files.loader import load_policies
from dlx_router.core.decision import decide
from dlx_router.core.outcome import Hold, Retry
from dlx_router.journal.events import KIND_OF
from dlx_router.journal.replay import letter_of, verdict_of
from tests.journal.stream import events
from tests.support.bulk import INBOX, PARKING
from tests.support.client import Client
from tests.support.eventually import eventually
from tests.support.router import Router
from tests.support.vhost import Vhost

pytestmark = pytest.mark.usefixtures("newest")  # what it shows is the same on every version

LETTERS: Final = 200
POLICY: Final = """
version: 1
policies:
  - name: shop
    queue: shop
    definition:
      max-delivery-attempts: 5
"""


@dataclass
class Consumer:
    """Rejects all until it is healed; then acks. Says how often each message came, and when the last failed."""

    url: str
    healed: threading.Event = field(default_factory=threading.Event)
    stopped: threading.Event = field(default_factory=threading.Event)
    failed: Counter[bytes] = field(default_factory=Counter)
    done: Counter[bytes] = field(default_factory=Counter)

    def run(self) -> None:
        with Client(self.url) as client:
            client.channel.basic_qos(prefetch_count=10)
            for method, _, body in client.channel.consume("shop", inactivity_timeout=0.1):
                if self.stopped.is_set():
                    return
                if method is None:
                    continue
                if self.healed.is_set():
                    client.channel.basic_ack(method.delivery_tag)
                    self.done[body] += 1
                else:
                    client.channel.basic_reject(method.delivery_tag, requeue=False)
                    self.failed[body] += 1


def outage(amqp: Client, vhost: Vhost, start_router: Callable[..., Router], probe_s: int, heals_after_s: float) -> None:
    """200 letters, a consumer that is down for a while: all are done in the end, none used up what it has."""
    amqp.queue("shop", dead_letter_exchange=INBOX)
    rule = f"      outage: {{deaths: 50, within: 10s, probe-every: {probe_s}s}}\n"
    router = start_router(POLICY + rule)
    with consuming(amqp, vhost) as consumer:
        eventually(lambda: router.metric("breaker_state", queue="shop") == 2, within=30)
        consumer.healed.wait(heals_after_s)
        consumer.healed.set()
        eventually(lambda: len(consumer.done) == LETTERS, within=150, every=0.25)
        eventually(lambda: router.metric("breaker_state", queue="shop") == 0, within=30, every=0.25)
    assert set(consumer.done.values()) == {1}
    assert amqp.depth(PARKING) == 0
    law(events(vhost.amqp_url), router, most_probes=int(heals_after_s / probe_s) + 2)


def law(journaled: list[dict[str, Any]], router: Router, *, most_probes: int) -> None:
    assert {event["kind"] for event in journaled} <= {"retried", "held", "released"}
    assert max(event["attempts"] for event in journaled) <= 2
    assert 1 <= sum(event.get("breaker") == "probe" for event in journaled) <= most_probes
    policies = load_policies(router.policies).policies
    for event in journaled:
        if event["kind"] in {"retried", "held"}:
            policy = policies.resolve(vhost=event["vhost"], queue="shop", reason=event["reason"], queue_type=None)
            again = decide(letter_of(event), policy, event["ts_ms"], 0.0, partial(verdict_of, event))
            due_ms = event["due_ms"] if event["kind"] == "held" else event["ts_ms"]
            assert isinstance(again, Retry | Hold)
            assert (KIND_OF[again.action], again.due_ms, again.attempts) == (event["kind"], due_ms, event["attempts"])


@contextmanager
def consuming(amqp: Client, vhost: Vhost) -> Iterator[Consumer]:
    for number in range(LETTERS):
        amqp.publish(str(number), key="shop")
    consumer = Consumer(vhost.amqp_url)
    thread = threading.Thread(target=consumer.run)
    thread.start()
    try:
        yield consumer
    finally:
        consumer.stopped.set()
        thread.join(30)


@pytest.mark.slow
def test_an_outage_uses_no_attempts(amqp: Client, vhost: Vhost, start_router: Callable[..., Router]) -> None:
    outage(amqp, vhost, start_router, probe_s=1, heals_after_s=5)


def test_without_outage_the_same_letters_are_dead(
    amqp: Client, vhost: Vhost, start_router: Callable[..., Router]
) -> None:
    amqp.queue("shop", dead_letter_exchange=INBOX)
    start_router(POLICY)
    with consuming(amqp, vhost):
        eventually(lambda: amqp.exists("DLQ.shop") and amqp.depth("DLQ.shop") >= 190, within=50, every=0.25)
