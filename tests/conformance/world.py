"""One scenario's corner of a vhost, played natively or through the router; the same words mean the same in both.

A source of a scenario is a queue that dead-letters. Natively it carries RabbitMQ's own arguments; in the routed world
its DLX is the inbox, and a policy of the same meaning stands in the router's file.
"""

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Self

from dlx_router.core.names import Names
from tests.conformance.differences import PARKING
from tests.conformance.typed import Seen, seen, text
from tests.support.bulk import PARKING as PARKING_QUEUE
from tests.support.client import Client, Message, Refused
from tests.support.eventually import consistently, eventually
from tests.support.raw import RawClient, RawMessage
from tests.support.vhost import Vhost

WITHIN_S: Final = 60  # of a machine that has time for others only; nothing waits so long that comes
LOOK_S: Final = 0.1  # many scenarios look at once


@dataclass(frozen=True)
class Dies:
    """Where letters of a source go: a DLX of the scenario's ("" the default exchange) and a key instead of their own.

    `to`: the key is the name of this queue of the scenario.
    """

    exchange: str = ""
    key: str | None = None
    to: str | None = None


class Parked:
    """What the router parked, collected as it comes: body → message. One for all scenarios of a run."""

    def __init__(self, vhost: Vhost) -> None:
        self.found: dict[bytes, list[Seen]] = {}
        self._ended = threading.Event()
        self._url = vhost.amqp_url
        self._thread = threading.Thread(target=self._collect, name="parked")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _collect(self) -> None:
        with RawClient(self._url) as raw:
            while not self._ended.wait(LOOK_S):
                while (message := raw.get(PARKING_QUEUE)) is not None:
                    self.found.setdefault(message.body, []).append(seen(message))


@dataclass
class World:
    """`parked` tells the routed world from the native one. Bodies are told apart by the scenario's name."""

    vhost: Vhost
    prefix: str
    dies: Mapping[str, Dies]
    parked: Parked | None = None
    drops: bool = False  # the broker itself drops what `comes` on this version, natively
    queues: list[str] = field(default_factory=list)
    exchanges: list[str] = field(default_factory=list)
    taken: dict[str, list[RawMessage]] = field(default_factory=dict)
    causes: dict[str, str] = field(default_factory=dict)

    def __enter__(self) -> Self:
        self.amqp = Client(self.vhost.amqp_url)
        self.raw = RawClient(self.vhost.amqp_url)
        return self

    def __exit__(self, *_: object) -> None:
        self.amqp.close()
        self.raw.close()

    # -- topology -----------------------------------------------------------------------------------------------------

    def name(self, short: str) -> str:
        """The full name of a queue or exchange of this scenario."""
        return f"{self.prefix}.{short}" if short else ""

    def queue(self, short: str, kind: str = "classic", **arguments: Any) -> None:
        """A queue that letters end in."""
        self.amqp.queue(self.name(short), kind, **arguments)
        self.queues.append(short)

    def source(self, short: str, kind: str = "classic", *, safe: bool = False, **arguments: Any) -> None:
        """A queue whose letters go where `dies` says. `safe`: at-least-once dead lettering (quorum queues)."""
        if safe:
            kind = "quorum"
            arguments |= {"dead_letter_strategy": "at-least-once", "overflow": "reject-publish"}
        dead = {name.replace("-", "_"): value for name, value in self.death(short).items()}
        self.queue(short, kind, **dead, **arguments)

    def death(self, short: str) -> dict[str, str]:
        """The keys of a source that say where its letters go, as RabbitMQ's policies name them."""
        if self.parked is not None:
            return {"dead-letter-exchange": Names().inbox}
        dies = self.dies[short]
        key = self.name(dies.to) if dies.to else dies.key
        return {"dead-letter-exchange": self.name(dies.exchange)} | ({"dead-letter-routing-key": key} if key else {})

    def exchange(self, short: str, kind: str = "direct", **arguments: Any) -> None:
        """A durable exchange; `alternate_exchange="x"` as an argument."""
        table = {key.replace("_", "-"): self.name(value) for key, value in arguments.items()}
        self.exchanges.append(short)
        self.amqp.channel.exchange_declare(self.name(short), exchange_type=kind, durable=True, arguments=table)

    def bind(self, queue: str, exchange: str, key: str = "", **arguments: Any) -> None:
        """Route `key` of the exchange to the queue."""
        self.amqp.channel.queue_bind(self.name(queue), self.name(exchange), key, arguments=arguments)

    def policy(self, short: str, definition: Mapping[str, Any]) -> None:
        """A RabbitMQ policy for exactly this queue, in force when this returns."""
        name = self.name(short)
        self.vhost.policy(name, f"^{name.replace('.', '[.]')}$", definition)
        path = f"queues/{self.vhost.quoted}/{name}"
        eventually(lambda: self.vhost.get(path).get("policy") == name, WITHIN_S, every=LOOK_S)

    # -- messages -----------------------------------------------------------------------------------------------------

    def body(self, short: str) -> bytes:
        """What the message says that scenarios call so."""
        return f"{self.prefix}:{short}".encode()

    def publish(self, queue: str, *bodies: str, exchange: str = "", key: str | None = None, **properties: Any) -> None:
        """Persistent and confirmed; the key is the queue's name unless given."""
        key = self.name(queue) if key is None else key
        for body in bodies:
            self.amqp.publish(self.body(body), exchange=self.name(exchange), key=key, **properties)

    def publish_bytes(self, queue: str, body: bytes, properties: bytes) -> None:
        """With a property section byte for byte."""
        self.raw.publish(body, properties, key=self.name(queue))

    def refused(self, queue: str, *bodies: str) -> None:
        """Published, and refused by the queue."""
        for body in bodies:
            try:
                self.publish(queue, body)
            except Refused:
                continue
            raise AssertionError(f"{queue} took {body}")

    def get(self, queue: str, count: int = 1) -> list[Message]:
        """The next messages, unacknowledged."""
        return [self.await_one(queue) for _ in range(count)]

    def await_one(self, queue: str) -> Message:
        """The next message, unacknowledged."""
        name = self.name(queue)
        message = eventually(lambda: self.amqp.get(name), WITHIN_S, every=LOOK_S)
        assert message is not None
        return message

    def fail(self, queue: str, count: int = 1) -> None:
        """The next messages, rejected one by one."""
        for message in self.get(queue, count):
            message.reject()

    def crash(self, queue: str) -> None:
        """The next message is delivered to a consumer that dies with it."""
        with Client(self.vhost.amqp_url) as consumer:
            eventually(lambda: consumer.get(self.name(queue)), WITHIN_S, every=LOOK_S)

    def take(self, queue: str) -> RawMessage:
        """The next message, acknowledged; it counts as held by the queue."""
        name = self.name(queue)
        message = eventually(lambda: self.raw.get(name), WITHIN_S, every=LOOK_S)
        assert message is not None
        self.taken.setdefault(queue, []).append(message)
        return message

    def forward(self, queue: str, to: str) -> None:
        """A consumer publishes the next message again as it came, headers and all."""
        name = self.name(queue)
        message = eventually(lambda: self.raw.get(name), WITHIN_S, every=LOOK_S)
        assert message is not None
        self.publish_bytes(to, message.body, message.properties)

    # -- what is so ---------------------------------------------------------------------------------------------------

    def ends(self, _within_s: float = WITHIN_S, /, **depths: int) -> None:
        """So many are ready, some time soon."""

        def look() -> bool:
            counts = {short: self.amqp.depth(self.name(short)) for short in depths}
            assert counts == depths, f"{counts}, wanted {depths}"
            return True

        eventually(look, _within_s, every=LOOK_S)

    def comes(self, **depths: int) -> None:
        """As `ends`; where the broker drops it natively, which is a difference to be named, it is not there a while."""
        if self.drops and self.parked is None:
            self.stays(**dict.fromkeys(depths, 0))
        else:
            self.ends(**depths)

    def stays(self, **depths: int) -> None:
        """So many are ready, and nothing changes that for a while."""
        self.ends(**depths)
        consistently(
            lambda: all(self.amqp.depth(self.name(short)) == count for short, count in depths.items()),
            for_s=0.4,
            every=LOOK_S,
        )

    def parks(self, body: str, cause: str) -> None:
        """Natively it is gone; the router parks it and says why."""
        if self.parked is None:
            return
        self.causes[body] = cause
        bodies = self.parked.found
        eventually(lambda: self.body(body) in bodies, WITHIN_S, every=LOOK_S)

    def cleared(self) -> "World":
        """The same corner, emptied."""
        for queue in dict.fromkeys(self.queues):
            self.amqp.channel.queue_delete(self.name(queue))
        for exchange in self.exchanges:
            self.amqp.channel.exchange_delete(self.name(exchange))
        return World(self.vhost, self.prefix, self.dies, self.parked, self.drops)

    def depths(self) -> str:
        """What lies where in the vhost, in the router's queues and in those of the scenario; for people."""
        queues = self.vhost.get(f"queues/{self.vhost.quoted}?disable_stats=true&enable_queue_totals=true")
        mine = (queue for queue in queues if queue["name"].startswith(("dlx-router.", f"{self.prefix}.")))
        return ", ".join(
            f"{queue['name']} {queue['messages']} ({queue.get('messages_unacknowledged', 0)} unacknowledged)"
            for queue in mine
            if queue.get("messages")
        )

    def read(self, raw: RawClient) -> dict[str, tuple[Seen, ...]]:
        """All that the scenario's queues held and hold, in order."""
        outcome = {short: tuple(map(seen, [*self.taken.get(short, ()), *_all(raw, self.name(short))]))
                   for short in dict.fromkeys(self.queues)}  # fmt: skip
        outcome[PARKING] = tuple(self._parked())
        return outcome

    def _parked(self) -> list[Seen]:
        if self.parked is None:
            return []
        mine = f"{self.prefix}:".encode()
        held = [message for body, copies in self.parked.found.items() if body.startswith(mine) for message in copies]
        causes = {message.body: json.loads(text(message.names["dlx-router"]))["cause"] for message in held}
        assert causes == {self.body(body): cause for body, cause in self.causes.items()}, "parked, and why"
        return held


def _all(raw: RawClient, queue: str) -> list[RawMessage]:
    messages = []
    while (message := raw.get(queue)) is not None:
        messages.append(message)
    return messages


Play = Callable[[World], None]
