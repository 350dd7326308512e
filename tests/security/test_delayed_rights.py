"""The rights that `permissions` prints for a delayed exchange are enough; without one the router says which."""

from collections.abc import Callable
from pathlib import Path

import pytest

from dlx_router.config.policy_files.loader import load_policies
from dlx_router.config.rights.permissions import Need, Setup, needed
from dlx_router.core.names import Names
from tests.security.conftest import Admit, allow, rights_of, url_for
from tests.support.client import Client
from tests.support.eventually import eventually
from tests.support.router import Router
from tests.support.vhost import Vhost

POLICY = "version: 1\ndelayed: [{exchange: work.delayed, to: work}]\n"
pytestmark = pytest.mark.usefixtures("newest")


def test_the_printed_rights_are_enough_and_without_one_of_them_it_says_which(
    vhost: Vhost, amqp: Client, admit: Admit, start_router: Callable[..., Router], tmp_path: Path
) -> None:
    (tmp_path / "policies.yaml").write_text(POLICY, encoding="utf-8")
    loaded = load_policies(tmp_path)
    grant = needed(loaded.policies, (), Setup(Names(), journal=True), "/", loaded.delayed)
    amqp.bind(amqp.queue("jobs"), amqp.exchange("work", "fanout"))

    def lacks(need: Need) -> bool:
        return need.why.startswith("delayed exchange") and need.right == "configure" and "work" in need.names

    missing = next(need for need in grant.needs if lacks(need))
    user = admit(*rights_of(grant.without(missing)))
    router = start_router(tmp_path, wait=False, AMQP_URL=url_for(vhost, user))
    eventually(lambda: "access to exchange 'work.delayed'" in router.ask("/readyz")[1], within=20)
    allow(vhost, user, *rights_of(grant))
    router.await_ready()
    amqp.publish("hello", exchange="work.delayed", key="any", headers={"x-delay": 300})
    assert amqp.take("jobs").body == b"hello"
    assert "forbidden" not in router.output
