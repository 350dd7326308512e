"""Who looks, over a real index and real receivers: leaders come and go, none tells twice. The vhost is a stand-in."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from standardwebhooks import Webhook

from dlx_router.core.signature import Signature
from dlx_router.index.schema import open_writer
from dlx_router.index.store import Message, Store
from dlx_router.index.supervisor import Supervisor
from dlx_router.journal.audit import audit
from dlx_router.redrive.task import Spec, State, Task
from dlx_router.service.redrive.task_log import NotLeader
from dlx_router.service.upkeep import webhooks
from dlx_router.service.upkeep.webhooks import Webhooks
from dlx_router.telemetry.metrics import Metrics
from dlx_router.telemetry.readiness import Readiness
from dlx_router.telemetry.wall_clock import wall_ms
from dlx_router.webhooks import outbox
from dlx_router.webhooks.sender import Sender
from tests.core.core_samples import letter
from tests.journal.journal_samples import RULING, line
from tests.service.vhost.test_leadership import of_a_vhost
from tests.support.eventually import patience
from tests.support.receiver import Receiver
from tests.webhooks.test_signature import SECRET

CURRENT: Final = {"state": "current", "behind_ms": 0}


class Runner:
    """A vhost as `Webhooks` sees it. What it records comes into the index as the journal would bring it."""

    def __init__(self, scene: "Scene") -> None:
        self.leadership, self.journal, self.tasks = of_a_vhost(), self, self
        self.states: dict[str, str] = {}
        self.found: list[Task] | None = []  # None: the journal of tasks is being read
        self._scene = scene

    def record(self, recorded: bytes) -> None:
        self._scene.put(recorded)

    def all(self) -> list[Task]:
        if self.found is None:
            raise NotLeader("the journal is being read")
        return self.found

    def breakers(self) -> dict[str, str]:
        return dict(self.states)


class Scene:
    """An index file, a file of webhooks with one receiver, and a vhost."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.receiver, self.runner = folder, Receiver(), Runner(self)
        self.store = Store(open_writer(folder / "index", max_bytes=1 << 30))
        self.index = Supervisor(folder / "index", "journal", lambda _vhost: ((), None, None), Readiness())  # type: ignore[arg-type,return-value]  # nobody connects
        self.index.status = {"vhosts": {"/": CURRENT}, "rebuilds": 0}
        self.readiness, self.metrics, self._offset = Readiness(), Metrics(), 0
        self.readiness.clear("start")
        (folder / "secret").write_text(SECRET, encoding="utf-8")
        self.write()

    def write(self, url: str | None = None) -> None:
        """The file of webhooks."""
        rest = f"format: cloudevents, secret-file: {self.folder}/secret, allow-addresses: 127.0.0.0/8"
        text = f"webhooks:\n  - {{name: mine, url: '{url or self.receiver.url()}', {rest}}}\n"
        (self.folder / "webhooks.yaml").write_text(text, encoding="utf-8")

    def put(self, recorded: bytes, signature: Signature = Signature.OK) -> None:
        """Into the index."""
        self.store.apply("/", [Message(self._offset, recorded, signature)])
        self._offset += 1

    def die(
        self,
        number: int,
        queue: str = "orders",
        kind: str = "dead_lettered",
        at_ms: int | None = None,
        letters: int = 1,
    ) -> None:
        """A letter dies, or several at once, now."""
        now, ruling = wall_ms() if at_ms is None else at_ms, RULING._replace(kind=kind)
        several = (letter(id=f"{number + more:032x}", failed_queue=queue) for more in range(letters))
        self.put(b"".join(line(item, ruling, now_ms=now) for item in several))

    @asynccontextmanager
    async def leading(self, readiness: Readiness | None = None) -> AsyncIterator[Metrics]:
        """A router leads the vhost, and tells."""
        metrics = Metrics()
        hooks = Webhooks(
            self.folder / "webhooks.yaml",
            Sender("dlx-router", None, 1),
            index=self.index,
            attendants={"/": self.runner},  # type: ignore[dict-item]  # a stand-in
            metrics=metrics,
            readiness=readiness or self.readiness,
            router_id="r",
        )
        async with self.runner.leadership.held(None, shared=None):  # type: ignore[arg-type]  # without a queue of state
            watching = asyncio.create_task(hooks.watch())
            try:
                yield metrics
            finally:
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)

    def events(self, kind: str = "") -> list[dict[str, Any]]:
        """What came, verified."""
        events = [Webhook(SECRET).verify(post.body, dict(post.headers)) for post in [*self.receiver.posts]]
        return [event for event in events if not kind or event["type"] == f"dlx-router.{kind}"]

    def audits(self, action: str) -> list[dict[str, Any]]:
        """What was written down."""
        return [details for _, details in self.index.reader.audits_of("/", (action,), 0)]

    def close(self) -> None:
        """Nothing stays open."""
        self.receiver.close()
        self.store.close()
        self.index.reader.close()


async def soon(look: Callable[[], object], within: float = 10) -> None:
    """`eventually`, of a test in the loop."""
    deadline = time.monotonic() + patience(within)
    while not look():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(webhooks, "LOOK_S", 0.02)
    monkeypatch.setattr(outbox, "INTERVAL_MS", 50)
    subject = Scene(tmp_path)
    yield subject
    subject.close()


async def test_what_dies_from_now_on_is_told_and_nothing_that_died_before(scene: Scene) -> None:
    scene.die(1, "old", at_ms=wall_ms() - 60_000)
    scene.die(2, "old", "parked", at_ms=wall_ms() - 60_000)
    async with scene.leading():
        await soon(lambda: scene.audits("webhook.began"))
        scene.die(3, "orders")
        await soon(lambda: scene.events("group.opened"))
        scene.die(4, "stray", "parked")
        await soon(lambda: scene.events("letter.parked"))
        scene.runner.states = {"busy": "open"}
        await soon(lambda: scene.events("breaker.opened"))
    assert [item["failed_queue"] for event in scene.events("group.opened") for item in event["data"]["items"]][:1] == [
        "orders"
    ]
    assert "old" not in json.dumps(scene.events())


async def test_nothing_is_told_before_the_index_knows_the_journal(scene: Scene) -> None:
    scene.index.status = {"vhosts": {"/": {"state": "reading", "behind_ms": 600_000}}, "rebuilds": 0}
    async with scene.leading():
        scene.die(1)
        await asyncio.sleep(0.3)  # as long as it is looked in vain
        assert (scene.audits("webhook.began"), scene.receiver.posts) == ([], [])
        scene.index.status = {"vhosts": {"/": CURRENT}, "rebuilds": 0}
        await soon(lambda: scene.events("group.opened"))


async def test_the_next_leader_tells_what_came_meanwhile_and_nothing_again(scene: Scene) -> None:
    async with scene.leading():
        await soon(lambda: scene.audits("webhook.began"))
        scene.die(1, "first")
        await soon(lambda: scene.audits("webhook.told"))
    scene.die(2, "meanwhile")  # while nobody leads
    async with scene.leading():
        await soon(lambda: len(scene.audits("webhook.told")) == 2)
        await asyncio.sleep(0.2)  # in which nothing else is told
    queues = [item["failed_queue"] for event in scene.events() for item in event["data"]["items"]]
    assert queues == ["first", "meanwhile"]


async def test_a_task_that_was_told_is_not_told_again_though_the_next_leader_learns_of_it_late(scene: Scene) -> None:
    async with scene.leading():
        await soon(lambda: scene.audits("webhook.began"))
        scene.runner.found = [Task("t1", Spec("/", "dlq"), State.DONE, changed_ms=wall_ms(), change=3)]
        await soon(lambda: scene.audits("webhook.told"))
    finished, scene.runner.found = scene.runner.found, None
    async with scene.leading():
        scene.die(1)
        await soon(lambda: scene.events("group.opened"))
        scene.runner.found = finished
        scene.runner.states = {"busy": "open"}
        await soon(lambda: scene.events("breaker.opened"))
        await asyncio.sleep(0.1)  # in which nothing else is told
    assert len(scene.events("redrive.finished")) == 1


async def test_a_told_event_that_no_router_signed_keeps_nothing_from_being_told(scene: Scene) -> None:
    """Whoever may publish to the default exchange can write into the journal."""
    async with scene.leading():
        await soon(lambda: scene.audits("webhook.began"))
    scene.die(1)
    (group,) = scene.index.reader.groups_since("/", 0)
    details = {"to": "mine", "kind": "group.opened", "keys": [group.id], "ts_ms": wall_ms()}
    forged = audit("r", "/", actor="router", action="webhook.told", details=details, ts_ms=wall_ms())
    scene.put(forged, Signature.NONE)
    scene.put(forged.replace(b"audit-", b"audit-1"), Signature.BAD)
    async with scene.leading():
        await soon(lambda: scene.events("group.opened"))


async def test_a_file_that_breaks_is_noted_and_what_was_in_force_stays(scene: Scene) -> None:
    async with scene.leading():
        await soon(lambda: scene.audits("webhook.began"))
        (scene.folder / "webhooks.yaml").write_text("webhooks: 7", encoding="utf-8")
        await soon(scene.readiness.notes)
        assert "webhooks.yaml:1" in scene.readiness.notes()[0]
        assert scene.readiness.ready
        scene.die(1)
        await soon(lambda: scene.events("group.opened"))
        scene.write()
        await soon(lambda: not scene.readiness.notes())
