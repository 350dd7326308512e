"""docs/migrate-retry-queues.md: the ways over that it tells work on a real broker, with the policies that it shows."""

from collections.abc import Callable
from typing import Final

import pytest

from tests.docs.pages import ROOT
from tests.support.bulk import record
from tests.support.client import Client
from tests.support.eventually import eventually
from tests.support.router import Router

Start = Callable[..., Router]

POLICIES: Final = ROOT / "docs/examples/retry-queues"
RUNG: Final = "dlx-router.delay.30000"
pytestmark = pytest.mark.usefixtures("newest")


def test_letters_of_a_loop_go_on_where_they_were_once_its_retry_queue_is_attached(
    amqp: Client, start_router: Start
) -> None:
    amqp.queue("emails", dead_letter_exchange="", dead_letter_routing_key="emails.retry")
    amqp.queue("emails.retry", dead_letter_exchange="", dead_letter_routing_key="emails", message_ttl=200)
    amqp.publish("hello", key="emails")
    for _ in range(3):
        amqp.fail("emails")
    waiting = amqp.await_message("emails")
    router = start_router(POLICIES)
    waiting.reject()
    assert eventually(lambda: amqp.exists(RUNG) and amqp.depth(RUNG) == 1)
    held = amqp.await_message(RUNG)
    assert (record(held)["attempts"], record(held)["state"]) == (4, "retrying"), "three of the loop, and this one"
    assert router.metric("settled_total", action="retry") == 1
