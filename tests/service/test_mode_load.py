"""Limits under load: 1,000 messages a second towards a consumer that takes half of them, in both modes.

DLX_ROUTER_TEST_LOAD_S=60 is the whole measurement; without it a few seconds show the same law.
"""

import os
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import Final

import pika
import pytest

from tests.support.client import Client
from tests.support.eventually import eventually
from tests.support.scene import Scene

pytestmark = pytest.mark.usefixtures("newest")  # what depends on the version is in the other tests of this folder

SECONDS: Final = float(os.environ.get("DLX_ROUTER_TEST_LOAD_S", "3"))
RATE: Final = 1000
SLACK_S: Final = 20.0
ATTACHED: Final = ("long.in", "old.in", "guard.long", "guard.old")
POLICIES: Final = """
version: 1
attachments:
  - {queue: long.in, mode: relay, forward-to: {exchange: "", routing-key: "long.out"}}
  - {queue: old.in, mode: relay, forward-to: {exchange: "", routing-key: "old.out"}}
  - {queue: guard.long, mode: guard}
  - {queue: guard.old, mode: guard}
policies:
  - {name: dlqs, match: "#", definition: {dead-letter-queue-type: classic}}
  - {name: long, queue: long.in, definition: {max-length: 500}}
  - {name: old, queue: old.in, definition: {message-ttl: 1s, ordering: fifo}}
  - {name: guard.long, queue: guard.long, definition: {max-length: 500}}
  - {name: guard.old, queue: guard.old, definition: {message-ttl: 1s, trust-timestamp: true}}
"""


@dataclass
class Flow:
    """A producer and a slow consumer; `depths` are (s since the start, ready messages) of `source`."""

    url: str
    source: str
    taken_from: str
    sent: int = 0
    taken: list[int] = field(default_factory=list)
    ages_s: list[float] = field(default_factory=list)
    depths: list[tuple[float, int]] = field(default_factory=list)
    stop: Event = field(default_factory=Event)

    def run(self) -> None:
        consumer, sampler = Thread(target=self._consume), Thread(target=self._sample)
        consumer.start()
        sampler.start()
        self._produce()
        self.stop.set()
        consumer.join()
        sampler.join()

    def _paced(self, rate: int) -> Iterator[int]:
        began, n = time.monotonic(), 0
        while time.monotonic() < began + SECONDS and not self.stop.is_set():
            if n < (time.monotonic() - began) * rate:
                yield n
                n += 1
            else:
                time.sleep(0.002)

    def _produce(self) -> None:
        with Client(self.url) as client:
            channel = client.connection.channel()
            for n in self._paced(RATE):
                now = time.time()
                sent = pika.BasicProperties(delivery_mode=2, timestamp=int(now))
                channel.basic_publish("", self.source, f"{n} {now}".encode(), sent)
                self.sent = n + 1

    def _consume(self) -> None:
        with Client(self.url) as client:
            channel = client.connection.channel()
            channel.basic_qos(prefetch_count=1)
            pace = self._paced(RATE // 2)
            for method, _, body in channel.consume(self.taken_from, inactivity_timeout=0.02):
                if method is not None:
                    n, sent_s = body.split()
                    self.taken.append(int(n))
                    self.ages_s.append(time.time() - float(sent_s))
                    channel.basic_ack(method.delivery_tag)
                    next(pace, None)
                if self.stop.is_set():
                    break
            channel.cancel()

    def _sample(self) -> None:
        with Client(self.url) as client:
            began = time.monotonic()
            while not self.stop.wait(0.1):
                self.depths.append((time.monotonic() - began, client.depth(self.source)))

    @property
    def late(self) -> int:
        """How many were taken after one that was sent later."""
        return sum(other < number for number, other in zip(self.taken, self.taken[1:], strict=False))

    def tell(self, late: int) -> None:
        """What was measured, for who runs this alone."""
        over = max((depth for _, depth in self.depths), default=0)
        summary = f"{self.source}: {self.sent} sent, {len(self.taken)} taken, {late} late, at most {over} waited, "
        sys.stdout.write(f"{summary}oldest taken {max(self.ages_s):.1f} s\n")

    def longest_over(self, limit: int) -> float:
        """For how long at most (s) the source was longer than that, and than what comes between two looks."""
        longest, since = 0.0, None
        for at, depth in self.depths:
            since = (at if since is None else since) if depth > limit + RATE // 4 else None
            longest = max(longest, 0.0 if since is None else at - since)
        return longest


def everything(scene: Scene, *queues: str) -> list[int]:
    """The numbers of all messages that are still somewhere."""
    numbers = []
    for queue in queues:
        while (message := scene.amqp.get(queue)) is not None:
            numbers.append(int(message.ack().body.split()[0]))
    return numbers


def at_rest(scene: Scene, flow: Flow, *queues: str) -> list[int]:
    """What is left when all are accounted for."""
    left: list[int] = []

    def accounted() -> bool:
        left.extend(everything(scene, *(queue for queue in queues if scene.amqp.exists(queue))))
        assert len(left) + len(flow.taken) >= flow.sent, f"{len(left)} + {len(flow.taken)} of {flow.sent}"
        return True

    eventually(accounted, within=30)
    return left


@pytest.mark.slow
@pytest.mark.parametrize("name", ["long", "old"])
def test_a_relay_keeps_its_limit_and_its_order(name: str, scene: Scene) -> None:
    scene.amqp.queue(f"{name}.out", max_length=50, overflow="reject-publish")
    flow = Flow(scene.vhost.amqp_url, f"{name}.in", f"{name}.out")
    flow.run()
    flow.tell(flow.late)
    assert len(flow.taken) == len(set(flow.taken)), "each survivor once"
    assert flow.late <= (0 if name == "old" else 8), "in order; without fifo but for those on their way when it began"
    assert len(flow.taken) > flow.sent / 50
    if name == "long":
        assert flow.longest_over(500) <= SLACK_S
    else:
        assert max(flow.ages_s) <= 1.0 + SLACK_S
    left = at_rest(scene, flow, f"DLQ.{name}.in", f"{name}.out")
    assert sorted([*flow.taken, *left]) == list(range(flow.sent)), "none lost, none twice"


@pytest.mark.parametrize("name", ["long", "old"])
def test_a_guard_keeps_the_limit_of_a_queue_that_others_consume(name: str, scene: Scene) -> None:
    queue = f"guard.{name}"
    flow = Flow(scene.vhost.amqp_url, queue, queue)
    flow.run()
    looks = scene.router.metric("given_back_total", cause="probe")
    flow.tell(flow.late)
    assert len(flow.taken) == len(set(flow.taken)), "each survivor once"
    assert flow.late <= min(looks, SECONDS), "in order, but for one message at a look"
    if name == "long":
        assert flow.longest_over(500) <= SLACK_S
    else:
        assert max(flow.ages_s) <= 1.0 + 1.0 + SLACK_S, "a producer's stamp has whole seconds"
    left = at_rest(scene, flow, f"DLQ.{queue}", queue)
    assert sorted([*flow.taken, *left]) == list(range(flow.sent)), "none lost, none twice"
