"""Which queues are attended, in which mode, and which are refused and why."""

from collections.abc import Callable
from signal import SIGHUP
from typing import Any, Final

import pytest

from tests.support.bulk import PARKING, pour, record, take_many
from tests.support.client import Client
from tests.support.eventually import consistently, eventually
from tests.support.router import Router
from tests.support.vhost import Vhost

Start = Callable[..., Router]
POLICY: Final = """
version: 1
policies:
  - {name: all, match: "#", definition: {max-length: 5}}
attachments:
"""
ATTACHMENT: Final = {
    "guard": "  - {queue: source, mode: guard}",
    "relay": "  - {queue: source, mode: relay, forward-to: {exchange: amq.fanout}}",
    "inbox": "  - {queue: source}",
}


def reasons(router: Router) -> str:
    return router.ask("/readyz")[1]


def is_refused(router: Router, *words: str) -> bool:
    status, text = router.ask("/readyz")
    missing = [word for word in words if word not in text]
    assert status == 200, text  # the API and the console stay
    assert not missing, f"{missing} not in {text}"
    return True


def version(vhost: Vhost) -> tuple[int, ...]:
    return tuple(int(part) for part in vhost.get("overview")["rabbitmq_version"].split(".")[:2])


@pytest.mark.parametrize(
    ("mode", "kind", "arguments", "why"),
    [
        ("guard", "stream", {}, "it is a stream"),
        ("relay", "stream", {}, "it is a stream"),
        ("inbox", "stream", {}, "it is a stream"),
        ("guard", "classic", {"single_active_consumer": True}, "single active consumer"),
        ("guard", "classic", {"max_priority": 3}, "it is a priority queue"),
        ("relay", "classic", {"max_priority": 3}, "it is a priority queue"),
    ],
)
def test_a_queue_that_cannot_be_attended_so_is_refused_and_keeps_its_messages(
    mode: str, kind: str, arguments: dict[str, Any], why: str, amqp: Client, start_router: Start
) -> None:
    amqp.queue("source", kind, **arguments)
    if kind != "stream":
        pour(amqp, "source", (str(n) for n in range(10)))
    router = start_router(POLICY + ATTACHMENT[mode], wait=False)
    eventually(lambda: is_refused(router, "'source'", "DLX208", why), within=20)
    assert kind == "stream" or amqp.depth("source") == 10


@pytest.mark.parametrize("mode", ["relay", "inbox"])
def test_a_queue_that_deletes_after_some_returns_is_refused_until_that_is_accepted(
    mode: str, amqp: Client, start_router: Start
) -> None:
    amqp.queue("source", "quorum", delivery_limit=20)
    router = start_router(POLICY + ATTACHMENT[mode], wait=False)
    eventually(lambda: is_refused(router, "DLX208", "return number 21", "accept-delivery-limit: true"), within=20)
    router.close()
    accepted = ATTACHMENT[mode].replace("{queue: source", "{queue: source, accept-delivery-limit: true")
    start_router(POLICY + accepted)


@pytest.mark.parametrize("mode", ["relay", "inbox"])
def test_what_the_next_returns_would_delete_is_parked_and_not_given_back(
    mode: str, amqp: Client, start_router: Start
) -> None:
    amqp.queue("source", "quorum", delivery_limit=5)
    amqp.publish("near", key="source")
    for _ in range(2):
        amqp.await_message("source").put_back()
    accepted = ATTACHMENT[mode].replace("{queue: source", "{queue: source, accept-delivery-limit: true")
    start_router(POLICY + accepted)
    parked = amqp.take(PARKING)
    assert (parked.body, record(parked)["cause"]) == (b"near", "attempts_spent")


@pytest.mark.usefixtures("newest")
def test_a_relay_whose_exchange_is_missing_leaves_everything_where_it_is(amqp: Client, start_router: Start) -> None:
    amqp.queue("source")
    amqp.publish("hello", key="source")
    relay = ATTACHMENT["relay"].replace("amq.fanout", "work")
    router = start_router(POLICY + relay, wait=False)
    eventually(lambda: is_refused(router, "'work'", "does not exist"), within=20)
    assert amqp.depth("source") == 1
    amqp.exchange("work", "fanout")
    amqp.queue("out")
    amqp.bind("out", "work")
    assert amqp.take("out", within=20).body == b"hello"
    eventually(lambda: router.ask("/readyz")[0] == 200)


@pytest.mark.usefixtures("newest")
def test_two_routers_share_the_guard_and_one_of_them_works(
    vhost: Vhost, amqp: Client, start_router: Start, tmp_path: Any
) -> None:
    key = tmp_path / "key"
    key.write_text("a key of more than sixteen bytes")
    amqp.queue("source")
    routers = [start_router(POLICY + ATTACHMENT["guard"], PROVENANCE_KEY_FILE=str(key)) for _ in range(2)]
    eventually(lambda: "standing by" in "".join(map(reasons, routers)))
    pour(amqp, "source", (str(n) for n in range(30)))
    eventually(lambda: amqp.exists("DLQ.source") and amqp.depth("DLQ.source") == 25)
    assert consistently(lambda: amqp.depth("source") == 5)
    working = next(router for router in routers if "standing by" not in reasons(router))
    working.kill()
    other = next(router for router in routers if router is not working)
    eventually(lambda: "standing by" not in reasons(other), within=20)
    pour(amqp, "source", ["one more"])
    eventually(lambda: amqp.exists("DLQ.source") and amqp.depth("DLQ.source") == 26)


@pytest.mark.usefixtures("newest")
def test_attachments_come_change_and_go_while_the_router_runs(amqp: Client, start_router: Start) -> None:
    for queue in ("source", "full"):
        amqp.queue(queue)
    amqp.queue("out", max_length=1, overflow="reject-publish")
    amqp.bind("out", "amq.fanout")
    router = start_router(POLICY.replace("max-length: 5", "max-length: 1000") + ATTACHMENT["relay"])
    pour(amqp, "source", (str(n) for n in range(20)))
    eventually(lambda: amqp.depth("out") == 1)
    rewrite(router, POLICY + ATTACHMENT["guard"])
    eventually(lambda: amqp.exists("DLQ.source") and amqp.depth("source") == 5, within=20)
    assert [message.body for message in take_many(amqp, "source", 5)] == [b"15", b"16", b"17", b"18", b"19"]
    rewrite(router, POLICY.replace("attachments:", ""))
    pour(amqp, "source", (str(n) for n in range(20)))
    eventually(lambda: amqp.depth("source") == 20)
    assert consistently(lambda: amqp.depth("source") == 20, for_s=1.0)
    assert router.ask("/readyz")[0] == 200


def rewrite(router: Router, text: str) -> None:
    """Other policies, in force when this returns."""
    before = router.metric("reloads_total", result="success")
    (router.policies / "policies.yaml").write_text(text, encoding="utf-8")
    router.signal(SIGHUP)
    eventually(lambda: router.metric("reloads_total", result="success") > before, within=20)
