"""A reload whose policies need more rights than the router has changes nothing, until they are given."""

import signal
from collections.abc import Callable

import pytest

from tests.security.conftest import Admit, allow, url_for
from tests.support.bulk import INBOX
from tests.support.client import Client
from tests.support.eventually import eventually
from tests.support.router import Router
from tests.support.vhost import Vhost

OLD = 'version: 1\npolicies: [{name: work, match: "work.#"}]\n'
NEW = "version: 1\npolicies: [{name: orders, queue: orders, definition: {dead-letter-queue-prefix: 'made.'}}]\n"
OWN = r"^(dlx-router\..*|amq\.default|orders|DLQ\..*)$"
pytestmark = pytest.mark.usefixtures("newest")


@pytest.mark.slow
def test_what_the_broker_refuses_is_said_and_tried_again(
    vhost: Vhost, amqp: Client, admit: Admit, start_router: Callable[..., Router]
) -> None:
    amqp.queue("orders", dead_letter_exchange=INBOX)
    user = admit(OWN, OWN, OWN)
    router = start_router(OLD, AMQP_URL=url_for(vhost, user))
    (router.policies / "policies.yaml").write_text(NEW, encoding="utf-8")
    router.signal(signal.SIGHUP)
    eventually(lambda: router.metric("reloads_total", result="failure") >= 1, within=30)
    assert "made.orders" in router.ask("/readyz")[1], "what could not be had"
    allow(vhost, user, ".*", ".*", ".*")
    eventually(lambda: router.metric("reloads_total", result="success") == 1, within=40)
    assert "made.orders" in vhost.queues()
    assert router.metric("given_back_total") == 0
