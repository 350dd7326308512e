"""Reads of queues that the router does not own cost no message: reads × kinds of queue."""

import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from dlx_router.core import attending
from dlx_router.core.attending import QueueFacts
from tests.cli.test_cli import in_a_process
from tests.support.bulk import DEAD as DIED
from tests.support.bulk import INBOX, PARKING, QUARANTINE, pour, take_many
from tests.support.client import Client
from tests.support.eventually import consistently, eventually
from tests.support.native import Native
from tests.support.plain_http import NO_TLS
from tests.support.router import Router
from tests.support.vhost import Vhost

Start = Callable[..., Router]
POLICIES: Final = """
version: 1
policies:
  - {name: one, match: "one.#", definition: {max-delivery-attempts: 1}}
"""
UUID: Final = uuid.UUID("0102030405060708090a0b0c0d0e0f10")
KINDS: Final[dict[str, dict[str, Any]]] = {
    "auto-delete": {"auto_delete": True},
    "expires": {"arguments": {"x-expires": 3_600_000}},
    "expires by a policy": {},
    "expiring quorum": {"arguments": {"x-expires": 3_600_000, "x-queue-type": "quorum"}},
}
READS: Final[dict[str, tuple[str, dict[str, Any] | None]]] = {  # path, and what is posted there
    "preview": ("tasks/preview", None),
    "import": ("queues/import", {"queue": "odd"}),
    "receive": ("queues/odd/receive", {"not_a_dead_letter_queue": True}),
    "receive many": ("queues/odd/receive", {"not_a_dead_letter_queue": True, "max": 100, "visibility": 1}),
    "task": ("tasks", {"queue": "odd", "limit": 1, "not_a_dead_letter_queue": True}),
    "dry run": ("tasks", {"queue": "odd", "dry_run": True, "not_a_dead_letter_queue": True}),
    "export": ("tasks", {"queue": "odd", "kind": "export", "not_a_dead_letter_queue": True}),
}


def declared(vhost: Vhost, amqp: Client, kind: str, name: str = "odd", messages: int = 20) -> str:
    """A durable queue of this kind that never had a consumer, with messages."""
    if kind == "expires by a policy":
        vhost.policy("expiring", f"^{name}$", {"expires": 3_600_000})
    amqp.channel.queue_declare(name, durable=True, **KINDS[kind])
    for number in range(messages):
        amqp.publish(f"{number}", key=name, headers=DIED)
    if kind == "expires by a policy":
        where = f"queues/{vhost.quoted}/{name}"
        eventually(lambda: "expires" in vhost.get(where).get("effective_policy_definition", ()), within=120)
    return name


def asked(router: Router, vhost: Vhost, read: str, queue: str = "odd") -> httpx.Response:
    """The answer of a router that leads to this read."""
    path, body = READS[read]
    url = f"http://127.0.0.1:{router.port}/api/v1/{path.replace('odd', queue)}"
    params = {"vhost": vhost.name, "queue": queue}
    if body is not None:
        body = {key: queue if key == "queue" else value for key, value in body.items()}
        body |= {} if read == "import" else {"vhost": vhost.name}

    def answered() -> httpx.Response:
        method = "GET" if body is None else "POST"
        answer = httpx.request(method, url, params=params, json=body, timeout=120, trust_env=False, verify=NO_TLS)
        assert answer.status_code not in {429, 503}, answer.text
        return answer

    return eventually(answered, within=30)


def refused(router: Router, vhost: Vhost, read: str) -> str:
    """Status and text of a read; of a task, once it has stopped, 409 and why."""
    answer = asked(router, vhost, read)
    if answer.status_code != 201:
        return f"{answer.status_code} {answer.text}"
    where = f"http://127.0.0.1:{router.port}/api/v1/tasks/{answer.json()['id']}"
    ask = partial(httpx.get, where, params={"vhost": vhost.name}, timeout=120, trust_env=False, verify=NO_TLS)
    eventually(lambda: ask().json()["state"] == "stopped", within=60)
    return f"409 {ask().json()['why']}"


@pytest.mark.parametrize("kind", KINDS)
def test_no_read_consumes_a_queue_that_would_be_deleted(
    kind: str, vhost: Vhost, amqp: Client, start_router: Start, tmp_path: Path
) -> None:
    declared(vhost, amqp, kind)
    router = start_router(POLICIES, INDEX_PATH=str(tmp_path / "index.db"))
    for read in READS:
        answer = asked(router, vhost, read)
        assert (read, answer.status_code) == (read, 409), answer.text
        assert ("auto-delete" if kind == "auto-delete" else "it expires") in answer.text
        assert amqp.depth("odd") == 20
    assert "queue.read_refused" in router.output


@pytest.mark.parametrize("kind", ["auto-delete", "expires"])
def test_without_the_management_api_a_declaration_tells_it(
    kind: str, vhost: Vhost, amqp: Client, start_router: Start
) -> None:
    declared(vhost, amqp, kind)
    amqp.queue("good")
    pour(amqp, "good", ["1"], headers=DIED)
    router = start_router(POLICIES, MANAGEMENT_URL="")
    for read in ("receive", "task", "dry run"):
        assert asked(router, vhost, read).status_code == 409
        assert amqp.depth("odd") == 20
    assert "is not read" not in asked(router, vhost, "receive", "good").text
    assert "not known whether" not in router.ask("/readyz")[1]
    assert asked(router, vhost, "receive", "absent").status_code == 404
    assert not amqp.exists("absent")


@pytest.mark.parametrize("mode", ["inbox", "guard", "relay"])
@pytest.mark.parametrize("management", [True, False])
def test_such_a_queue_is_not_attached(
    mode: str,
    management: bool,  # noqa: FBT001 - a parameter
    vhost: Vhost,
    amqp: Client,
    start_router: Start,
) -> None:
    declared(vhost, amqp, "auto-delete", "one.auto")
    declared(vhost, amqp, "expires", "one.expires")
    to = ", forward-to: {exchange: amq.fanout}" if mode == "relay" else ""
    attached = [f"  - {{queue: {name}, mode: {mode}{to}}}\n" for name in ("one.auto", "one.expires")]
    policies = POLICIES.replace("1}}", "1, max-length: 5}}") + "attachments:\n" + "".join(attached)
    router = start_router(policies, wait=False, **({} if management else {"MANAGEMENT_URL": ""}))
    if mode == "guard" and not management:
        eventually(lambda: router.says_ready(200, "one.auto", "one.expires"), within=20)
    else:
        eventually(lambda: router.says_ready(200, "it is auto-delete", "it expires"), within=20)
    router.kill()
    assert consistently(lambda: (amqp.depth("one.auto"), amqp.depth("one.expires")) == (20, 20))


@pytest.mark.parametrize("read", ["import", "receive many", "dry run"])
def test_failed_reads_do_not_use_up_the_delivery_limit(
    read: str, vhost: Vhost, amqp: Client, start_router: Start, tmp_path: Path
) -> None:
    """RabbitMQ ends the connection (541) at the last message: a failed delivery of all others, if it happens again."""
    with Native(vhost) as native:
        amqp.queue("odd", "quorum")
        pour(amqp, "odd", map(str, range(30)), headers=DIED)
        router = start_router(POLICIES, INDEX_PATH=str(tmp_path / "index.db"))
        native.publish("odd", [{"properties": {"id": UUID}, "body": b"poison"}])
        if not vhost.broker.version.startswith("4.3"):  # there each look would count, so it is refused
            for _ in range(3):
                assert "counts" in refused(router, vhost, read)
            assert amqp.depth("odd") == 31
            return
        first = asked(router, vhost, read)
        if read == "dry run":
            assert first.status_code == 201, first.text
            eventually(lambda: router.metric("unreadable_total") == 1, within=60)
            where = f"http://127.0.0.1:{router.port}/api/v1/tasks/{first.json()['id']}"
            ask = partial(httpx.get, where, params={"vhost": vhost.name}, timeout=120, trust_env=False, verify=NO_TLS)
            eventually(lambda: ask().json()["state"] == "done", within=60)
        else:
            assert first.status_code == 409, first.text
            assert "541" in first.text
        eventually(lambda: amqp.depth(QUARANTINE) == 1, within=60)
        for _ in range(2 if read == "dry run" else 25):
            eventually(lambda: asked(router, vhost, read).status_code < 300, within=60)
        router.stop()
        eventually(lambda: amqp.depth("odd") == 30, within=60)
        bodies = [amqp.take("odd") for _ in range(30)]
        assert {message.body for message in bodies} == {str(number).encode() for number in range(30)}
        assert max((message.headers or {}).get("x-delivery-count", 0) for message in bodies) <= 2
        assert native.take(QUARANTINE).body == b"poison"
    assert "queue.unreadable" in router.output


@pytest.mark.parametrize("read", sorted(READS.keys() - {"preview"}))  # which reads no message
def test_no_queue_is_read_whose_first_message_is_near_its_limit(
    read: str, vhost: Vhost, amqp: Client, start_router: Start, tmp_path: Path
) -> None:
    amqp.queue("odd", "quorum", delivery_limit=5)
    pour(amqp, "odd", ["0"], headers=DIED)
    for _ in range(2):
        with Client(vhost.amqp_url) as client:
            eventually(lambda: client.get("odd"), within=20)
    pour(amqp, "odd", ["1"], headers=DIED)
    router = start_router(POLICIES, INDEX_PATH=str(tmp_path / "index.db"))
    why = "failed deliver" if vhost.broker.version.startswith("4.3") else "counts"
    for _ in range(8):
        text = refused(router, vhost, read)
        assert text.startswith("409") or '"not_sampled":"' in text, text
        assert why in text
    eventually(lambda: amqp.depth("odd") == 2, within=20)


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_trickle_of_unreadable_messages_disturbs_no_other_queue(
    kind: str, vhost: Vhost, amqp: Client, start_router: Start
) -> None:
    """Each ends the connection that consumes their queue: from the second on that is one of its own."""
    amqp.queue("one.attached", kind)
    amqp.queue("one.work", dead_letter_exchange=INBOX)
    attached = "attachments:\n  - {queue: one.attached, accept-delivery-limit: true, dead-letter-exchanges: [dead]}\n"
    router = start_router(POLICIES + attached)
    with Native(vhost) as native:
        for number in range(8):
            native.publish("one.attached", [{"properties": {"id": UUID}, "body": b"poison"}])
            amqp.publish(f"attached {number}", key="one.attached", headers=DIED)
            eventually(lambda: amqp.depth(QUARANTINE) > number, within=60)  # noqa: B023 - awaited here
            amqp.publish(f"work {number}", key="one.work")
            amqp.fail("one.work")
            eventually(lambda: amqp.depth(PARKING) > number, within=60)  # noqa: B023 - awaited here
    eventually(lambda: amqp.exists("DLQ.one.work") and amqp.depth("DLQ.one.work") >= 8, within=60)
    eventually(lambda: amqp.depth(PARKING) >= 8, within=60)  # a connection that ends takes acks along: a copy
    parked = {message.body for message in take_many(amqp, PARKING, amqp.depth(PARKING))}
    assert parked == {f"attached {number}".encode() for number in range(8)}
    assert amqp.depth("one.attached") == 0
    assert router.output.count('"session.ended"') <= 2, router.output
    assert router.says_ready(200, "its messages ended a connection (541) twice within a minute")


def test_doctor_and_lint_name_them(vhost: Vhost, amqp: Client, tmp_path: Path) -> None:
    declared(vhost, amqp, "auto-delete", "one.auto")
    declared(vhost, amqp, "expires by a policy", "one.expires")
    (tmp_path / "p.yaml").write_text(POLICIES + 'attachments:\n  - {pattern: "^one\\\\."}\n', encoding="utf-8")
    urls = {"AMQP_URL": vhost.amqp_url, "MANAGEMENT_URL": vhost.management_url, "VHOSTS": vhost.name}
    doctor = in_a_process("doctor", "--policies", str(tmp_path), **urls)
    lint = in_a_process("policy", "lint", "--broker", str(tmp_path), **urls)
    for done in (doctor, lint):
        for name, why in (("one.auto", "auto-delete"), ("one.expires", "it expires")):
            assert any(name in line and why in line for line in done.stdout.splitlines()), done.stdout + done.stderr


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        (QueueFacts(), ""),
        (QueueFacts("quorum", {"x-delivery-limit": 5}), ""),
        (QueueFacts(arguments={"x-message-ttl": 5, "x-max-length": 1}), ""),
        (QueueFacts(auto_delete=True), "auto-delete"),
        (QueueFacts(exclusive=True), "exclusive"),
        (QueueFacts(arguments={"x-expires": 1}), "it expires"),
        (QueueFacts("quorum", {}, {"expires": 1}), "it expires"),
    ],
)
def test_which_queues_vanish(facts: QueueFacts, why: str) -> None:
    reason = attending.vanishes(facts)
    assert why in reason
    assert bool(why) == bool(reason)
    for mode in ("inbox", "relay", "guard"):
        assert attending.refusal(mode, facts, (4, 3), accepts_limit=True) == reason
