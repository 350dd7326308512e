"""Reads that end a connection, and the broker's consumer_timeout: which leases end by them, and what is answered."""

import asyncio
import time
import uuid
from pathlib import Path

import pytest

from dlx_router.client.worker import WorkerError, receive
from tests.leases.conftest import Bench
from tests.support.bulk import DEAD
from tests.support.client import Client
from tests.support.eventually import eventually
from tests.support.native import Native
from tests.support.policies import POLICY
from tests.support.router import Router
from tests.support.vhost import Vhost
from tools import brokers

UUID_PROPERTY = {"properties": {"id": uuid.UUID(int=1)}}


def poisoned(bench: Bench, queue: str) -> str:
    """A dead-letter queue with three letters and, behind them, a message that AMQP 0-9-1 cannot express."""
    if bench.vhost.broker.version.startswith("3."):
        pytest.skip("RabbitMQ 3 converts what it cannot express")
    name = bench.failed(queue, ["first", "second", "third"], "quorum")
    with Native(bench.vhost) as native:
        native.publish(name, [{**UUID_PROPERTY, "body": b"poison"}])
    bench.vhost.put(
        f"policies/{bench.vhost.quoted}/limit",
        {"pattern": "^DLQ", "definition": {"delivery-limit": 1_000_000}, "apply-to": "queues"},
    )
    return name


def test_a_failed_read_ends_no_lease_and_is_answered_with_the_reason(bench: Bench) -> None:
    queue, other = poisoned(bench, "read.a"), bench.failed("read.b", ["other"])
    (held,), (elsewhere,) = bench.receive(queue, visibility="10m"), bench.receive(other, visibility="10m")
    refused = bench.asked(queue, max=10)
    assert (refused.status_code, "is not read" in refused.json()["error"]) == (409, True), refused.text
    letters = bench.receive(queue, max=10)
    assert [bench.ended(letter, "done") for letter in letters] == ["done", "done"]
    assert bench.ended(held, "done") == "done"
    assert bench.ended(elsewhere, "done") == "done"


async def test_a_worker_does_not_ask_again_for_what_cannot_be_read(bench: Bench) -> None:
    queue = await asyncio.to_thread(poisoned, bench, "read.c")
    url, began = f"http://127.0.0.1:{bench.router.port}", time.monotonic()
    with pytest.raises(WorkerError, match="is not read") as refused:
        await anext(receive(queue, url=url, vhost=bench.vhost.name, batch=10))
    assert refused.value.status == 409
    assert time.monotonic() - began < 25, "it retries what is answered with 503 for 30 s"


SHORT_MS = 15_000
SHORT = {"consumer_timeout": str(SHORT_MS), "channel_tick_interval": "500", "quorum_tick_interval": "500"}


@pytest.mark.slow
def test_a_short_consumer_timeout_changes_no_leader_and_bounds_leases_where_it_must(
    own_broker: brokers.Node, tmp_path: Path
) -> None:
    """From 4.3 on a consumer of a quorum queue sets its own; before, the first lease that is too long shows it."""
    own_broker.start()
    for name, value in SHORT.items():
        own_broker.rabbitmqctl("eval", f"application:set_env(rabbit, {name}, {value}).")
    vhost = Vhost.make(own_broker, "short")
    (tmp_path / "policies.yaml").write_text(POLICY, encoding="utf-8")
    urls = {"amqp_url": vhost.amqp_url, "management_url": vhost.management_url}
    key = tmp_path / "key"
    key.write_text("k" * 32, encoding="utf-8")
    env = {"PROVENANCE_KEY_FILE": str(key)}
    router = Router(**urls, policies=tmp_path, log=tmp_path / "router.log", env=env).start()
    with Client(vhost.amqp_url) as client:
        client.queue("DLQ.work", "quorum", delivery_limit=1_000_000)
        client.publish("hello", key="DLQ.work", headers=DEAD)
        bench, ends_by_itself = Bench(vhost, client, router), not own_broker.version.startswith("4.3")
        (letter,) = bench.receive("DLQ.work", visibility="2m", not_a_dead_letter_queue=True)
        if ends_by_itself:
            eventually(lambda: "lease.consumer_timeout" in router.output, 60)
            late = bench.asked("DLQ.work", visibility="2m", not_a_dead_letter_queue=True)
            assert (late.status_code, "for 12 s" in late.json()["error"]) == (409, True), late.text
            (letter,) = bench.receive("DLQ.work", visibility="12s", wait=5, not_a_dead_letter_queue=True)
        else:
            time.sleep(SHORT_MS / 1000 * 2)  # the lease is to outlast the broker's timeout
        assert bench.ended(letter, "done") == "done"
    assert router.output.count("leader.changed") == 1
    router.close()
    vhost.close()
