"""`desk`: a router with letters, a token and an index, and a console as a process of its own beside it."""

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import httpx
import pytest

from tests.conftest import ROUTERS
from tests.console.liar import TOKEN, csrf
from tests.support.bulk import INBOX
from tests.support.client import Client
from tests.support.eventually import eventually
from tests.support.plain_http import NO_TLS
from tests.support.router import Router
from tests.support.vhost import Vhost
from tools import brokers
from tools.brokers import free_port

POLICIES: Final = """
version: 1
policies:
  - name: all
    match: "#"
    definition: {max-delivery-attempts: 1, journal: {body: final}}
"""
TOKENS: Final = f"tokens:\n  - {{name: olga, token: {TOKEN}, role: operator}}\n"
_numbers = itertools.count(1)


@dataclass
class Desk:
    """A console, and what a test does around it. `web` is logged in."""

    vhost: Vhost
    router: Router
    amqp: Client
    web: httpx.Client
    url: str

    def kill(self, queue: str, count: int, error: str = "order 17 timed out") -> None:
        """Letters that are rejected in this queue."""
        self.amqp.queue(queue, dead_letter_exchange=INBOX)
        for number in range(count):
            body = json.dumps({"order": number, "coupon": "SPRING" if number % 2 else None})
            headers = {"x-error-message": error, "x-error-type": "TimeoutError"}
            self.amqp.publish(body, key=queue, headers=headers, content_type="application/json")
            self.amqp.fail(queue)
        eventually(lambda: len(self.rows("/letters", queue=queue)) == count or None, 20, every=0.1)

    def rows(self, path: str, **query: str) -> list[dict[str, object]]:
        """A list as JSON."""
        answer = self.web.get(path, params={**query, "format": "json"})
        assert answer.status_code == 200, answer.text
        rows: list[dict[str, object]] = answer.json()
        return rows

    def send(self, page: str, path: str, **fields: str) -> httpx.Response:
        """A form of this page; where it leads."""
        word = csrf(self.web.get(page).text)
        return self.web.post(path, data={"csrf": word, **fields}, headers={"origin": self.url})


@pytest.fixture(scope="module")
def _shared(broker: brokers.Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Vhost, Router, str]]:
    vhost = Vhost.make(broker, f"console{next(_numbers)}-{os.getpid()}")
    folder = tmp_path_factory.mktemp("console")
    (folder / "policies").mkdir()
    (folder / "policies" / "a.yaml").write_text(POLICIES, encoding="utf-8")
    (folder / "tokens.yaml").write_text(TOKENS, encoding="utf-8")
    (folder / "key").write_text("a key that sessions outlive a restart by", encoding="utf-8")
    env = {"INDEX_PATH": str(folder / "index.sqlite"), "API_TOKENS_FILE": str(folder / "tokens.yaml")}
    env["PROVENANCE_KEY_FILE"] = str(folder / "key")
    router = Router(
        amqp_url=vhost.amqp_url,
        management_url=vhost.management_url,
        policies=folder / "policies",
        log=folder / "router.log",
        env=env,
    )
    router.start(wait=False)
    port = free_port()
    argv = [sys.executable, "-m", "dlx_router", "console", "--router", f"one=http://127.0.0.1:{router.port}"]
    with (folder / "console.log").open("wb") as log:
        console = subprocess.Popen([*argv, "--port", str(port)], stdout=log, stderr=log, cwd=Path(__file__).parents[2])
    try:
        yield vhost, router, f"http://127.0.0.1:{port}"
    finally:
        console.terminate()
        assert console.wait(10) in {0, -15}, (folder / "console.log").read_text()
        router.close()
        vhost.close()


@pytest.fixture
def desk(_shared: tuple[Vhost, Router, str], request: pytest.FixtureRequest) -> Iterator[Desk]:
    """The file's router and console, ready."""
    vhost, router, url = _shared
    request.node.stash[ROUTERS] = [router]
    router.await_ready(40)
    with Client(vhost.amqp_url) as amqp, httpx.Client(base_url=url, timeout=60, trust_env=False, verify=NO_TLS) as web:

        def logged_in() -> bool:
            try:
                return web.post("/login", data={"token": TOKEN}).status_code == 303
            except httpx.TransportError:
                return False

        eventually(lambda: logged_in() or None, 20, every=0.5)
        yield Desk(vhost, router, amqp, web, url)
