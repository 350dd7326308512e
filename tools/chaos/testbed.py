"""Where a chaos run takes place: a private broker, queues, policies, and replicas of the router behind proxies."""
# ruff: noqa: ANN401 - pika ships no types

import os
import secrets
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import quote

import httpx
import pika

from tests.support.proxy import Proxy
from tests.support.router import Router
from tools.brokers import Node
from tools.brokers.programs import Program
from tools.chaos.accounting import ATTACHED, BROKEN, FAN, FLAKY, LAST, NARROW, SINGLE, SWIFT_WAY

T = TypeVar("T")

VHOST: Final = "chaos"
USER: Final = "router"
IDLE: Final = "chaos.idle"
FAN_OUT: Final = "chaos.fan.out"
INBOX: Final = "dlx-router.inbox"
OURS_ALONE: Final = ("dlx-router.state", "dlx-router.journal")
CLOCK_FOLDER: Final = Path(__file__).parent / "clock"
PREFETCH: Final = 200
ANSWER_S: Final = 300.0
HALF_AN_HOUR_MS: Final = 1_800_000
EVERYTHING: Final = {"configure": ".*", "write": ".*", "read": ".*"}
POLICIES: Final = """
version: 1
attachments:
  - {queue: chaos.idle, accept-delivery-limit: true}
  - {queue: chaos.attached, accept-delivery-limit: true}
policies:
  - {name: attached, queue: chaos.attached, definition: {dead-letter-exchange: chaos.attached}}
  - {name: swift, queue: chaos.swift, definition: {dead-letter-exchange: chaos.swift}}
  - {name: single, queue: chaos.single, definition: {dead-letter-exchange: chaos.single}}
  - {name: fan, queue: chaos.fan, definition: {dead-letter-exchange: chaos.fan}}
  - {name: narrow, queue: chaos.narrow, definition: {dead-letter-exchange: chaos.narrow}}
  - name: asked
    queue: chaos.flaky
    definition:
      max-delivery-attempts: 3
      redelivery-delay: 300ms
      redelivery-collision-avoidance-factor: 0.2
      never-retry: ['header("x-for-good") == "yes" || body("/for-good") == true']
  - name: waits
    match: "chaos.#"
    definition:
      max-delivery-attempts: 3
      redelivery-delay: 300ms
      redelivery-delay-multiplier: 2.0
      redelivery-collision-avoidance-factor: 0.2
"""
# A dead-letter worker asks again after so long where the inbox did not answer, and not after 3 minutes;
# channels and quorum queues look at consumer timeouts twice a second.
ADVANCED: Final = """[{rabbit, [
  {dead_letter_worker_publisher_confirm_timeout, 3000},
  {channel_tick_interval, 500},
  {quorum_tick_interval, 500}
]}].
"""


class SceneError(Exception):
    """The run could not be made; says why."""


class Scene:
    """Broker, queues, replicas. `folder` keeps logs and policies."""

    def __init__(self, program: Program, folder: Path) -> None:
        self.folder = folder
        self.routers: list[Router] = []
        self.proxies: list[Proxy] = []
        self._clock = folder / "clock"
        self.set_clock(0.0)
        self._password = secrets.token_hex(8)
        self.node = self.open_broker(program)
        try:
            self.api = httpx.Client(base_url=f"{self.node.management_url}/api/", timeout=ANSWER_S, trust_env=False)
            self._set_up()
        except BaseException:
            self.close_broker()
            raise

    def open_broker(self, program: Program) -> Node:
        """A node whose management API answers; a cluster is another kind of scene."""
        return tuned(Node(program))

    def close_broker(self) -> None:
        """Nothing of it is left."""
        self.node.close()

    @property
    def url(self) -> str:
        """Of the vhost, straight to the broker, with all rights."""
        return f"{self.node.amqp_base}/{VHOST}"

    def _set_up(self) -> None:
        self.put(f"vhosts/{VHOST}")
        self.put(f"permissions/{VHOST}/guest", EVERYTHING)
        self.put(f"users/{USER}", {"password": self._password, "tags": "monitoring"})
        self.rights(EVERYTHING)
        with pika.BlockingConnection(pika.URLParameters(self.url)) as link:
            declare(link.channel())
        (self.folder / "policies").mkdir()
        (self.folder / "policies" / "chaos.yaml").write_text(POLICIES, encoding="utf-8")
        (self.folder / "key").write_text(secrets.token_hex(32), encoding="utf-8")

    # -- the broker -----------------------------------------------------------------------------------------------

    def put(self, path: str, body: dict[str, Any] | None = None) -> None:
        """PUT under /api/."""
        self.api.put(path, json=body or {}).raise_for_status()

    def rights(self, rights: dict[str, str]) -> None:
        """What the router's user may do."""
        self.put(f"permissions/{VHOST}/{USER}", rights)

    def policy(self, name: str, pattern: str, definition: dict[str, Any], priority: int = 0) -> None:
        """A RabbitMQ policy for queues."""
        body = {"pattern": pattern, "definition": definition, "priority": priority, "apply-to": "queues"}
        self.put(f"policies/{VHOST}/{name}", body)

    def drop_policy(self, name: str) -> None:
        """Gone."""
        self.api.delete(f"policies/{VHOST}/{name}").raise_for_status()

    def consumer_timeout(self, timeout_ms: int | None) -> None:
        """How long the router may keep a delivery; None: half an hour, as always. RabbitMQ 3 knows no policy for it."""
        if self.node.version.startswith("3."):
            timeout = timeout_ms or HALF_AN_HOUR_MS
            self.node.rabbitmqctl("eval", f"application:set_env(rabbit, consumer_timeout, {timeout}).")
        elif timeout_ms is None:
            self.drop_policy("timeout")
        else:
            self.policy("timeout", r"^dlx-router\.(inbox|release)$", {"consumer-timeout": timeout_ms}, priority=9)
        self.close_connections()  # 3.10 reads it once a channel, 4.3 once a consumer

    def channel(self, act: Callable[[Any], T]) -> T:
        """Do something on a channel of a short connection."""
        parameters = pika.URLParameters(self.url)
        parameters.socket_timeout = parameters.stack_timeout = ANSWER_S
        with pika.BlockingConnection(parameters) as link:
            return act(link.channel())

    def close_connections(self) -> int:
        """The broker closes every connection of the router's user, as an operator may; → how many."""
        closed: set[str] = set()

        def look() -> bool:
            known = self.api.get(f"vhosts/{VHOST}/connections?columns=name,user").raise_for_status().json()
            for name in (connection["name"] for connection in known if connection.get("user") == USER):
                self.api.delete(f"connections/{quote(name, safe='')}", headers={"X-Reason": "chaos"})
                closed.add(name)
            return bool(closed)

        soon(look, 30)
        return len(closed)

    def queues(self) -> list[str]:
        """All names in the vhost."""
        return [queue["name"] for queue in self.api.get(f"queues/{VHOST}?columns=name").raise_for_status().json()]

    def depths(self) -> dict[str, int]:
        """Ready messages in all queues but the router's own books."""
        names = [name for name in self.queues() if name not in OURS_ALONE]
        return self.channel(
            lambda channel: {
                name: int(channel.queue_declare(name, passive=True).method.message_count) for name in names
            }
        )

    def leftovers(self) -> Iterator[tuple[str, bytes, str]]:
        """What lies where nothing should: (queue, body, letter id). It is taken out."""
        for queue, depth in self.depths().items():
            if depth and queue not in LAST:
                yield from self.channel(lambda channel, queue=queue: [*_taken(channel, queue)])  # type: ignore[misc]  # a default binds it

    def window(self) -> int:
        """What one router's consumers together may hold unacknowledged."""

        def look() -> int:
            consumers = self.api.get(f"consumers/{VHOST}").raise_for_status().json()
            ours = [
                consumer
                for consumer in consumers
                if consumer["queue"]["name"].startswith("dlx-router.")
                or consumer["queue"]["name"] in {IDLE, ATTACHED.source}
            ]
            names = {consumer["queue"]["name"] for consumer in ours}
            return sum(consumer["prefetch_count"] for consumer in ours) // len(self.routers) if INBOX in names else 0

        return soon(look, ANSWER_S)

    # -- the routers ----------------------------------------------------------------------------------------------

    def replicas(self, count: int) -> None:
        """So many routers run."""
        while len(self.routers) < count:
            at = len(self.routers)
            url = f"amqp://{USER}:{self._password}@{self.hosts()}/{VHOST}"
            management = f"http://{USER}:{self._password}@127.0.0.1:{self.node.ports['management']}"
            env = {"HEARTBEAT": "2", "PREFETCH": str(PREFETCH), "PROVENANCE_KEY_FILE": str(self.folder / "key")}
            log = self.folder / f"router-{at}.log"
            router = Router(
                amqp_url=url, management_url=management, policies=self.folder / "policies", log=log, env=env
            )
            self.routers.append(router)
            router.start(within=ANSWER_S)

    def hosts(self) -> str:
        """Where the next router connects to, as its URL says it."""
        self.proxies.append(Proxy(self.node.ports["amqp"]))
        return f"127.0.0.1:{self.proxies[-1].port}"

    def set_clock(self, seconds: float) -> None:
        """The routers' wall clock is so many seconds off."""
        with self._clock.open("r+b" if self._clock.exists() else "wb") as opened:
            opened.write(struct.pack("d", seconds))

    def environment(self, package: Path | None) -> dict[str, str]:
        """What router processes inherit: the movable clock, and another copy of the package if one is given."""
        folders = [str(CLOCK_FOLDER), *([str(package)] if package else [])]
        safe = {"PYTHONSAFEPATH": "1"} if package else {}  # else the working directory wins over PYTHONPATH
        return {"PYTHONPATH": os.pathsep.join(folders), "CHAOS_CLOCK": str(self._clock), **safe}

    def close(self) -> None:
        """Nothing is left."""
        for router in self.routers:
            router.close()
        for proxy in self.proxies:
            proxy.close()
        self.api.close()
        (self.folder / "broker.log").write_text(self.node.log, encoding="utf-8")
        self.close_broker()


def tuned(node: Node) -> Node:
    """The same node, quicker to look again than RabbitMQ is by itself."""
    (node.work / "advanced.config").write_text(ADVANCED, encoding="utf-8")
    try:
        node.stop()
        node.start()
    except BaseException:
        node.close()
        raise
    return node


def declare(channel: Any) -> None:
    """Work queues that hand over their dead at least once, and the targets."""
    safe = {"x-queue-type": "quorum", "x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}
    dies = {**safe, "x-dead-letter-exchange": INBOX}
    channel.exchange_declare(INBOX, "fanout", durable=True)
    for way in (SWIFT_WAY, SINGLE, FAN, FLAKY, BROKEN):
        expires = {} if way in {FLAKY, BROKEN} else {"x-message-ttl": 0}
        channel.queue_declare(way.source, durable=True, arguments={**dies, **expires})
    channel.queue_declare(ATTACHED.source, durable=True, arguments={"x-queue-type": "quorum"})
    for way in (SWIFT_WAY, SINGLE, FAN, ATTACHED):
        for place in way.places:
            channel.queue_declare(place, durable=True, arguments={"x-queue-type": "quorum"})
        channel.exchange_declare(way.source, "fanout", durable=True)
    for place in FAN.places:
        channel.exchange_declare(FAN_OUT, "fanout", durable=True)
        channel.queue_bind(place, FAN_OUT)
    channel.queue_declare(NARROW, durable=True, arguments={**dies, "x-message-ttl": 0})
    channel.queue_declare(f"{NARROW}.dead", durable=True, arguments={"x-dead-letter-exchange": INBOX})
    channel.exchange_declare(NARROW, "fanout", durable=True)
    channel.queue_bind(f"{NARROW}.dead", NARROW)
    for way in (SWIFT_WAY, SINGLE, ATTACHED):
        channel.queue_bind(way.places[0], way.source)
    bind_fan(channel)
    channel.queue_declare(IDLE, durable=True, arguments={"x-queue-type": "quorum"})


def bind_fan(channel: Any) -> None:
    """One binding lets a letter reach both queues or none."""
    channel.exchange_bind(FAN_OUT, FAN.source)


def _taken(channel: Any, queue: str) -> Iterator[tuple[str, bytes, str]]:
    for method, properties, body in channel.consume(queue, inactivity_timeout=0.5, auto_ack=True):
        if method is None:
            break
        yield queue, body, (properties.headers or {}).get("dlx-router-id", "")
    channel.cancel()


def soon(look: Callable[[], T], within: float, every: float = 0.05) -> T:
    """The first truthy answer, or the last one after `within` seconds. While the broker is away there is none."""
    deadline = time.monotonic() + within
    while True:
        answer = look()
        if answer or time.monotonic() > deadline:
            return answer
        time.sleep(every)
