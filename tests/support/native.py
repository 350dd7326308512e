"""A client of AMQP 1.0 that shares no code with the router: python-qpid-proton. RabbitMQ speaks it since 4.0."""

from collections.abc import Iterable, Mapping
from typing import Any, Self
from urllib.parse import quote, urlsplit

import pytest

from tests.support.vhost import Vhost


class Native:
    """One connection to one vhost. Skips the test where the broker or this machine does not speak AMQP 1.0."""

    def __init__(self, vhost: Vhost) -> None:
        if vhost.broker.version.startswith("3."):
            pytest.skip("AMQP 1.0 is a plugin there")
        self.proton = pytest.importorskip("proton")
        utils = pytest.importorskip("proton.utils")
        parts = urlsplit(vhost.amqp_url)
        self._connection = utils.BlockingConnection(
            f"amqp://{parts.username or 'guest'}:{parts.password or 'guest'}@{parts.hostname}:{parts.port}",
            timeout=120, allowed_mechs="PLAIN", virtual_host=f"vhost:{vhost.name}",
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def publish(self, queue: str, messages: Iterable[Mapping[str, Any]]) -> None:
        """Confirmed, one by one; each as proton.Message has it, and durable data."""
        sender = self._connection.create_sender(_address(queue))
        for message in messages:
            sender.send(self.proton.Message(**{"body": b"odd", "inferred": True, "durable": True, **message}))
        sender.close()

    def take(self, queue: str) -> Any:
        """The next message, accepted."""
        receiver = self._connection.create_receiver(_address(queue), credit=1)
        message = receiver.receive(timeout=120)
        message.body = bytes(message.body)  # it is a view of memory that the library uses again
        receiver.accept()
        receiver.close()
        return message


def _address(queue: str) -> str:
    return f"/queues/{quote(queue, safe='')}"
