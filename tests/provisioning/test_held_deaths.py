"""Deaths that wait in a quorum queue outlive an apply that changes its RabbitMQ policies."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.provisioning.test_provision import INBOX, Commands
from tests.support.client import Client
from tests.support.eventually import eventually
from tests.support.vhost import Vhost
from tools import brokers

RESEND: Final = "dead_letter_worker_publisher_confirm_timeout"
SOON_MS: Final = 20_000  # so long what has no way waits to be sent again: apply has taken its steps by then
LETTERS: Final = 5
ORDERS: Final = 'version: 1\npolicies:\n  - {name: orders, match: "orders.#", definition: {message-ttl: 1h}}\n'
WIDER: Final = '  - {name: rest, match: "#"}\n'


@contextmanager
def resending(broker: brokers.Broker) -> Iterator[None]:
    """What is not confirmed RabbitMQ sends again soon, and not after 180 s."""
    broker.rabbitmqctl("eval", f"application:set_env(rabbit, {RESEND}, {SOON_MS}).")
    try:
        yield
    finally:
        broker.rabbitmqctl("eval", f"application:set_env(rabbit, {RESEND}, 180000).")


def pending(vhost: Vhost) -> int:
    count: int = vhost.get(f"queues/{vhost.quoted}/orders.new").get("messages_dlx", 0)
    return count


def close_inbox(vhost: Vhost) -> None:
    """Nothing that dies has a way until the inbox is bound again, and apply binds it before it touches policies."""
    place = f"bindings/{vhost.quoted}/e/{INBOX}/q/{INBOX}"
    for binding in vhost.get(place):
        vhost.api.delete(f"{place}/{binding['properties_key']}").raise_for_status()


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_deaths_that_wait_outlive_an_apply_by_which_their_policies_fall(
    broker: brokers.Broker, vhost: Vhost, amqp: Client, tmp_path: Path
) -> None:
    if not broker.managed:
        pytest.skip("its settings are not ours to change")
    commands = Commands(vhost, tmp_path)
    commands.write(ORDERS + WIDER)
    commands.declare("orders.new", queue_type="quorum")
    with resending(broker):
        commands.apply()
        eventually(lambda: "dead-letter-strategy" in (commands.effective("orders.new") or {}), 20)
        close_inbox(vhost)
        for number in range(LETTERS):
            amqp.publish(str(number), key="orders.new")
            amqp.fail("orders.new")
        eventually(lambda: pending(vhost) == LETTERS, 15)
        commands.write(ORDERS)
        assert "~ policy" in commands.apply()
        eventually(lambda: amqp.depth(INBOX) == LETTERS, 60)
