"""Faults that somebody causes: hostile publishers, junk and strangers among the router's own queues, slow clients.

What these publish themselves is accounted for too: each message must be found in one of the last places.
"""
# ruff: noqa: ANN401 - pika ships no types

import secrets
import socket
import struct
from collections.abc import Callable
from contextlib import ExitStack
from itertools import cycle, islice
from types import SimpleNamespace
from typing import Any, Final, Protocol, cast
from uuid import uuid4

import httpx
import pika

from dlx_router.core.refusal import SEVERAL_MOST
from tests.support.native import Native
from tests.support.router import Router
from tests.support.vhost import Vhost
from tools.chaos.accounting import ATTACHED, NARROW, PARKING, QUARANTINE
from tools.chaos.load import Load
from tools.chaos.testbed import INBOX, OURS_ALONE, VHOST, Scene, soon

STATE: Final = OURS_ALONE[0]
SECRET: Final = "chaos.secret"
READY: Final = 200
SEEN_S: Final = 300.0
SLOW_CLIENTS: Final = 150
MESSAGES: Final = 40
POISON: Final = b"poison"
FEW: Final = 5
VANISHED: Final = 30
JUNK: Final = (b"x" * 25, b"{}", b'{"key": 1}', b"\x00" * 4096, b"null", b'{"kind": "key"}')


class Target(Protocol):
    """What these faults touch of an Arena."""

    scene: Scene
    load: Load
    note: str
    violations: list[str]

    @property
    def router(self) -> Router:
        """The replica whose turn it is."""

    def wait(self, low: float, high: float) -> None:
        """A moment, drawn."""


def own_queue_full(arena: Target) -> None:
    """Parking refuses letters, while the router has some that go nowhere else."""
    arena.load.hold(PARKING)
    arena.scene.policy("parking", rf"^{PARKING}$".replace(".", r"\."), {"max-length": 1, "overflow": "reject-publish"})
    try:
        _publish(arena, INBOX, MESSAGES, [{}])
        arena.wait(4.0, 12.0)
    finally:
        arena.scene.drop_policy("parking")
        arena.load.release(PARKING)


def foreign_own_queue(arena: Target) -> None:
    """Parking as somebody else declared it, before the routers start: they must not use it."""
    for router in arena.scene.routers:
        router.stop(SEEN_S)
    soon(lambda: not arena.scene.depths().get(PARKING), SEEN_S)
    arena.load.hold(PARKING)
    arena.scene.channel(lambda channel: _declared_anew(channel, {"x-max-length": 5}))
    try:
        arena.router.start(wait=False)
        if not soon(lambda: PARKING in arena.router.ask("/readyz")[1], SEEN_S):
            arena.violations.append("nobody said that parking is not as the router declares it")
        arena.router.stop(SEEN_S)
    finally:
        arena.scene.channel(lambda channel: channel.queue_delete(PARKING, if_empty=False))
        arena.load.release(PARKING)
        for router in arena.scene.routers:
            router.start(wait=False)


def state_junk(arena: Target) -> None:
    """Somebody publishes into the state queue what the router cannot read."""
    arena.load.books.junk.update(JUNK)
    for body in JUNK:
        arena.scene.channel(lambda channel, body=body: _confirmed(channel, "", STATE, body, {}))  # type: ignore[misc]  # a default binds it
    arena.wait(0.5, 3.0)


def hostile_publisher(arena: Target) -> None:
    """An ordinary publisher writes histories, names and records of its own into an attached queue."""
    arena.scene.channel(lambda channel: channel.queue_declare(SECRET, durable=True))
    _publish(arena, ATTACHED.source, MESSAGES, _lies(), expiration=None)
    arena.wait(0.5, 2.0)


def vanished_queues(arena: Target) -> None:
    """Queues of one connection fail a message each, and are gone with it."""
    bodies = [arena.load.books.hostile() for _ in range(VANISHED)]
    dead = {"x-dead-letter-exchange": INBOX, "x-message-ttl": 0}

    def act(channel: Any) -> None:
        names = [f"chaos.gone.{secrets.token_hex(4)}" for _ in bodies]
        for name, body in zip(names, bodies, strict=True):
            channel.queue_declare(name, exclusive=True, arguments=dead)
            _confirmed(channel, "", name, body, {})
        soon(lambda: not any(_ready(channel, name) for name in names), SEEN_S)

    arena.scene.channel(act)


def overflowing_target(arena: Target) -> None:
    """A full target refuses what is too much, and dead-letters it all the same: each message may have some copies."""
    place = f"{NARROW}.dead"
    arena.load.hold(place)
    arena.scene.policy("narrow", f"^{place}$", {"max-length": 1, "overflow": "reject-publish-dlx"})
    try:
        bodies = [arena.load.books.hostile(most=1 + SEVERAL_MOST + 1) for _ in range(MESSAGES)]  # one more: in doubt
        _publish_bodies(arena, NARROW, bodies, [{}])
        arena.wait(4.0, 20.0)
    finally:
        arena.scene.drop_policy("narrow")
        arena.load.release(place)


def equal_messages(arena: Target) -> None:
    """Messages that are equal byte for byte fail together, and each is a message of its own."""
    _publish_bodies(arena, NARROW, [arena.load.books.hostile(MESSAGES)] * MESSAGES, [{}])
    arena.wait(0.5, 2.0)


def auto_delete_source(arena: Target) -> None:
    """A queue that is deleted after its last consumer is looked at by whoever may: nothing of it is gone."""
    bodies = [arena.load.books.hostile() for _ in range(FEW)]
    queue = "chaos.auto"
    arena.scene.channel(lambda channel: channel.queue_declare(queue, durable=True, auto_delete=True))
    _publish_bodies(arena, queue, bodies, [{"x-death": [_death(SECRET, "")]}])
    _request(arena, "GET", f"/tasks/preview?queue={queue}&vhost={VHOST}")
    _request(arena, "POST", f"/queues/{queue}/receive", {"vhost": VHOST, "not_a_dead_letter_queue": True})
    arena.wait(0.5, 2.0)
    _take_away(arena, queue)


def poison_beside_leases(arena: Target) -> None:
    """A queue with a message that no client of AMQP 0-9-1 can be given is asked for, while others work with leases."""
    leased, poisoned = "chaos.leased", "chaos.poisoned"
    quorum = {"x-queue-type": "quorum", "x-dead-letter-exchange": INBOX}
    for queue in (leased, poisoned):
        arena.scene.channel(lambda channel, queue=queue: channel.queue_declare(queue, durable=True, arguments=quorum))  # type: ignore[misc]  # a default binds it
    _publish_bodies(
        arena, leased, [arena.load.books.hostile() for _ in range(FEW)], [{"x-death": [_death(SECRET, "")]}]
    )
    speaks_amqp10 = not arena.scene.node.version.startswith("3.")
    if speaks_amqp10:
        arena.load.hold(QUARANTINE)  # the poison would end the auditor's connection too
        with _native(arena) as native:
            native.publish(poisoned, [{"properties": {"id": uuid4()}, "body": POISON}])
    wanted = {"vhost": VHOST, "max": FEW, "visibility": "300s", "not_a_dead_letter_queue": True}
    leases: list[str] = []

    def received() -> bool:
        status, answer = _request(arena, "POST", f"/queues/{leased}/receive", {**wanted, "max": FEW - len(leases)})
        if status == READY:
            leases.extend(letter["handle"] for letter in answer["letters"])
        arena.note = f"{len(leases)} leases; {status} {'' if status == READY else str(answer)[:200]}"
        return len(leases) == FEW

    if not soon(received, SEEN_S):
        arena.violations.append(f"no leases of {FEW} messages within {SEEN_S:g} s: {arena.note}")
    for _ in range(8):
        _request(arena, "POST", f"/queues/{poisoned}/receive", wanted)
    if speaks_amqp10:
        _take_poison(arena, poisoned)
    ended = [_request(arena, "POST", f"/leases/{handle}", {"action": "park"})[0] for handle in leases]
    if ended.count(READY) < len(leases):
        arena.violations.append(f"leases ended beside a poisoned queue: {ended}")
    arena.scene.channel(lambda channel: channel.queue_delete(poisoned))
    _take_away(arena, leased)


def _native(arena: Target) -> Native:
    broker = SimpleNamespace(version=arena.scene.node.version)
    return Native(cast("Vhost", SimpleNamespace(broker=broker, amqp_url=arena.scene.url, name=VHOST)))


def _take_poison(arena: Target, queue: str) -> None:
    """Take the message out of quarantine, where the router moves it, and account for the others there."""
    if not soon(lambda: arena.scene.channel(lambda channel: not _ready(channel, queue)), SEEN_S):
        arena.violations.append(f"the message that crashes reads of {queue} is still there after {SEEN_S:g} s")
    else:
        with _native(arena) as native:
            while (body := native.take(QUARANTINE).body) != POISON:
                arena.load.books.find(QUARANTINE, body, "", redelivered=False)
    arena.load.release(QUARANTINE)


def slow_clients(arena: Target) -> None:
    """Connections that say nothing, or half a request, while somebody asks whether the router lives."""
    port = arena.router.port
    with ExitStack() as stack:
        for request in islice(
            cycle([b"", b"GET /rea", b"POST /api/v1/x HTTP/1.1\r\nContent-Length: 9\r\n\r\n"]), SLOW_CLIENTS
        ):
            link = stack.enter_context(socket.create_connection(("127.0.0.1", port), 5))
            link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            link.sendall(request)
        answers = [arena.router.ask("/livez")[0] for _ in range(20)]
        arena.wait(0.5, 2.0)
    if dead := sum(code != READY for code in answers):
        arena.violations.append(
            f"/livez did not answer {dead} of {len(answers)} times beside {SLOW_CLIENTS} slow clients"
        )


def _publish(
    arena: Target, queue: str, count: int, headers: list[dict[str, Any]], expiration: str | None = None
) -> None:
    _publish_bodies(arena, queue, [arena.load.books.hostile() for _ in range(count)], headers, expiration)


def _publish_bodies(
    arena: Target, queue: str, bodies: list[bytes], headers: list[dict[str, Any]], expiration: str | None = None
) -> None:
    def act(channel: Any) -> None:
        for body, fields in zip(bodies, cycle(headers)):
            _confirmed(channel, "", queue, body, fields, expiration)

    arena.scene.channel(act)


def _take_away(arena: Target, queue: str) -> None:
    """What is still in a queue of a fault's own is found; then the queue is deleted."""

    def act(channel: Any) -> list[bytes]:
        bodies = [channel.basic_get(queue, auto_ack=True)[2] for _ in range(_ready(channel, queue))]
        channel.queue_delete(queue)
        return bodies

    for body in arena.scene.channel(act):
        arena.load.books.find(PARKING, body, "", redelivered=False)


def _request(arena: Target, method: str, path: str, body: dict[str, Any] | None = None) -> tuple[int, Any]:
    """Status and answer of the replica whose turn it is; 0 where it does not answer."""
    url = f"http://127.0.0.1:{arena.router.port}/api/v1{path}"
    try:
        answer = httpx.request(method, url, json=body, timeout=SEEN_S, trust_env=False)
        return answer.status_code, answer.json()
    except (httpx.HTTPError, ValueError) as error:
        return 0, str(error)


def _confirmed(
    channel: Any, exchange: str, key: str, body: bytes, headers: dict[str, Any], expiration: str | None = None
) -> None:
    """Published; an error where the broker does not take it."""
    channel.confirm_delivery()
    properties = pika.BasicProperties(delivery_mode=2, headers=headers, expiration=expiration)
    channel.basic_publish(exchange, key, body, properties, mandatory=True)


def _lies() -> list[dict[str, Any]]:
    """Histories of deaths that never were, at queues of others and of the router, spelled in every way."""
    own = (
        "dlx-router.state",
        "dlx-router.\rjournal",
        "\ndlx-router.release",
        "dlx-router.inbox\r\n",
        "dlx-router.return",
    )
    names = (SECRET, f"{SECRET}\n", *own, "", "amq.direct", "x" * 255, "\x00", "ü", "to:" + SECRET)
    deaths = [
        [_death(name, exchange)] for name in names for exchange in ("", "dlx-router.return", "dlx-router.\ndeclared")
    ]
    odd: list[Any] = ["no list", 7, [], [1], [{}], [{"queue": 5, "reason": [], "count": "x"}]]
    records = [
        '{"v":1}',
        "{",
        '{"v":1,"id":"x","state":"retrying","failed_queue":"' + SECRET + '","mac":"00"}',
        7,
        None,
    ]
    return [
        *({"x-death": history} for history in (*deaths, *odd)),
        *({"dlx-router": record} for record in records),
        {"dlx-death": '{"queue":"' + SECRET + '","exchange":"","routing_keys":[],"reason":"x"}'},
        {"dlx-router-pub": 1, "dlx-router-id": "00"},
        {"x-first-death-queue": SECRET, "x-death": [_death(SECRET, "")] * 20},
    ]


def _death(queue: str, exchange: str) -> dict[str, Any]:
    return {"queue": queue, "reason": "rejected", "count": 1, "exchange": exchange, "routing-keys": [queue]}


def _ready(channel: Any, queue: str) -> int:
    return int(channel.queue_declare(queue, passive=True).method.message_count)


def _declared_anew(channel: Any, arguments: dict[str, Any]) -> None:
    channel.queue_delete(PARKING)
    channel.queue_declare(PARKING, durable=True, arguments={"x-queue-type": "quorum", **arguments})


HOSTILE_KINDS: Final[dict[str, Callable[[Any], None]]] = {
    "own queue full (nack)": own_queue_full,
    "foreign own queue": foreign_own_queue,
    "state junk": state_junk,
    "hostile publisher": hostile_publisher,
    "vanished queues": vanished_queues,
    "slow HTTP clients": slow_clients,
    "target overflows (nack, dlx)": overflowing_target,
    "equal messages": equal_messages,
    "auto-delete source": auto_delete_source,
    "poison beside leases": poison_beside_leases,
}
HOSTILE_GENTLE: Final = {*HOSTILE_KINDS} - {"own queue full (nack)", "foreign own queue"}
