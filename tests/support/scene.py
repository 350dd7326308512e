"""The scene that the tests of one file share: a vhost, a router in it, and queues whose letters it gets."""

import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.support.bulk import INBOX, PARKING
from tests.support.client import Client, Message
from tests.support.router import Router
from tests.support.vhost import Vhost
from tools import brokers

_numbers: Final = itertools.count(1)


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


@contextmanager
def begun(
    broker: brokers.Broker,
    folder: Path,
    policies: str,
    *,
    attached: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
    wait: bool = True,
) -> Iterator[tuple[Vhost, Router]]:
    """A vhost with these queues and a router in it, for a whole file; its files are in `folder`, which names both.

    `wait`: it is ready.
    """
    (folder / "policies.yaml").write_text(policies, encoding="utf-8")
    with ExitStack() as stack:
        vhost = Vhost.make(broker, f"{folder.name.rstrip('0123456789')}{next(_numbers)}-{os.getpid()}")
        stack.callback(vhost.close)
        with Client(vhost.amqp_url) as client:
            for queue in attached:
                client.queue(queue)
        urls = {"amqp_url": vhost.amqp_url, "management_url": vhost.management_url}
        router = Router(**urls, policies=folder, log=folder / "router.log", env=env)
        stack.callback(router.close)
        router.start(wait=wait)
        yield vhost, router


def deaths(message: Message) -> list[tuple[str, str, int]]:
    """Header x-death in short: (queue, reason, count), newest first."""
    return [(death["queue"], death["reason"], death["count"]) for death in message.deaths]
