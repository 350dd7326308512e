"""Emptied queues beside a management API that answers as one whose node starts: no answer is no evidence."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest

from dlx_router.broker.management import Management, ManagementError
from dlx_router.broker.topology import Topology
from dlx_router.service.upkeep import emptied_queues
from tests.broker.scene import NAMES, where
from tests.support.client import Client
from tests.support.eventually import consistently, eventually
from tests.support.vhost import Vhost

DEAD = "DLQ.orders"
STARTING: list[tuple[int, bytes]] = [
    (500, b'{"error":"internal_server_error","reason":"..."}'),
    (503, b""),
    (200, b""),
    (200, b"[]"),
    (200, b"{}"),
    (200, b'"starting"'),
    (200, b'[{"routing_key": "orders"}]'),
    (200, b'{"type": "direct"}'),
    (200, b'{"messages": 0, "state": "down"}'),
    (200, b'{"messages": 0, "state": "minority"}'),
    (200, b'{"messages": ""}'),
]


class Api:
    """The management API of a node that starts: `answer` to everything, or, None, what a sound one says."""

    def __init__(self) -> None:
        self.answer: tuple[int, bytes] | None = None
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                status, body = api.answer or (200, api.sound(self.path))
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Not on stderr."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://guest:guest@127.0.0.1:{self._server.server_port}"
        Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def sound(self, path: str) -> bytes:
        binding = {"routing_key": "orders", "destination": DEAD, "destination_type": "queue"}
        answer: Any = {"messages": 0, "state": "running"}
        if "/bindings/source" in path:
            answer = [binding]
        elif "/exchanges/" in path:
            answer = {"type": "direct"}
        return json.dumps(answer).encode()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def api() -> Iterator[Api]:
    server = Api()
    yield server
    server.close()


class Scene:
    """The task, on a real vhost, beside an index that counts two letters in each of two places."""

    def __init__(self, vhost: Vhost, api: Api) -> None:
        self.emptied: list[str] = []
        self.places = [
            {"vhost": vhost.name, "exchange": exchange, "routing_key": key, "n": 2}
            for exchange, key in (("", DEAD), ("dlx", "orders"))
        ]
        self.topology, self.management = Topology(*where(vhost), None, NAMES), Management(api.url)
        leads = SimpleNamespace(is_ours=True)
        leases = SimpleNamespace(queues=set())
        self.attendant: Any = SimpleNamespace(vhost=vhost.name, leadership=leads, topology=self.topology, leases=leases)
        index: Any = SimpleNamespace(
            reader=SimpleNamespace(places=lambda: self.places),
            status={"vhosts": {vhost.name: {"state": "current"}}},
            emptied=lambda _vhost, exchange, _key, _until: self.emptied.append(exchange),
        )
        self.attendants: Any = {vhost.name: self.attendant}
        self.looks = emptied_queues.EmptiedQueues(index, self.attendants, self.management)
        self.unaided = emptied_queues.EmptiedQueues(index, self.attendants, None)  # by AMQP alone

    def depths(self) -> list[int | None]:
        return [self.looks.to_document(place, limited=False)["depth"] for place in self.places]

    async def until(self, wanted: Any, *, or_else: Any = None) -> None:
        await asyncio.to_thread(eventually, lambda: self.depths() in (wanted, or_else), 10)

    async def close(self) -> None:
        await self.management.close()
        await self.topology.close()


@pytest.fixture
async def scene(vhost: Vhost, amqp: Client, api: Api, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    monkeypatch.setattr(emptied_queues, "EVERY_S", 0.05)
    amqp.queue(DEAD, "quorum")
    for body in (b"1", b"2"):
        amqp.publish(body, key=DEAD)
    subject = Scene(vhost, api)
    await subject.topology.connect()
    watching = asyncio.create_task(subject.looks.watch())
    yield subject
    assert not watching.done(), "the task goes on"
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    await subject.close()


@pytest.mark.usefixtures("newest")
async def test_it_survives_a_node_that_starts_and_tells_nothing_that_it_did_not_see(
    scene: Scene, api: Api, amqp: Client
) -> None:
    seen, unknown = 2, None
    await scene.until([seen, seen])
    for answer in STARTING[:7]:
        api.answer = answer
        await scene.until([unknown, unknown], or_else=[seen, unknown])  # AMQP alone tells of a queue by its name
        api.answer = None
        await scene.until([seen, seen])
    amqp.channel.queue_purge(DEAD)  # a passive look at a queue that has no leader says the same
    for answer in STARTING[7:]:
        api.answer = answer
        await scene.until([unknown, unknown])
        assert await asyncio.to_thread(consistently, lambda: scene.depths() == [unknown, unknown], for_s=0.3)
    assert scene.emptied == []
    api.answer = None
    await scene.until([0, 0])
    await asyncio.to_thread(eventually, lambda: {*scene.emptied} == {"", "dlx"}, 10)


@pytest.mark.usefixtures("newest")
async def test_a_connection_that_goes_while_it_looks_leaves_nothing_known(scene: Scene) -> None:
    await scene.until([2, 2])
    scene.attendant.topology = None
    await scene.until([None, None])
    scene.attendant.topology = scene.topology
    await scene.until([2, 2])


@pytest.mark.usefixtures("newest")
async def test_the_letters_of_a_queue_that_was_deleted_are_gone_once_everybody_says_so(
    scene: Scene, api: Api, amqp: Client
) -> None:
    del scene.places[1]
    await scene.until([2])
    amqp.channel.queue_delete(DEAD)
    api.answer = (200, b'{"type": "quorum", "messages": 2, "state": "running"}')
    await scene.until([None])
    assert await asyncio.to_thread(consistently, lambda: scene.depths() == [None], for_s=0.3)
    assert scene.emptied == []
    api.answer = (404, b'{"error":"Object Not Found","reason":"Not Found"}')
    await scene.until([0])
    await asyncio.to_thread(eventually, lambda: {*scene.emptied} == {""}, 10)
    amqp.queue(DEAD, "quorum")
    amqp.publish(b"3", key=DEAD)
    await scene.until([1])


@pytest.mark.usefixtures("newest")
async def test_a_vhost_that_is_left_while_it_is_looked_at_is_looked_at_to_the_end(
    vhost: Vhost, amqp: Client, api: Api
) -> None:
    scene = Scene(vhost, api)
    amqp.queue("a")
    scene.places = [{"vhost": vhost.name, "exchange": "", "routing_key": "a", "n": 1}]
    scene.attendants.clear()
    await scene.unaided._look(scene.attendant, scene.topology, scene.places)
    assert scene.unaided.to_document(scene.places[0], limited=False)["depth"] == 0
    await scene.close()


@pytest.mark.parametrize("answer", STARTING[:6])
async def test_an_answer_of_another_form_is_an_error_of_the_api(api: Api, answer: tuple[int, bytes]) -> None:
    api.answer = answer
    client = Management(api.url)
    try:
        if answer != (200, b"[]"):
            with pytest.raises(ManagementError):
                await client.queues("/", ".*")
        with pytest.raises(ManagementError):
            await client.standing("/", NAMES)
    finally:
        await client.close()
