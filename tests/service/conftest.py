"""`scene`: one vhost and one router for all tests of a file that ask for it, because each start takes a second.

The file says POLICIES (YAML), and ATTACHED, the queues that it attaches besides the inbox.
"""

import itertools
import os
from collections.abc import Iterator
from functools import partial
from typing import Final

import pytest

from tests.conftest import ROUTERS
from tests.support.bulk import PARKING, QUARANTINE, law_holds
from tests.support.client import Client
from tests.support.eventually import eventually
from tests.support.router import Router
from tests.support.scene import Scene
from tests.support.vhost import Vhost
from tools import brokers

_numbers: Final = itertools.count(1)


@pytest.fixture(scope="module")
def _shared(
    broker: brokers.Broker, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Vhost, Router]]:
    vhost = Vhost.make(broker, f"scene{next(_numbers)}-{os.getpid()}")
    folder = tmp_path_factory.mktemp("scene")
    (folder / "policies.yaml").write_text(request.module.POLICIES, encoding="utf-8")
    with Client(vhost.amqp_url) as client:
        for queue in getattr(request.module, "ATTACHED", ()):
            client.queue(queue)
    log = folder / "router.log"
    router = Router(amqp_url=vhost.amqp_url, management_url=vhost.management_url, policies=folder, log=log)
    router.start(wait=False)
    yield vhost, router
    router.close()
    vhost.close()


@pytest.fixture
def scene(_shared: tuple[Vhost, Router], request: pytest.FixtureRequest) -> Iterator[Scene]:
    """The file's router, parking and quarantine empty; afterwards deliveries = settled + given back + in flight."""
    vhost, router = _shared
    request.node.stash[ROUTERS] = [router]
    router.await_ready()
    with Client(vhost.amqp_url) as client:
        client.channel.queue_purge(PARKING)
        client.channel.queue_purge(QUARANTINE)
        yield Scene(vhost, router, client)
    eventually(partial(law_holds, router), within=5)
