"""Targets that refuse messages: how many copies there are in the end, and of which messages."""

import json
from collections import Counter
from collections.abc import Callable
from typing import Final

import pytest

from dlx_router.core.refusal import SEVERAL_MOST
from tests.support.bulk import INBOX, PARKING, dying_queue, every_body, pour, take_many
from tests.support.client import Client
from tests.support.eventually import consistently, eventually
from tests.support.router import Router
from tests.support.vhost import Vhost

Start = Callable[..., Router]
RETRY: Final = """
version: 1
policies:
  - {name: work, match: work, definition: {max-delivery-attempts: 5, redelivery-delay: 100ms, retry-on: %s}}
"""


def _parked(amqp: Client, count: int, within: float = 60) -> Counter[str]:
    """Causes of the parked messages, once there are so many; they stay."""
    eventually(lambda: amqp.depth(PARKING) >= count, within)
    messages = [amqp.get(PARKING) for _ in range(amqp.depth(PARKING))]
    causes = Counter(json.loads(message.headers["dlx-router"])["cause"] for message in messages if message)
    amqp.channel.basic_nack(0, multiple=True, requeue=True)
    return causes


@pytest.mark.parametrize("reasons", ["[rejected]", "[rejected, maxlen]"])
def test_a_queue_that_dead_letters_what_it_refuses_gets_few_copies(
    reasons: str, amqp: Client, start_router: Start
) -> None:
    amqp.queue("work", max_length=1, overflow="reject-publish-dlx", dead_letter_exchange=INBOX)
    router = start_router(RETRY % reasons)
    amqp.publish("letter", key="work")
    failing = amqp.await_message("work")
    amqp.publish("fills the queue", key="work")
    failing.reject()
    causes = _parked(amqp, 1, within=30)
    assert set(causes) == {"target_refused"}

    def copies() -> int:
        places = (PARKING, "DLQ.work", INBOX)
        return sum(amqp.depth(queue) for queue in places if amqp.exists(queue))

    eventually(lambda: router.metric("in_flight") == 0)
    assert consistently(lambda: copies() <= 3, for_s=5)
    assert amqp.depth("work") == 1


def test_a_healthy_queue_beside_a_full_one_gets_few_copies(amqp: Client, start_router: Start) -> None:
    amqp.exchange("dead", "fanout")
    for queue in (amqp.queue("healthy"), amqp.queue("full", max_length=1, overflow="reject-publish")):
        amqp.bind(queue, "dead")
    amqp.publish("fills the queue", key="full")
    start_router("{version: 1, policies: [{name: w, match: work, definition: {dead-letter-exchange: dead}}]}")
    pour(amqp, dying_queue(amqp, "work"), ["letter"])
    assert _parked(amqp, 1) == {"target_refused": 1}
    assert 1 <= amqp.depth("healthy") <= SEVERAL_MOST
    assert amqp.depth("full") == 1


def test_a_relay_beside_a_full_queue_makes_few_copies(amqp: Client, start_router: Start) -> None:
    amqp.exchange("out", "fanout")
    for queue in (amqp.queue("healthy"), amqp.queue("full", max_length=1, overflow="reject-publish")):
        amqp.bind(queue, "out")
    amqp.publish("fills the queue", key="full")
    amqp.queue("in")
    start_router("{version: 1, attachments: [{queue: in, mode: relay, forward-to: {exchange: out}}], policies: []}")
    amqp.publish("message", key="in")
    assert _parked(amqp, 1) == {"target_refused": 1}
    assert 1 <= amqp.depth("healthy") <= SEVERAL_MOST


def test_a_right_to_some_routing_keys_only_copies_nothing_that_is_parked(
    vhost: Vhost, amqp: Client, start_router: Start
) -> None:
    amqp.exchange("dead", "topic")
    amqp.bind(amqp.queue("healthy"), "dead", "work.allowed")
    router_user, name = f"router-{vhost.name}", "topic-permissions"
    with _user(vhost, router_user):
        vhost.put(f"{name}/{vhost.quoted}/{router_user}", {"exchange": "dead", "write": "allowed$", "read": ".*"})
        policy = '{version: 1, policies: [{name: w, match: "work.#", definition: {dead-letter-exchange: dead}}]}'
        url = vhost.amqp_url.replace("//guest:guest@", f"//{router_user}:secret@")
        router = start_router(policy, AMQP_URL=url, UNROUTABLE_GRACE="3s")
        for queue in ("work.allowed", "work.denied", "nobody"):
            dying_queue(amqp, queue)
        for number in range(10):
            pour(amqp, "work.denied", [f"denied-{number}-{n}" for n in range(5)])
            pour(amqp, "nobody", [f"parked-{number}-{n}" for n in range(5)])
            pour(amqp, "work.allowed", [f"allowed-{number}-{n}" for n in range(5)])
        eventually(lambda: router.metric("settled_total", action="park") >= 100, within=60)
        eventually(lambda: router.metric("in_flight") == 0)
        parked = Counter(message.body.decode() for message in take_many(amqp, PARKING, amqp.depth(PARKING)))
        assert len(parked) == 100
        assert set(parked.values()) == {1}, "each of them once"
        assert 50 <= amqp.depth("healthy") <= 60, "what was in flight at the first refusal may come twice"


def test_a_right_to_the_return_exchange_that_is_missing_is_noted(
    vhost: Vhost, amqp: Client, start_router: Start
) -> None:
    user = f"router-{vhost.name}"
    with _user(vhost, user, write=r"^(work|amq\.default|dlx-router\.(?!return).*)$"):
        url = vhost.amqp_url.replace("//guest:guest@", f"//{user}:secret@")
        router = start_router(RETRY % "[rejected]", AMQP_URL=url, UNROUTABLE_GRACE="0s")
        amqp.queue("work", dead_letter_exchange=INBOX)
        amqp.publish("letter", key="work")
        amqp.fail("work")
        assert _parked(amqp, 1) == {"forbidden": 1}
        assert router.says_ready(200, "no right to publish to exchange 'dlx-router.return'")


def test_a_small_target_gets_what_it_takes_and_the_rest_is_noted(amqp: Client, start_router: Start) -> None:
    """What was not sent climbed the ladder: most of it came minutes after there was room."""
    amqp.bind(amqp.queue("small", max_length=20, overflow="reject-publish"), amqp.exchange("dead", "fanout"))
    router = start_router("{version: 1, policies: [{name: w, match: work, definition: {dead-letter-exchange: dead}}]}")
    pour(amqp, dying_queue(amqp, "work"), [str(number) for number in range(400)])
    eventually(lambda: router.says_ready(200, "messages are deferred, because exchange 'dead' refuses them"))
    assert len(every_body(amqp, "small", 400, within=60)) == 400
    assert amqp.depth(PARKING) == 0


def test_the_limit_counts_the_dead_letter_queues_that_exist(vhost: Vhost, amqp: Client, start_router: Start) -> None:
    """It counted those that a session had created: after each restart there could be as many more."""
    policy = '{version: 1, policies: [{name: w, match: "work.#", definition: {max-delivery-attempts: 1}}]}'
    router = start_router(policy, MAX_DEAD_LETTER_QUEUES="2")
    for at in range(2):
        pour(amqp, dying_queue(amqp, f"work.{at}"), ["letter"])
        amqp.take(f"DLQ.work.{at}")
    router.stop()
    router.start()
    for at in range(4):
        pour(amqp, dying_queue(amqp, f"work.{at}"), ["letter"])
    assert _parked(amqp, 2) == {"unroutable": 2}
    assert [queue for queue in vhost.queues() if queue.startswith("DLQ.")] == ["DLQ.work.0", "DLQ.work.1"]
    for at in range(2):
        assert amqp.take(f"DLQ.work.{at}").body == b"letter"
    amqp.channel.queue_delete("DLQ.work.0")

    def there_is_room() -> bool:
        pour(amqp, "work.2", ["letter"])
        return amqp.exists("DLQ.work.2")

    eventually(there_is_room, within=60, every=1)


class _user:  # noqa: N801 - read as a function
    """A user with all rights but those to write elsewhere, as long as this context lasts."""

    def __init__(self, vhost: Vhost, name: str, *, write: str = ".*") -> None:
        self._vhost, self._name = vhost, name
        self._rights = {"configure": ".*", "write": write, "read": ".*"}

    def __enter__(self) -> None:
        self._vhost.put(f"users/{self._name}", {"password": "secret", "tags": ""})
        self._vhost.put(f"permissions/{self._vhost.quoted}/{self._name}", self._rights)

    def __exit__(self, *_: object) -> None:
        self._vhost.api.delete(f"users/{self._name}").raise_for_status()
