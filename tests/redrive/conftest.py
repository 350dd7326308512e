"""`shop`: a vhost, a router in it that leads, and the API of its tasks."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.conftest import ROUTERS
from tests.support.bulk import INBOX
from tests.support.client import Client
from tests.support.eventually import eventually
from tests.support.plain_http import NO_TLS
from tests.support.policies import POLICY
from tests.support.router import Router
from tests.support.scene import begun
from tests.support.vhost import Vhost
from tools import brokers


@dataclass
class Shop:
    """`call` speaks to the API; queues die into the inbox."""

    vhost: Vhost
    amqp: Client
    router: Router

    def call(self, method: str, path: str, body: Any = None) -> httpx.Response:
        """The answer; a caller that asks too often asks again."""
        url = f"http://127.0.0.1:{self.router.port}/api/v1/tasks{path}"

        def answered() -> httpx.Response:
            answer = httpx.request(
                method, url, json=body, params={"vhost": self.vhost.name}, timeout=60, trust_env=False, verify=NO_TLS
            )
            assert answer.status_code != 429, answer.text
            return answer

        return eventually(answered, 20, every=0.1)

    def start(self, queue: str, **asked: Any) -> str:
        """The id of a new task."""

        def led() -> str:
            answer = self.call("POST", "", {"vhost": self.vhost.name, "queue": queue, "rate": 0, **asked})
            assert answer.status_code == 201, f"{answer.status_code} {answer.text}"
            return str(answer.json()["id"])

        return eventually(led, 30, every=0.1)

    def task(self, name: str) -> Any:
        """As the API shows it."""
        answer = self.call("GET", f"/{name}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    def receive(self, queue: str, **asked: Any) -> httpx.Response:
        """The answer to a request for letters of a queue."""
        url = f"http://127.0.0.1:{self.router.port}/api/v1/queues/{queue}/receive"
        body = {"vhost": self.vhost.name, "wait": 0, **asked}

        def answered() -> httpx.Response:
            answer = httpx.post(url, json=body, timeout=40, trust_env=False, verify=NO_TLS)
            assert answer.status_code not in {429, 503}, answer.text
            return answer

        return eventually(answered, 30, every=0.1)

    def ends(self, name: str, state: str = "done", within: float = 30) -> Any:
        """The task once it is in this state."""

        def over() -> Any:
            task = self.task(name)
            assert task["state"] == state, task
            return task

        return eventually(over, within, every=0.1)

    def ends_led(self, name: str, within: float, state: str = "done") -> Any:
        """As `ends`, asked of a router that may not lead yet."""
        eventually(lambda: self.call("GET", f"/{name}").status_code == 200, 20, every=0.1)
        return self.ends(name, state, within=within)

    def failed(self, queue: str, bodies: list[str]) -> str:
        """These letters were rejected at `queue`; gives the name of its dead-letter queue."""
        self.amqp.queue(queue, dead_letter_exchange=INBOX)
        for number, body in enumerate(bodies):
            self.amqp.publish(body, key=queue, message_id=f"m{number}", headers={"number": number})
        for _ in bodies:
            self.amqp.fail(queue)
        name = f"DLQ.{queue}"
        eventually(lambda: self.amqp.exists(name) and self.amqp.depth(name) == len(bodies), 60)
        return name


@pytest.fixture(scope="module")
def _shared(broker: brokers.Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Vhost, Router]]:
    folder = tmp_path_factory.mktemp("shop")
    with begun(broker, folder, POLICY) as vhost_and_router:
        yield vhost_and_router


@pytest.fixture
def shop(_shared: tuple[Vhost, Router], request: pytest.FixtureRequest) -> Iterator[Shop]:
    """The file's vhost and router; each test names queues of its own."""
    vhost, router = _shared
    request.node.stash[ROUTERS] = [router]
    with Client(vhost.amqp_url) as client:
        yield Shop(vhost, client, router)
