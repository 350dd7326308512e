"""`bench`: a vhost, a router in it that leads, and what workers ask of it."""

from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass, field
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
class Bench:
    """`receive` and `change` speak to the API; queues die into the inbox."""

    vhost: Vhost
    amqp: Client
    router: Router
    token: str | None = None
    headers: dict[str, str] = field(default_factory=dict)

    def post(self, path: str, body: Any) -> httpx.Response:
        """The answer; a caller that asks too often asks again."""
        url = f"http://127.0.0.1:{self.router.port}/api/v1{path}"
        headers = {"authorization": f"Bearer {self.token}"} if self.token else {}

        def answered() -> httpx.Response:
            answer = httpx.post(url, json=body, headers=headers, timeout=40, trust_env=False, verify=NO_TLS)
            assert answer.status_code != 429 or "too many requests" not in answer.text, answer.text
            return answer

        return eventually(answered, 60, every=0.1)

    def asked(self, queue: str, **asked: Any) -> httpx.Response:
        return self.post(f"/queues/{queue}/receive", {"vhost": self.vhost.name, **asked})

    def receive(self, queue: str, **asked: Any) -> list[dict[str, Any]]:
        """The letters; asked again while the router does not lead yet."""

        def led() -> httpx.Response:
            answer = self.asked(queue, **asked)
            assert answer.status_code == 200, f"{answer.status_code} {answer.text}"
            return answer

        letters: list[dict[str, Any]] = eventually(led, 30, every=0.1).json()["letters"]
        return letters

    def change(self, letter: dict[str, Any], action: str, **more: Any) -> httpx.Response:
        return self.post(f"/leases/{letter['handle']}", {"action": action, **more})

    def ended(self, letter: dict[str, Any], action: str, **more: Any) -> str:
        """What the answer to an action says."""
        answer = self.change(letter, action, **more)
        assert answer.status_code == 200, f"{answer.status_code} {answer.text}"
        return str(answer.json()["ended"])

    def failed(self, queue: str, bodies: list[str], kind: str = "classic", **properties: Any) -> str:
        """These letters were rejected at `queue`; gives the name of its dead-letter queue."""
        self.amqp.queue(queue, kind, dead_letter_exchange=INBOX)
        for number, body in enumerate(bodies):
            own = {"message_id": f"{queue}-{number}", "headers": {"number": number}, **properties}
            self.amqp.publish(body, key=queue, **own)
        for _ in bodies:
            self.amqp.fail(queue)
        name = f"DLQ.{queue}"
        eventually(lambda: self.amqp.exists(name) and self.amqp.depth(name) == len(bodies), 60)
        return name


def body_of(letter: dict[str, Any]) -> str:
    return b64decode(letter["body"]).decode()


@pytest.fixture(scope="module")
def _shared(broker: brokers.Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Vhost, Router]]:
    folder = tmp_path_factory.mktemp("bench")
    with begun(broker, folder, POLICY, env={"INDEX_PATH": str(folder / "index")}) as vhost_and_router:
        yield vhost_and_router


@pytest.fixture
def bench(_shared: tuple[Vhost, Router], request: pytest.FixtureRequest) -> Iterator[Bench]:
    """The file's vhost and router; each test names queues of its own."""
    vhost, router = _shared
    request.node.stash[ROUTERS] = [router]
    with Client(vhost.amqp_url) as client:
        yield Bench(vhost, client, router)
