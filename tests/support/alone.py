"""A router, its vhost and its client on a node that nobody else uses, for what disturbs a whole broker."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.support.client import Client
from tests.support.router import Router
from tests.support.vhost import Vhost
from tools import brokers


@contextmanager
def alone(
    node: brokers.Node, folder: Path, policies: str, env: Mapping[str, str] | None = None
) -> Iterator[tuple[Router, Client]]:
    """The router is not started yet; it and the vhost are gone after the block."""
    vhost = Vhost.make(node, "alone")
    (folder / "policies.yaml").write_text(policies, encoding="utf-8")
    router = Router(amqp_url=vhost.amqp_url, policies=folder, log=folder / "log", env=dict(env or {}))
    try:
        with Client(vhost.amqp_url) as amqp:
            yield router, amqp
    finally:
        router.close()
        vhost.close()


def refuse_over(node: brokers.Node, size: int) -> None:
    """The node takes no larger body from now on; 3.10 tells a channel so as it opens."""
    limited = f"application:set_env(rabbit, max_message_size, {size}), persistent_term:put(max_message_size, {size})."
    node.rabbitmqctl("eval", limited)
