"""What RabbitMQ 4.x cannot hand to any AMQP 0-9-1 client (it ends the connection, 541) leaves by AMQP 1.0."""

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.journal import stream
from tests.redrive.conftest import Shop
from tests.support.bulk import DEAD as DIED
from tests.support.bulk import INBOX, PARKING, QUARANTINE, pour
from tests.support.client import Client
from tests.support.eventually import consistently, eventually
from tests.support.native import Native
from tests.support.router import Router
from tests.support.vhost import Vhost

POLICIES: Final = """
version: 1
policies:
  - {name: one, match: "one.#", definition: {max-delivery-attempts: 1}}
"""
ATTACHED: Final = f"""{POLICIES}
attachments:
  - {{queue: one.attached, accept-delivery-limit: true, dead-letter-exchanges: [dead]}}
"""
DEAD: Final = "DLQ.one.work"
UUID: Final = uuid.UUID("0102030405060708090a0b0c0d0e0f10")


@pytest.fixture
def native(vhost: Vhost) -> Iterator[Native]:
    with Native(vhost) as client:
        yield client


def kinds(native: Native) -> dict[str, dict[str, Any]]:
    """One message of each kind, by what the cause says of it."""
    proton = native.proton
    return {
        "application property 'id' is a value of type uuid": {"properties": {"id": UUID}},
        "application property 'c' is a value of type char": {"properties": {"c": proton.char("x")}},
        "message annotation 'x-id' is a value of type uuid": {"annotations": {proton.symbol("x-id"): UUID}},
        "application property 'l' holds a value of type ulong": {"properties": {"l": [proton.ulong(5)]}},
        "property content-type has 256 bytes": {"content_type": "x" * 256},
        "property content-encoding has 300 bytes": {"content_encoding": "x" * 300},
        "message annotation 'x-basic-type' has 256 bytes": {"annotations": {proton.symbol("x-basic-type"): "x" * 256}},
    }


def moved(router: Router) -> float:
    return router.metric("unreadable_total")


def bodies(amqp: Client, queue: str = DEAD) -> set[bytes]:
    """What is in the queue; some letters are there twice, because a connection ended."""
    if not amqp.exists(queue):
        return set()
    depth, channel = amqp.depth(queue), amqp.connection.channel()
    contents = {channel.basic_get(queue)[2] for _ in range(depth)}
    channel.close()
    return contents


def numbered(*numbers: int) -> set[bytes]:
    return {str(number).encode() for number in range(*numbers)}


def is_calm(router: Router) -> bool:
    return router.ask("/readyz")[0] == 200


def test_every_kind_leaves_the_shared_inbox_and_all_others_pass(
    native: Native, start_router: Callable[..., Router], amqp: Client, vhost: Vhost
) -> None:
    router = start_router(POLICIES)
    queue = amqp.queue("one.work", message_ttl=300, dead_letter_exchange=INBOX)
    poison = kinds(native)
    for number, what in enumerate(poison.values()):
        pour(amqp, queue, [str(number)])
        native.publish(queue, [{**what, "body": f"poison {number}".encode(), "subject": "kept"}])
    pour(amqp, queue, [str(len(poison))])
    eventually(lambda: amqp.depth(QUARANTINE) == len(poison), within=25)
    eventually(lambda: bodies(amqp) == numbered(len(poison) + 1), within=25)
    eventually(lambda: is_calm(router), within=10)
    consistently(lambda: moved(router) == len(poison))
    assert router.metric("settled_total", action="quarantine") == len(poison)
    assert amqp.depth(PARKING) == 0
    notes = json.loads(router.ask("/readyz")[1])["notes"]
    assert any("read it with an AMQP 1.0 client" in note and "'dlx-router.inbox'" in note for note in notes)
    kept = [native.take(QUARANTINE) for _ in poison]
    assert {message.body for message in kept} == {f"poison {number}".encode() for number in range(len(poison))}
    assert all(message.durable and message.subject == "kept" and not message.ttl for message in kept)
    quarantined = [
        event for event in eventually(lambda: stream.events(vhost.amqp_url)) if event["kind"] == "quarantined"
    ]
    for cause, what in poison.items():
        (message,) = [candidate for candidate in kept if cause in candidate.annotations["x-opt-dlx-router-cause"]]
        assert message.annotations["x-opt-deaths"].elements[0]["queue"] == queue
        assert (message.properties or {}) == (what.get("properties") or {})
        (event,) = [event for event in quarantined if event["id"] == message.annotations["x-opt-dlx-router-id"]]
        assert (event["cause"], cause in event["detail"]) == ("malformed", True)


@pytest.mark.parametrize("kind", ["classic", "quorum"])
@pytest.mark.parametrize("dlx", [None, "dead"])
def test_an_attached_queue_loses_its_culprits_only(
    native: Native, start_router: Callable[..., Router], amqp: Client, kind: str, dlx: str | None
) -> None:
    """Where there is no dead-letter exchange RabbitMQ deletes what is returned too often."""
    amqp.exchange("dead", "fanout")
    more = {"dead_letter_exchange": dlx} if dlx else {}
    queue = amqp.queue("one.attached", kind, **more)
    for number in range(3):
        pour(amqp, queue, map(str, range(10 * number, 10 * number + 10)))
        native.publish(queue, [{"properties": {"id": UUID}, "body": f"poison {number}".encode()}])
    pour(amqp, queue, ["30"])
    router = start_router(ATTACHED, wait=False)
    eventually(lambda: router.ask("/livez")[0] == 200, within=20)
    eventually(lambda: moved(router) == 3, within=30)
    eventually(lambda: bodies(amqp, PARKING) == numbered(31), within=20)  # what nobody says died is parked
    eventually(lambda: is_calm(router))
    assert (amqp.depth(QUARANTINE), amqp.depth(queue)) == (3, 0)
    assert {native.take(QUARANTINE).body for _ in range(3)} == {b"poison 0", b"poison 1", b"poison 2"}


def test_two_replicas_do_it_together(
    native: Native, start_router: Callable[..., Router], amqp: Client, tmp_path: Path
) -> None:
    key = tmp_path / "key"
    key.write_text("0123456789abcdef" * 4, encoding="ascii")
    routers = [start_router(POLICIES, PROVENANCE_KEY_FILE=str(key)) for _ in range(2)]
    queue = amqp.queue("one.work", message_ttl=0, dead_letter_exchange=INBOX)
    for start in range(0, 100, 20):
        pour(amqp, queue, map(str, range(start, start + 20)))
        native.publish(queue, [{"properties": {"id": UUID}}])
    eventually(lambda: bodies(amqp) == numbered(100), within=30)
    eventually(lambda: sum(map(moved, routers)) == 5, within=20)
    eventually(lambda: all(map(is_calm, routers)), within=20)
    assert amqp.depth(QUARANTINE) == 5


@pytest.fixture
def shop(native: Native, start_router: Callable[..., Router], amqp: Client, vhost: Vhost, tmp_path: Path) -> Shop:
    """What no 0-9-1 client can be given lies second in quarantine."""
    router = start_router(POLICIES, INDEX_PATH=str(tmp_path / "index.db"))
    pour(amqp, QUARANTINE, ["readable"])
    native.publish(QUARANTINE, [{"properties": {"id": UUID}}])
    return Shop(vhost, amqp, router)


@pytest.mark.parametrize("queue", [PARKING, "old.dlq"])
def test_a_task_that_meets_it_goes_on_once_it_is_in_quarantine(shop: Shop, native: Native, queue: str) -> None:
    if queue != PARKING:
        shop.amqp.queue(queue)
    native.publish(queue, [{"properties": {"id": UUID}}])
    shop.amqp.publish("a letter", key=queue, headers=DIED)
    shop.amqp.queue("elsewhere")
    name = shop.start(queue, to={"routing_key": "elsewhere"}, not_a_dead_letter_queue=True)
    assert shop.ends(name)["counts"]["sent"] == 1
    assert shop.amqp.depth(QUARANTINE) == 3
    assert is_calm(shop.router)
    assert moved(shop.router) == 1


@pytest.mark.parametrize("kind", ["alone", "with a key file"])
def test_the_state_queue_is_freed_of_it(
    native: Native, start_router: Callable[..., Router], amqp: Client, tmp_path: Path, kind: str
) -> None:
    (tmp_path / "key").write_text("0123456789abcdef" * 4, encoding="ascii")
    router = start_router(POLICIES, **({"PROVENANCE_KEY_FILE": str(tmp_path / "key")} if kind != "alone" else {}))
    native.publish("dlx-router.state", [{"properties": {"id": UUID}}])
    eventually(lambda: amqp.depth(QUARANTINE) == 1, within=20)
    eventually(lambda: is_calm(router), within=20)
    eventually(lambda: moved(router) == 1)
    eventually(lambda: "nobody leads" not in router.ask("/readyz")[1], within=20)


@pytest.mark.slow
def test_another_541_moves_nothing(start_router: Callable[..., Router], amqp: Client, vhost: Vhost) -> None:
    """A channel's process is killed: to the client that is the same 541."""
    if not vhost.broker.managed:
        pytest.skip("nobody may kill there")
    router = start_router(POLICIES)
    queue = amqp.queue("one.work", message_ttl=0, dead_letter_exchange=INBOX)
    ours = f'[{{vhost, <<"{vhost.name}">>}}, {{consumer_count, 1}}]'
    processes = f"[P || P <- rabbit_channel:list_local(), rabbit_channel:info(P, [vhost, consumer_count]) =:= {ours}]"
    kill = f"[exit(P, kill) || P <- {processes}]."
    for start in range(0, 60, 20):
        pour(amqp, queue, map(str, range(start, start + 20)))
        vhost.broker.rabbitmqctl("eval", kill)
        eventually(lambda: router.metric("broker_connected") == 1 and is_calm(router), within=20)
    eventually(lambda: bodies(amqp) == numbered(60), within=30)
    assert (amqp.depth(QUARANTINE), moved(router)) == (0, 0)
    notes = router.ask("/readyz")[1]
    assert ("is known to cause that" in notes) == (not vhost.broker.version.startswith("3."))
