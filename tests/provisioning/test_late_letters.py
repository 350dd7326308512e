"""What comes to a vhost while destroy or apply is at work in it."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final
from urllib.parse import urlsplit

import httpx
import pytest

from tests.provisioning.test_provision import INBOX, Commands
from tests.support.client import Client
from tests.support.eventually import eventually
from tests.support.serving import serving

POLICY: Final = "version: 1\npolicies: [{name: a, match: 'orders.#', definition: {max-delivery-attempts: 1}}]\n"


@pytest.fixture
def commands(commands: Commands) -> Commands:
    commands.write(POLICY)
    return commands


class Relay(ThreadingHTTPServer):
    """The management API; before it is asked this for the `nth` time, `meanwhile` is done. `end`: of the path."""

    daemon_threads = True

    def __init__(self, url: str, asked: tuple[str, str], nth: int, meanwhile: Callable[[], None]) -> None:
        parts = urlsplit(url)
        self._there = httpx.Client(base_url=f"http://{parts.hostname}:{parts.port}", timeout=60, trust_env=False)
        self._asked, self._left, self._meanwhile, self._lock = asked, nth, meanwhile, threading.Lock()
        relay = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                answer = relay.ask(self.command, self.path, dict(self.headers), body)
                self.send_response(answer.status_code)
                self.end_headers()
                self.wfile.write(answer.content)

            def do_PUT(self) -> None:
                self.do_GET()

            def do_POST(self) -> None:
                self.do_GET()

            def do_DELETE(self) -> None:
                self.do_GET()

            def log_message(self, *_: object) -> None:
                """Not on stderr."""

        super().__init__(("127.0.0.1", 0), Handler)
        self.url = url.replace(f"{parts.hostname}:{parts.port}", f"127.0.0.1:{self.server_port}")

    def ask(self, method: str, path: str, headers: dict[str, str], body: bytes) -> httpx.Response:
        """The answer of the broker."""
        with self._lock:
            self._left -= method == self._asked[0] and urlsplit(path).path.endswith(self._asked[1])
            if self._left == 0:
                self._left = -1
                self._meanwhile()
        kept = {key: value for key, value in headers.items() if key.lower() in {"authorization", "content-type"}}
        return self._there.request(method, path, headers=kept, content=body)

    def server_close(self) -> None:
        super().server_close()
        self._there.close()


@contextmanager
def before(commands: Commands, method: str, end: str, meanwhile: Callable[[], None], *, nth: int = 1) -> Iterator[str]:
    """An address of the management API."""
    with serving(Relay(commands.vhost.management_url, (method, end), nth, meanwhile)) as relay:
        yield relay.url


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_a_letter_that_comes_after_the_last_count_and_before_its_exchange_goes_stays(
    commands: Commands, amqp: Client
) -> None:
    """Its inbox was deleted with it."""
    commands.apply()

    def late() -> None:
        with Client(commands.vhost.amqp_url) as client:
            client.publish(b"late", exchange=INBOX, key="")
            eventually(lambda: client.depth(INBOX) == 1)

    with before(commands, "DELETE", f"/exchanges/{commands.vhost.quoted}/{INBOX}", late) as url:
        done = commands.run("destroy", MANAGEMENT_URL=url)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "all queues stay, and only policies and exchanges were removed" in done.stderr
    assert f"queue {INBOX} holds 1 letter" in done.stderr
    assert amqp.take(INBOX).body == b"late"
    assert commands.run("destroy").returncode == 0


@pytest.mark.usefixtures("newest")
def test_apply_does_what_is_right_when_it_does_it(commands: Commands) -> None:
    """A policy that somebody made after the plan would stand above those of apply, and the broker catch nothing."""
    commands.declare("orders.new", queue_type="quorum")

    def late() -> None:
        commands.vhost.policy("theirs", "^orders", {"max-length": 7}, priority=900)

    ledger = f"dlx-router.ledger%20{commands.vhost.quoted}"  # a plan begins with it
    with before(commands, "GET", ledger, late, nth=2) as url:
        done = commands.run("apply", MANAGEMENT_URL=url)
    assert done.returncode == 1, done.stdout + done.stderr
    assert 'policy "theirs" of priority 900' in done.stdout + done.stderr
    assert set(commands.policies()) == {"theirs"}


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_apply_changes_nothing_where_somebody_made_it_unsafe_meanwhile(commands: Commands) -> None:
    commands.declare("orders.new", queue_type="quorum")
    inbox = partial(commands.declare, INBOX, queue_type="classic")
    with before(commands, "GET", f"dlx-router.ledger%20{commands.vhost.quoted}", inbox, nth=2) as url:
        done = commands.run("apply", MANAGEMENT_URL=url)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "somebody else declared it" in done.stderr
    assert "nothing was changed" in done.stderr
    assert commands.policies() == {}
