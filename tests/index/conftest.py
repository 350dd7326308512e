"""`desk`: one vhost and one router with an index for all tests of a file; each test names queues of its own.

`store`: an index's writer by itself, in `file`.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from dlx_router.index.schema import open_writer
from dlx_router.index.store import Store
from tests.conftest import ROUTERS
from tests.support.bulk import INBOX, pour
from tests.support.client import Client
from tests.support.eventually import eventually
from tests.support.plain_http import NO_TLS
from tests.support.router import Router
from tests.support.scene import begun
from tests.support.vhost import Vhost
from tools import brokers

POLICIES = """
version: 1
policies:
  - name: all
    match: "#"
    definition: {max-delivery-attempts: 1, journal: {body: final}}
  - name: plain
    match: "plain.#"
    definition: {journal: {body: none}}
  - name: twice
    match: "twice.#"
    definition: {max-delivery-attempts: 2, redelivery-delay: 100}
  - name: hidden
    match: "hidden.#"
    definition:
      journal: {body: none, redact: [X-Error-Message, x-exception-message, x-exception-stacktrace, MT-Fault-Message]}
"""


@dataclass
class Desk:
    """A router with an index, and what a test does around it."""

    vhost: Vhost
    router: Router
    amqp: Client
    index: Path

    def work(self, name: str) -> str:
        """A work queue that dead-letters into the inbox."""
        return self.amqp.queue(name, "classic", dead_letter_exchange=INBOX)

    def kill(self, queue: str, *bodies: bytes | str, **properties: Any) -> None:
        """Letters that are rejected in this queue."""
        pour(self.amqp, queue, bodies, **properties)
        for _ in bodies:
            self.amqp.fail(queue)

    def get(self, path: str, **query: Any) -> tuple[int, Any]:
        """Status and document of a GET."""
        return self.ask("GET", path, params=query)

    def ask(self, method: str, path: str, **given: Any) -> tuple[int, Any]:
        """Status and document."""
        url = f"http://127.0.0.1:{self.router.port}/api/v1{path}"
        answer = httpx.request(method, url, timeout=60, trust_env=False, verify=NO_TLS, **given)
        return answer.status_code, answer.json() if answer.content else None

    def letters(self, count: int, within: float = 20, **query: Any) -> list[dict[str, Any]]:
        """Exactly so many letters, as soon as the index has them."""

        def listed() -> list[dict[str, Any]]:
            status, page = self.get("/letters", limit=1000, **query)
            assert status == 200, page
            assert len(page["letters"]) == count, f"{len(page['letters'])} of {count}"
            return page["letters"] or [{}]

        return eventually(listed, within, every=0.1)[:count]

    def groups(self, queue: str) -> list[dict[str, Any]]:
        """The groups of a failed queue."""
        status, page = self.get("/groups", queue=queue)
        assert status == 200, page
        groups: list[dict[str, Any]] = page["groups"]
        return groups

    def state(self) -> Mapping[str, Any]:
        """How the index is."""
        status, answer = self.get("/status")
        assert status == 200, answer
        index: Mapping[str, Any] = answer["index"]
        return index


@pytest.fixture(scope="module")
def _shared(broker: brokers.Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Vhost, Router, Path]]:
    folder = tmp_path_factory.mktemp("index")
    file = folder / "index.sqlite"
    with begun(broker, folder, POLICIES, env={"INDEX_PATH": str(file)}, wait=False) as (vhost, router):
        yield vhost, router, file


@pytest.fixture
def desk(_shared: tuple[Vhost, Router, Path], request: pytest.FixtureRequest) -> Iterator[Desk]:
    """The file's router, ready."""
    vhost, router, file = _shared
    request.node.stash[ROUTERS] = [router]
    router.await_ready(40)
    with Client(vhost.amqp_url) as client:
        yield Desk(vhost, router, client, file)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where an index is made."""
    return tmp_path / "index.sqlite"


@pytest.fixture
def store(file: Path) -> Iterator[Store]:
    """The writer of an empty index in `file`."""
    writer = Store(open_writer(file, max_bytes=1 << 30))
    yield writer
    writer.close()


def as_json(**document: Any) -> str:
    """A body."""
    return json.dumps(document)
