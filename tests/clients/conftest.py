"""A broker that speaks all its protocols, and `desk`: a vhost, a router and an index of each test's own.

A client that is not installed skips its tests, and fails them in CI: `make test-clients` installs all of them.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import pytest

from tests.conftest import NAMED
from tests.support.client import Client
from tests.support.router import Router
from tests.support.vhost import Vhost
from tools import brokers

pytest.register_assert_rewrite("tests.clients.sameness")

from tests.clients.sameness import Desk  # noqa: E402 - its assertions tell more so

MODULES: Final = Path(__file__).parents[2] / "build/clients/node_modules"
POLICIES: Final = """
version: 1
policies:
  - {name: all, match: "#", definition: {max-delivery-attempts: 2, redelivery-delay: 100ms}}
  - name: mqtt
    match: "work.mqtt"
    definition: {dead-letter-exchange: amq.topic, dead-letter-routing-key: dead.mqtt}
"""


@pytest.fixture(scope="session", params=NAMED or ["4.3"])
def broker(request: pytest.FixtureRequest) -> Iterator[brokers.Node]:
    """A node with MQTT and STOMP; `ports` has theirs."""
    ports = {name: brokers.free_port() for name in ("mqtt", "stomp")}
    config = {f"{name}.listeners.tcp.1": f"127.0.0.1:{port}" for name, port in ports.items()}
    plugins = (*brokers.PLUGINS, "rabbitmq_mqtt", "rabbitmq_stomp")
    try:
        with brokers.running(request.param, plugins=plugins, config=config) as node:
            node.ports |= ports
            yield node
    except brokers.BrokerMissingError as error:
        missing(str(error))


def missing(why: str) -> None:
    """Skips, and fails in CI."""
    if os.environ.get("CI") == "true":
        pytest.fail(why)
    pytest.skip(why)


@pytest.fixture
def library() -> Callable[[str], Any]:
    """library("celery") → the module."""

    def load(name: str) -> Any:
        try:
            return import_module(name)
        except ImportError as error:
            return missing(f"{name} is not installed ({error}); make test-clients installs it")

    return load


@pytest.fixture
def node() -> str:
    """The program, where the clients from npm are there."""
    program = shutil.which("node")
    if program is None or not MODULES.is_dir():
        missing("Node.js or its clients are not installed; make test-clients installs them")
    return program or ""


@pytest.fixture
def desk(vhost: Vhost, amqp: Client, start_router: Callable[..., Router], tmp_path: Path) -> Desk:
    """A router whose index is empty."""
    index = tmp_path / "index.sqlite"
    router = start_router(POLICIES, INDEX_PATH=str(index))
    return Desk(vhost, router, amqp, index)
