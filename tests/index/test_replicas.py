"""Each replica has an index of its own and answers from it; the leader alone has tasks."""

import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.index.conftest import POLICIES
from tests.support.bulk import INBOX, dying_queue, pour
from tests.support.client import Client
from tests.support.eventually import eventually
from tests.support.plain_http import NO_TLS
from tests.support.router import Router
from tests.support.vhost import Vhost
from tools import brokers

OLGA, ANN = "olga-" + "o" * 20, "ann-" + "a" * 20
TOKENS = f"tokens:\n  - {{name: olga, token: {OLGA}, role: operator}}\n  - {{name: ann, token: {ANN}, role: viewer}}\n"
Started = Callable[..., Router]


@pytest.fixture
def started(start_router: Callable[..., Router], tmp_path: Path) -> Started:
    """`started(NAME, …)`: a replica, with an index of its own and the key of all."""
    (tmp_path / "key").write_text(secrets.token_hex(32), encoding="utf-8")
    (tmp_path / "tokens").write_text(TOKENS, encoding="utf-8")

    def start(name: str, **settings: str) -> Router:
        files = {"PROVENANCE_KEY_FILE": str(tmp_path / "key"), "API_TOKENS_FILE": str(tmp_path / "tokens")}
        return start_router(POLICIES, INDEX_PATH=str(tmp_path / name), HEARTBEAT="2", **files, **settings)

    return start


def ask(router: Router, path: str, method: str = "GET", token: str = OLGA, **how: Any) -> tuple[int, Any]:
    url = f"http://127.0.0.1:{router.port}/api/v1{path}"
    headers = {"authorization": f"Bearer {token}"}
    try:
        answer = httpx.request(method, url, headers=headers, timeout=60, trust_env=False, verify=NO_TLS, **how)
    except httpx.TransportError as error:
        return 0, repr(error)
    return answer.status_code, answer.json()


def known(router: Router, **query: str) -> int:
    status, page = ask(router, "/letters", params=query)
    assert status == 200, page
    assert {*page["as_of"]}, "until when it is known"
    return len(page["letters"])


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_each_replica_answers_and_its_tasks_are_the_leaders(started: Started, amqp: Client, vhost: Vhost) -> None:
    first = started("one")
    eventually(lambda: ask(first, "/letters")[0] == 200, 20)
    second = started("two")
    amqp.queue("orders", dead_letter_exchange=INBOX)
    for body in ("a", "b"):
        amqp.publish(body, key="orders")
        amqp.fail("orders")
    eventually(lambda: known(first) == 2, 20)
    eventually(lambda: known(second) == 2, 20)
    leader = ask(first, "/status")[1]["router_id"]
    state = ask(second, "/status")[1]["vhosts"][vhost.name]
    assert (state["leads"], state["leader"]) == (False, leader)
    wanted = {"vhost": vhost.name, "queue": "DLQ.orders", "rate": 0}
    assert ask(second, "/tasks", "POST", ANN, json=wanted)[0] == 403
    status, task = ask(second, "/tasks", "POST", json=wanted)
    assert status == 201, task
    assert task["by"] == "olga"
    path, where = f"/tasks/{task['id']}", {"vhost": vhost.name}
    eventually(lambda: ask(second, path, params=where)[1]["state"] == "done", 20)
    assert amqp.depth("orders") == 2
    group = eventually(lambda: ask(second, "/groups")[1]["groups"], 10)[0]["id"]
    status, changed = ask(second, f"/groups/{group}", "PATCH", json={"state": "resolved", "note": "mended"})
    assert (status, changed["actor"]) == (200, "olga"), changed
    actors = [(audit["actor"], audit["action"]) for audit in ask(second, "/audits")[1]["audits"]]
    assert ("olga", "group.set") in actors
    for router in (first, second):
        assert OLGA not in router.output


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_a_replica_answers_while_and_after_the_leader_is_killed(started: Started, amqp: Client) -> None:
    first = started("one")
    eventually(lambda: ask(first, "/letters")[0] == 200, 20)
    second = started("two")
    pour(amqp, dying_queue(amqp, "orders"), ["a", "b"])
    eventually(lambda: known(second) == 2, 20)
    first.kill()
    assert known(second) == 2
    assert ask(second, "/groups")[1]["groups"][0]["state"] == "open"


@pytest.fixture
def other(broker: brokers.Broker) -> Iterator[Vhost]:
    made = Vhost.make(broker, f"other-{os.getpid()}")
    yield made
    made.close()
