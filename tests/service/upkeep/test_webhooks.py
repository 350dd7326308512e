"""A router that tells real receivers what really happened; and what a restart, a storm and a dead receiver do."""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from standardwebhooks import Webhook

from tests.support.bulk import INBOX, dying_queue, pour
from tests.support.client import Client
from tests.support.eventually import consistently, eventually
from tests.support.plain_http import NO_TLS
from tests.support.receiver import Receiver
from tests.support.router import Router
from tests.support.vhost import Vhost
from tests.webhooks.test_signature import SECRET

# They tell what the router decided and wrote, which other tests hold on every version.
pytestmark = pytest.mark.usefixtures("newest")

POLICIES: Final = """
version: 1
policies:
  - name: orders
    match: "orders.#"
    definition: {max-delivery-attempts: 1}
  - name: busy
    match: "busy.#"
    definition: {max-delivery-attempts: 5, redelivery-delay: 60s, outage: {deaths: 3, within: 10s, probe-every: 60s}}
"""
CONSOLE: Final = "https://console.example"
HIDDEN: Final = "T0PSECRET"


class Told:
    """A router with webhooks, and what its receivers got."""

    def __init__(self, folder: Path, vhost: Vhost, amqp: Client, begin: Callable[..., Router]) -> None:
        self.folder, self.vhost, self.amqp, self._begin = folder, vhost, amqp, begin
        self._bodies = count()
        self.receiver = Receiver()
        self.router: Router
        (folder / "secret").write_text(SECRET, encoding="utf-8")

    def write(self, *entries: str) -> str:
        """The file of webhooks; without entries all events go to the receiver."""
        rest = f"secret-file: {self.folder}/secret, allow-addresses: 127.0.0.0/8"
        mine = f"name: mine, format: cloudevents, url: '{self.receiver.url(f'/{HIDDEN}')}', {rest}"
        lines = ["webhooks:", *(f"  - {{{entry.replace('REST', rest)}}}" for entry in entries or (mine,))]
        path = self.folder / "webhooks.yaml"
        path.write_text("\n".join(lines), encoding="utf-8")
        return str(path)

    def start(self, *entries: str, index: str = "index", **env: str) -> Router:
        """It leads, and what happens from now on is told when this returns."""
        given = {"WEBHOOKS_FILE": self.write(*entries), "CONSOLE_URL": CONSOLE, "INDEX_PATH": str(self.folder / index)}
        self.router = self._begin(POLICIES, **given, **env)
        eventually(lambda: "webhooks.began" in self.router.output, 30, every=0.1)
        return self.router

    def events(self, kind: str = "") -> list[dict[str, Any]]:
        """What came, each verified as its receiver would."""
        events = [Webhook(SECRET).verify(post.body, dict(post.headers)) for post in [*self.receiver.posts]]
        return [event for event in events if event["type"] == f"dlx-router.{kind}" or not kind]

    def event(self, kind: str, within: float = 20) -> dict[str, Any]:
        """The first of a kind."""
        return eventually(lambda: self.events(kind), within, every=0.1)[0]

    def fail(self, queue: str, letters: int = 1) -> None:
        """So many letters are rejected in it, each unlike the others: twins that die in one second are told once."""
        self.amqp.queue(queue, dead_letter_exchange=INBOX)
        pour(self.amqp, queue, (b"%d" % next(self._bodies) for _ in range(letters)))
        for _ in range(letters):
            self.amqp.fail(queue)

    def ask(self, method: str, path: str, body: Any = None) -> httpx.Response:
        url = f"http://127.0.0.1:{self.router.port}/api/v1{path}"
        return httpx.request(
            method, url, json=body, params={"vhost": self.vhost.name}, timeout=60, trust_env=False, verify=NO_TLS
        )

    def groups(self, queue: str) -> list[str]:
        """Ids of the groups of a failed queue, as far as the index has them."""
        return [group["id"] for group in self.ask("GET", "/groups").json()["groups"] if group["failed_queue"] == queue]

    def task(self, queue: str) -> str:
        """The id of a new task that sends the letters of this queue back; "" while it cannot be."""
        answer = self.ask("POST", "/tasks", {"vhost": self.vhost.name, "queue": queue, "rate": 0})
        return str(answer.json()["id"]) if answer.status_code == 201 else ""


@pytest.fixture
def told(tmp_path: Path, vhost: Vhost, amqp: Client, start_router: Callable[..., Router]) -> Iterator[Told]:
    scene = Told(tmp_path, vhost, amqp, start_router)
    yield scene
    scene.receiver.close()


@pytest.mark.slow
def test_what_happens_is_told_with_its_page_and_nothing_is_sent_inside(told: Told) -> None:
    """Beside the receiver the file names the router itself, and a name that leads to this machine."""
    router = told.start()
    mine, inside = f"name: mine, format: cloudevents, url: '{told.receiver.url(f'/{HIDDEN}')}', REST", "format: teams"
    itself = f"name: itself, {inside}, url: 'http://127.0.0.1:{router.port}/api/v1/index/rebuild', REST"
    told.write(mine, itself, f"name: local, {inside}, url: 'https://localhost:{told.receiver.port}/{HIDDEN}'")
    eventually(lambda: "itself" in router.output, 30, every=0.1)
    told.fail("orders.eu")
    told.fail("stray", 3)
    told.fail("busy.one", 5)
    (group,) = eventually(lambda: told.groups("orders.eu"), 10, every=0.1)
    answer = told.ask("PATCH", f"/groups/{group}", {"state": "resolved"})
    assert answer.status_code == 200, answer.text
    told.fail("orders.eu")
    created = eventually(lambda: told.task("DLQ.orders.eu"), 10, every=0.1)
    opened = told.event("group.opened")["data"]
    assert group in {item["group"] for item in opened["items"]}
    (parked,) = told.event("letter.parked")["data"]["items"]
    assert parked["failed_queue"] == "stray"
    assert 1 <= parked["letters"] <= 3
    assert told.event("breaker.opened")["data"]["items"] == [{"failed_queue": "busy.one"}]
    returned = told.event("group.returned")["data"]
    assert returned["link"] == f"{CONSOLE}/groups/{group}"
    done = told.event("redrive.finished")["data"]
    assert done["items"][0]["task"] == created
    assert done["link"].startswith(f"{CONSOLE}/tasks/{created}?vhost=")
    eventually(lambda: router.metric("webhooks_total", result="delivered") == len(told.receiver.posts))
    assert router.metric("webhooks_total", result="refused") >= 2
    assert "that is this router" in router.output
    assert "a loopback address; nothing was sent" in router.output
    assert told.ask("GET", "/status").json()["index"]["rebuilds"] == 0
    assert HIDDEN not in router.output
    assert SECRET not in router.output


@pytest.mark.slow
def test_a_storm_of_ten_thousand_deaths_tells_a_handful_and_dead_receivers_cost_no_letter(told: Told) -> None:
    with Receiver(hangs=True) as hangs, Receiver(status=500) as fails:
        mine = f"name: mine, format: cloudevents, url: '{told.receiver.url()}', REST"
        dead = [
            f"name: dead{n}, format: slack, url: '{receiver.url(f'/{HIDDEN}')}', REST"
            for n, receiver in enumerate((hangs, fails))
        ]
        router = told.start(mine, *dead)
        for number in range(20):
            name = dying_queue(told.amqp, f"{'orders' if number % 2 else 'stray'}.q{number}")
            pour(told.amqp, name, (b"%d" % n for n in range(500)))
        settled = {"dead_letter": 5000, "park": 5000}
        for action, count in settled.items():
            eventually(lambda a=action, n=count: router.metric("settled_total", action=a) == n, 60, every=0.1)  # type: ignore[misc]  # of this turn
        told.event("group.opened")
        told.event("letter.parked")
        consistently(lambda: len(told.receiver.posts) <= 8, 2)
        assert all(len(event["data"]["items"]) <= 10 for event in told.events())
        eventually(lambda: fails.posts and router.metric("webhooks_total", result="failed"), 10)
        assert router.metric("webhooks_waiting", webhook="dead0") >= 1
        assert router.metric("webhooks_waiting", webhook="dead1") >= 1
        assert len(fails.posts) <= 12
        assert router.ask("/readyz")[0] == 200
        assert HIDDEN not in router.output + router.ask("/metrics")[1]


@pytest.mark.slow
def test_what_a_killed_router_could_not_send_the_next_one_finds_in_an_index_of_its_own(told: Told) -> None:
    told.receiver.status = 503
    router = told.start()
    told.fail("orders.eu")
    eventually(lambda: router.metric("webhooks_total", result="failed"), 20, every=0.1)
    router.kill()
    told.receiver.status = 204
    before = len(told.receiver.posts)
    told.start(index="another")
    eventually(lambda: len(told.receiver.posts) > before, 60, every=0.1)
    consistently(lambda: len(told.receiver.posts) == before + 1, 3)
