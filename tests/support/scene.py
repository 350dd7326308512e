"""The scene that the tests of one file share: a vhost, a router in it, and queues whose letters it gets."""

from dataclasses import dataclass
from typing import Any

from tests.support.bulk import INBOX, PARKING
from tests.support.client import Client, Message
from tests.support.router import Router
from tests.support.vhost import Vhost


@dataclass(frozen=True)
class Scene:
    """Each test names queues of its own."""

    vhost: Vhost
    router: Router
    amqp: Client

    def work(self, name: str, kind: str = "classic", **arguments: Any) -> str:
        """Declare a work queue that dead-letters into the inbox; gives the name."""
        return self.amqp.queue(name, kind, dead_letter_exchange=INBOX, **arguments)

    def parked(self) -> Message:
        """The next letter in parking, acknowledged."""
        return self.amqp.take(PARKING)

    def settled(self, action: str) -> float:
        """How many letters had this fate."""
        return self.router.metric("settled_total", action=action)


def deaths(message: Message) -> list[tuple[str, str, int]]:
    """Header x-death in short: (queue, reason, count), newest first."""
    return [(death["queue"], death["reason"], death["count"]) for death in message.deaths]
