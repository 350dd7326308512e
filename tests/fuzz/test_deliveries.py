"""Hostile messages through a real router: each confirmed one lies in some queue in the end, and nothing stands still.

An ordinary publisher writes to an attached queue, and somebody with rights on the router's own exchanges to those. No
message makes the router begin a session anew: that would be a return for each letter that it holds.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

import pytest
from hypothesis import strategies as st

from tests.fuzz import hostile
from tests.fuzz.budget import LIMIT_S, fuzz
from tests.support.bulk import law_holds
from tests.support.client import Client
from tests.support.eventually import eventually
from tests.support.raw import RawClient
from tests.support.router import Router
from tests.support.vhost import Vhost

pytestmark = pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisWarning")  # that examples are large

Start = Callable[..., Router]

ATTACHED: Final = "fuzz.attached"
SECRET: Final = "fuzz.secret"
MESSAGES: Final = st.lists(hostile.headers.map(hostile.properties), min_size=1, max_size=12)
KEPT_APART: Final = {"dlx-router.state", "dlx-router.journal"}
OWN: Final = ("dlx-router.inbox", "dlx-router.declared", "dlx-router.release")
RSS_MB: Final = 300
POLICIES: Final = """
version: 1
attachments: [{queue: fuzz.attached, accept-delivery-limit: true}]
policies:
  - {name: attached, queue: fuzz.attached, definition: {dead-letter-exchange: fuzz.dead}}
  - {name: work, match: "fuzz.#", definition: {max-delivery-attempts: 2, redelivery-delay: 100ms}}
"""


class Publisher:
    """Publishes what may close its channel or connection; begins anew then, and counts what was confirmed."""

    def __init__(self, url: str) -> None:
        self._url, self._client = url, RawClient(url)
        self.confirmed = self.doubtful = 0

    def publish(self, exchange: str, key: str, properties: bytes) -> None:
        body = f"fuzz-{self.confirmed}".encode()
        try:
            self._client.publish(body, properties, exchange=exchange, key=key)
        except (AssertionError, OSError):  # the broker refused it
            self.doubtful += 1  # it may have taken it all the same
            self._client.close()
            self._client = RawClient(self._url)
        else:
            self.confirmed += 1

    def close(self) -> None:
        self._client.close()


@contextmanager
def _scene(vhost: Vhost, amqp: Client) -> Iterator[Publisher]:
    amqp.queue(ATTACHED, "quorum")
    amqp.queue("fuzz.work")
    amqp.queue(SECRET)
    amqp.exchange("fuzz.dead", "fanout")
    amqp.queue("fuzz.graves")
    amqp.bind("fuzz.graves", "fuzz.dead")
    amqp.exchange("fuzz.in", "fanout")  # where CC and BCC lead nowhere else
    amqp.bind(ATTACHED, "fuzz.in")
    publisher = Publisher(vhost.amqp_url)
    try:
        yield publisher
    finally:
        publisher.close()


def _all(vhost: Vhost, amqp: Client) -> dict[str, int]:
    """What lies in each; a queue for an answer, or of a wait that is over, goes while they are asked."""
    return {name: amqp.ready(name) or 0 for name in vhost.queues() if name not in KEPT_APART}


def _none_is_lost(vhost: Vhost, amqp: Client, router: Router, publisher: Publisher) -> bool:
    lies = {name: depth for name, depth in _all(vhost, amqp).items() if depth}
    sure, most = publisher.confirmed, publisher.confirmed + publisher.doubtful
    assert sure <= sum(lies.values()) <= most, f"{sure} were confirmed, {most} sent: {lies}"
    assert not {ATTACHED, *OWN} & lies.keys()
    assert router.metric("in_flight") == 0
    return True


def _well(router: Router) -> None:
    assert router.running, router.output[-2000:]
    status, text = router.ask("/readyz")
    assert status == 200, text
    assert "session.ended" not in router.output, router.output[-3000:]
    assert "Traceback" not in router.output, router.output[-3000:]
    assert router.metric("process_resident_memory_bytes") < RSS_MB << 20
    law_holds(router)


@pytest.mark.slow
@pytest.mark.timeout(LIMIT_S)
def test_a_hostile_publisher_at_an_attached_queue(vhost: Vhost, amqp: Client, start_router: Start) -> None:
    with _scene(vhost, amqp) as publisher:
        router = start_router(POLICIES)

        def check(messages: list[bytes]) -> None:
            for properties in messages:
                publisher.publish("fuzz.in", ATTACHED, properties)
            eventually(partial(_none_is_lost, vhost, amqp, router, publisher), 30)
            assert amqp.depth(SECRET) == 0
            _well(router)

        assert fuzz(check, MESSAGES, alone=False)


@pytest.mark.slow
@pytest.mark.timeout(LIMIT_S)
def test_a_hostile_writer_at_the_routers_own_exchanges(vhost: Vhost, amqp: Client, start_router: Start) -> None:
    with _scene(vhost, amqp) as publisher:
        router = start_router(POLICIES)

        def check(messages: list[bytes]) -> None:
            for at, properties in enumerate(messages):
                publisher.publish(OWN[at % len(OWN)], "fuzz.work", properties)
            eventually(partial(_none_is_lost, vhost, amqp, router, publisher), 30)
            _well(router)

        assert fuzz(check, MESSAGES, alone=False)
