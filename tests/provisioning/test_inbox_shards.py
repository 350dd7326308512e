"""Inbox shards on a real broker: letters spread over inboxes, and their number changed while letters come."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final

import httpx
import pytest

from dlx_router.core.inbox_shards import shard_of
from tests.provisioning.test_provision import Commands
from tests.support.bulk import DEAD, law_holds, pour, take_many
from tests.support.client import Client
from tests.support.eventually import consistently, eventually
from tests.support.router import Router
from tests.support.vhost import Vhost
from tools import brokers
from tools.brokers.cluster import Cluster

Start = Callable[..., Router]
INBOXES: Final = ("dlx-router.inbox", *(f"dlx-router.inbox.{number}" for number in range(1, 4)))
QUEUES: Final = [f"work.{number}" for number in range(16)]
LINE: Final = "line"
POLICIES: Final = """version: 1
policies:
  - {name: work, match: "work.#", definition: {max-delivery-attempts: 1, dead-letter-exchange: dead}}
  - {name: line, queue: line, definition: {ordering: fifo, max-delivery-attempts: 1, dead-letter-exchange: lined}}
"""


@pytest.fixture
def commands(vhost: Vhost, amqp: Client, tmp_path: Path) -> Commands:
    """The commands, and a queue for all that died; one for what is in order."""
    for name in ("dead", "lined"):
        amqp.exchange(name, "topic")
        amqp.bind(amqp.queue(name), name, "#")
    made = Commands(vhost, tmp_path)
    made.write(POLICIES)
    return made


@pytest.fixture
def shared(tmp_path: Path) -> dict[str, str]:
    """What replicas have in common."""
    key = tmp_path / "key"
    key.write_text("k" * 32, encoding="utf-8")
    return {"PROVENANCE_KEY_FILE": str(key), "HEARTBEAT": "2"}


def applied(commands: Commands, shards: int) -> None:
    done = commands.run("apply", INBOX_SHARDS=str(shards))
    assert done.returncode == 0, done.stdout + done.stderr


def plan(commands: Commands, shards: int) -> dict[str, Any]:
    planned: dict[str, Any] = json.loads(commands.run("plan", "--json", INBOX_SHARDS=str(shards)).stdout)["vhosts"][0]
    return planned


@pytest.mark.slow
def test_letters_of_many_queues_come_by_four_inboxes(
    commands: Commands, amqp: Client, start_router: Start, vhost: Vhost
) -> None:
    for queue in QUEUES[:8]:
        amqp.queue(queue, message_ttl=0)
    router = start_router(POLICIES, INBOX_SHARDS="4")
    applied(commands, 4)
    for queue in QUEUES[8:]:  # those that come later have their shard at once
        amqp.queue(queue, message_ttl=0)
    for queue in QUEUES:
        eventually(partial(leads, commands, queue, INBOXES[shard_of(queue, 4)]), 20)
    for queue in QUEUES:
        pour(amqp, queue, [f"{queue} {number}" for number in range(20)])
    messages = take_many(amqp, "dead", 20 * len(QUEUES))
    assert Counter(message.body.decode().partition(" ")[0] for message in messages) == dict.fromkeys(QUEUES, 20)
    expected = Counter(shard_of(queue, 4) for queue in QUEUES)
    assert len(expected) == 4, "each shard has queues of this test"
    for shard, queues in expected.items():
        assert router.metric("deliveries_total", source=INBOXES[shard]) == 20 * queues
    eventually(lambda: law_holds(router), 10)
    eventually(lambda: ready_series(router) >= {*INBOXES}, 10)
    assert plan(commands, 4)["steps"] == [], "queues that came later change nothing"
    assert "inbox shards" not in commands.run("doctor", INBOX_SHARDS="4").stdout


def leads(commands: Commands, queue: str, exchange: str) -> bool:
    return (commands.effective(queue) or {}).get("dead-letter-exchange") == exchange


def ready_series(router: Router) -> set[str]:
    return {dict(labels).get("queue", "") for (name, labels) in router.metrics() if name == "dlx_router_messages_ready"}


class Producer:
    """Letters of all queues, one after the other, each confirmed; `sent` is what surely died."""

    def __init__(self, url: str) -> None:
        self._url, self._stop = url, Event()
        self.sent: list[str] = []
        self._thread = Thread(target=self._run)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._stop.set()
            self._thread.join()

    def has_sent(self, least: int) -> bool:
        return len(self.sent) >= least

    def _run(self) -> None:
        with Client(self._url) as client:
            number = 0
            while not self._stop.is_set():
                for queue in (*QUEUES, LINE):
                    client.publish(f"{queue} {number}", key=queue)
                    self.sent.append(f"{queue} {number}")
                number += 1


@pytest.mark.slow
def test_a_rolling_change_of_their_number_loses_and_doubles_no_letter(
    commands: Commands, amqp: Client, start_router: Start, shared: dict[str, str], vhost: Vhost
) -> None:
    """1 → 4 → 2, replica by replica, with letters on their way; what is in order stays so."""
    routers = [start_router(POLICIES, INBOX_SHARDS="1", **shared)]
    applied(commands, 1)
    for queue in (*QUEUES, LINE):
        amqp.queue(queue, "quorum", message_ttl=0)
    producer = Producer(vhost.amqp_url)

    def replaced(shards: int) -> None:
        routers.append(start_router(POLICIES, INBOX_SHARDS=str(shards), **shared))

    with producer.at_work():
        for shards in (4, 2):
            eventually(partial(producer.has_sent, len(producer.sent) + 100), 30)
            steps = [partial(applied, commands, shards), partial(replaced, shards)]
            for step in steps if shards == 4 else reversed(steps):  # in either order
                step()
            assert routers[-2].stop() == 0
        eventually(partial(producer.has_sent, len(producer.sent) + 100), 30)
    in_line = [body for body in producer.sent if body.startswith(f"{LINE} ")]
    spread = [body for body in producer.sent if not body.startswith(f"{LINE} ")]
    took = [message.body.decode() for message in take_many(amqp, "dead", len(spread), within=60)]
    assert sorted(took) == sorted(spread)
    assert [message.body.decode() for message in take_many(amqp, "lined", len(in_line), within=60)] == in_line
    consistently(lambda: amqp.depth("dead") == amqp.depth("lined") == 0, for_s=1)
    assert [amqp.depth(inbox) for inbox in INBOXES] == [0] * 4


@pytest.mark.slow
def test_an_inbox_that_is_not_named_any_more_is_drained_and_then_said(
    commands: Commands, amqp: Client, start_router: Start
) -> None:
    start_router(POLICIES, INBOX_SHARDS="4").stop()
    applied(commands, 4)
    pour(amqp, INBOXES[3], ["left behind"], {"x-death": [{**DEAD["x-death"][0], "queue": "work.1"}]})
    notes = [note["text"] for note in plan(commands, 2)["notes"]]
    assert any(f"queue {INBOXES[3]} is an inbox that" in text for text in notes), notes
    router = start_router(POLICIES, INBOX_SHARDS="2")
    assert take_many(amqp, "dead", 1)[0].body == b"left behind"
    applied(commands, 2)
    eventually(lambda: "inbox.3" in router.ask("/readyz?verbose")[1] + router.ask("/readyz")[1], 10)
    eventually(lambda: is_noted(commands, "it is empty: delete the queue"), 20, every=1)
    assert f"{INBOXES[3]} is an inbox that DLX_ROUTER_INBOX_SHARDS=2" in commands.run("doctor", INBOX_SHARDS="2").stdout
    amqp.channel.queue_delete(INBOXES[3])
    eventually(lambda: INBOXES[3] not in ready_series(router), 10)
    pour(amqp, INBOXES[2], ["one more"], {"x-death": [{**DEAD["x-death"][0], "queue": "work.1"}]})
    assert take_many(amqp, "dead", 1)[0].body == b"one more"
    assert "session.ended" not in router.output
    assert router.metric("broker_connected") == 1


def is_noted(commands: Commands, what: str) -> bool:
    return any(what in note["text"] for note in plan(commands, 2)["notes"])


@pytest.mark.slow
def test_destroy_takes_all_inboxes_away_and_none_with_letters_in_it(
    commands: Commands, amqp: Client, start_router: Start, vhost: Vhost
) -> None:
    """Also where it is told of fewer than there are."""
    start_router(POLICIES, INBOX_SHARDS="4").stop()
    applied(commands, 4)
    pour(amqp, INBOXES[3], ["a letter"], DEAD)
    refused = commands.run("destroy", "--yes")
    assert refused.returncode == 1, refused.stdout
    assert f"{INBOXES[3]} holds 1 letter" in refused.stdout
    take_many(amqp, INBOXES[3], 1)
    eventually(lambda: commands.run("destroy", "--yes", "--with-journal").returncode == 0, 30, every=1)
    assert [queue for queue in vhost.queues() if queue.startswith("dlx-router.")] == []


@pytest.mark.usefixtures("newest")
def test_a_router_without_the_management_api_drains_old_inboxes_too(
    amqp: Client, commands: Commands, start_router: Start, vhost: Vhost
) -> None:
    start_router(POLICIES, INBOX_SHARDS="4").stop()
    pour(amqp, INBOXES[3], ["left behind"], {"x-death": [{**DEAD["x-death"][0], "queue": "work.1"}]})
    start_router(POLICIES, INBOX_SHARDS="1", MANAGEMENT_URL="")
    assert take_many(amqp, "dead", 1)[0].body == b"left behind"


@pytest.mark.slow
def test_in_a_cluster_all_nodes_lead_inboxes_and_doctor_says_so(broker: brokers.Broker, tmp_path: Path) -> None:
    if not isinstance(broker, brokers.Node):
        pytest.skip("a cluster is made of nodes of our own")
    (tmp_path / "p.yaml").write_text(POLICIES, encoding="utf-8")
    cluster = Cluster(broker.program)
    node = cluster.nodes[0]
    urls = {"amqp_url": node.amqp_url, "management_url": node.management_url}
    router = Router(**urls, policies=tmp_path, log=tmp_path / "router.log", env={"INBOX_SHARDS": "4"})
    try:
        router.start(within=60)
        asked = {"AMQP_URL": node.amqp_url, "MANAGEMENT_URL": node.management_url, "INBOX_SHARDS": "4"}
        eventually(partial(is_spread, node, tmp_path, asked), 30, every=1)
    finally:
        router.close()
        cluster.close()


def is_spread(node: brokers.Node, policies: Path, asked: dict[str, str]) -> bool:
    rows = httpx.get(f"{node.management_url}/api/queues/%2F", timeout=60, trust_env=False).json()
    led = Counter(row["leader"] for row in rows if row["name"] in INBOXES)
    assert (len(led), sum(led.values())) == (3, 4), led
    named = {f"DLX_ROUTER_{key}": value for key, value in asked.items()}
    argv = [sys.executable, "-m", "dlx_router", "doctor", "--policies", str(policies), "--json"]
    done = subprocess.run(argv, env={**os.environ, **named}, capture_output=True, text=True, check=False)
    (check,) = [check for check in json.loads(done.stdout) if check["check"] == "inbox shards"]
    assert check["level"] == "ok", check
    return True
