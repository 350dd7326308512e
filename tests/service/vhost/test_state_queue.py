"""What others write into the state queue stops nothing: it is moved to quarantine, and who leads is always known."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.support.bulk import QUARANTINE
from tests.support.client import Client
from tests.support.eventually import consistently, eventually
from tests.support.router import Router
from tests.support.vhost import Vhost, connections, cut

STATE: Final = "dlx-router.state"
POLICIES: Final = """
version: 1
policies:
  - name: all
    match: "#"
    definition: {max-delivery-attempts: 3, redelivery-delay: 4s}
"""
FIRST: Final = b'{"kind":"something","v":1}'[:25]
JUNK: Final = (
    FIRST,
    b"",
    b"\xff\xfe",
    b"null",
    b"[" * 50_000,
    b'{"kind":["key"],"v":1}',
    b'{"kind":"hello"}',
    b'{"kind":"ledger","v":7}',
    b'{"v":NaN}',
    b"9" * 5000,
)
# What only stands behind a key.
KEYS: Final = (
    b'{"kind":"key","key":12345}',
    json.dumps({"kind": "key", "v": 9, "sealed": "…"}).encode(),
    json.dumps({"kind": "key", "v": 1, "key": "QUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUFBQUE="}).encode(),
)
Start = Callable[..., Router]


@pytest.fixture(params=["alone", "leads"])
def env(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """One router that has its key from the queue, or one of those that share a key and stand for leadership."""
    if request.param == "alone":
        return {}
    path = tmp_path / "key"
    path.write_bytes(os.urandom(32))
    return {"PROVENANCE_KEY_FILE": str(path)}


def leads(router: Router) -> bool:
    """By its last word."""
    lines = [line for line in router.output.splitlines() if "leader.changed" in line]
    return bool(lines) and ("leads=True" in lines[-1] or '"leads": true' in lines[-1])


def is_settled(amqp: Client, junk: int) -> bool:
    """All of it is in quarantine, and nothing waits in the state queue."""
    return amqp.depth(QUARANTINE) == junk and amqp.depth(STATE) == 0


def declare(start: Start, amqp: Client, env: dict[str, str]) -> None:
    """A router was here before, and has gone; where it left a key, the key is left."""
    start(POLICIES, **env).stop()


def no_key(amqp: Client) -> None:
    amqp.channel.queue_purge(STATE)


def kept(amqp: Client) -> list[bytes]:
    """What lies there, in its order, nobody attending it; it stays."""
    bodies = []
    for method, _, body in amqp.channel.consume(STATE, inactivity_timeout=0.5):
        if method is None:
            break
        bodies.append(body)
    amqp.channel.cancel()
    return bodies


def test_junk_while_running_is_moved_and_nothing_is_interrupted(
    start_router: Start, amqp: Client, env: dict[str, str]
) -> None:
    router = start_router(POLICIES, **env)
    eventually(lambda: leads(router))
    for body in (*JUNK, *KEYS):
        amqp.publish(body, key=STATE)
    eventually(lambda: is_settled(amqp, len(JUNK) + len(KEYS)))
    assert consistently(lambda: router.ask("/readyz")[0] == 200 and leads(router), for_s=1)
    assert "session.ended" not in router.output


def test_properties_that_a_client_library_cannot_read_stop_nothing(
    start_router: Start, amqp: Client, vhost: object, env: dict[str, str]
) -> None:
    router = start_router(POLICIES, **env)
    eventually(lambda: leads(router))
    amqp.publish(b"late", key=STATE, timestamp=2**63)
    amqp.publish(b"soon gone", key=STATE, expiration="100000", reply_to="dlx-router.quarantine")
    eventually(lambda: is_settled(amqp, 2))
    assert leads(router)
    assert "session.ended" not in router.output


@pytest.mark.parametrize("env", ["alone"], indirect=True)
@pytest.mark.usefixtures("newest")
def test_a_first_key_that_cannot_be_read_stops_with_a_clear_text_and_stays(
    start_router: Start, amqp: Client, env: dict[str, str]
) -> None:
    declare(start_router, amqp, env)
    no_key(amqp)
    for body in (KEYS[1], KEYS[2]):
        amqp.publish(body, key=STATE)
    router = start_router(POLICIES, wait=False, **env)
    eventually(lambda: "a key that this version cannot read" in router.ask("/readyz")[1])
    assert router.ask("/readyz")[0] == 503
    router.stop()
    assert kept(amqp)[0] == KEYS[1]


@pytest.mark.slow
def test_a_deleted_state_queue_is_made_again_with_the_same_key(
    start_router: Start, amqp: Client, env: dict[str, str]
) -> None:
    """A letter that waits meanwhile is known again at the end of its wait."""
    amqp.queue("orders", dead_letter_exchange="dlx-router.inbox")
    router = start_router(POLICIES, **env)
    eventually(lambda: leads(router))
    amqp.publish("a", key="orders")
    amqp.fail("orders")
    eventually(lambda: amqp.depth("dlx-router.inbox") == 0 and router.metric("settled_total", action="retry") == 1)
    amqp.channel.queue_delete(STATE)
    eventually(lambda: not leads(router), every=0.02)
    eventually(lambda: leads(router) and router.ask("/readyz")[0] == 200, within=20)
    assert amqp.take("orders", within=15).body == b"a"
    assert amqp.depth(QUARANTINE) == 0


@pytest.mark.slow
@pytest.mark.parametrize("env", ["leads"], indirect=True)
@pytest.mark.usefixtures("newest")
def test_a_lost_leader_is_a_note_then_not_ready_and_is_taken_up_again(
    start_router: Start, amqp: Client, vhost: Vhost, env: dict[str, str]
) -> None:
    """Lost within its first second, no look had seen it lead: 600 s of patience instead of 20."""
    declare(start_router, amqp, env)
    with Client(vhost.amqp_url) as thief:
        tag = thief.channel.basic_consume(STATE, lambda *_: None, auto_ack=False)
        router = start_router(POLICIES, **env)
        eventually(lambda: connections(vhost, "state"), within=15)
        thief.channel.basic_cancel(tag)
        eventually(lambda: leads(router), every=0.02)
        thief.channel.basic_consume(STATE, lambda *_: None, auto_ack=False)
        cut(vhost, "state")
        eventually(lambda: "nobody leads" in router.ask("/readyz")[1])
        assert router.ask("/readyz")[0] == 200
        thief.connection.process_data_events()
        eventually(lambda: router.ask("/readyz")[0] == 503, within=60)
        assert "does not answer as a router with the same key does" in router.ask("/readyz")[1]
        thief.connection.process_data_events()
    eventually(lambda: leads(router) and router.ask("/readyz")[0] == 200, within=10)


@pytest.mark.slow
@pytest.mark.parametrize("env", ["leads"], indirect=True)
def test_a_second_router_knows_that_somebody_leads(start_router: Start, amqp: Client, env: dict[str, str]) -> None:
    first = start_router(POLICIES, **env)
    eventually(lambda: leads(first))
    second = start_router(POLICIES, **env)
    consistently(lambda: "nobody leads" not in second.ask("/readyz")[1], for_s=4)
    first.kill()
    eventually(lambda: leads(second))
