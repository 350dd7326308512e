"""`scene`: one vhost and one router for all tests of a file that ask for it, because each start takes a second.

The file says POLICIES (YAML), and ATTACHED, the queues that it attaches besides the inbox.
"""

from collections.abc import Iterator
from functools import partial

import pytest

from tests.conftest import ROUTERS
from tests.support.bulk import PARKING, QUARANTINE, law_holds
from tests.support.client import Client
from tests.support.eventually import eventually
from tests.support.router import Router
from tests.support.scene import Scene, begun
from tests.support.vhost import Vhost
from tools import brokers


@pytest.fixture(scope="module")
def _shared(
    broker: brokers.Broker, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Vhost, Router]]:
    attached = getattr(request.module, "ATTACHED", ())
    folder = tmp_path_factory.mktemp("scene")
    with begun(broker, folder, request.module.POLICIES, attached=attached, wait=False) as vhost_and_router:
        yield vhost_and_router


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
