"""No policy that costs letters on our own queues is overlooked, however young queue and policy are."""

import asyncio
from collections.abc import AsyncIterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from urllib.parse import urlsplit

import pytest

from dlx_router.broker.management import Management, ManagementError
from dlx_router.broker.policies import Rule, effective, harmful
from tests.broker.scene import NAMES, topology
from tests.support.client import Client
from tests.support.eventually import eventually
from tests.support.vhost import Vhost


@pytest.fixture
async def management(vhost: Vhost) -> AsyncIterator[Management]:
    client = Management(vhost.management_url)
    yield client
    await client.close()


@pytest.fixture
async def core(vhost: Vhost) -> None:
    fresh = topology(vhost)
    await fresh.ensure_core()
    await fresh.close()


def operator_policy(vhost: Vhost, name: str, pattern: str, definition: dict[str, int]) -> None:
    body = {"pattern": pattern, "definition": definition, "priority": 0, "apply-to": "queues"}
    vhost.put(f"operator-policies/{vhost.quoted}/{name}", body)


@pytest.mark.usefixtures("core")
async def test_a_catch_all_policy_is_found_on_every_own_queue_at_once(management: Management, vhost: Vhost) -> None:
    vhost.policy("everything", ".*", {"max-length": 5})
    problems = await management.check_own_queues(vhost.name, NAMES)
    own = {NAMES.inbox, NAMES.release, NAMES.parking, NAMES.quarantine, NAMES.state, NAMES.fifo, NAMES.retired}
    assert {(problem.name, problem.policy, problem.keys) for problem in problems} == {
        (queue, "everything", ("max-length",)) for queue in own
    }
    assert "policy 'everything' sets max-length on queue 'dlx-router." in str(problems[0])


def exchange_policy(vhost: Vhost, apply_to: str, priority: int, **definition: str) -> None:
    """A policy on everything, `alternate_exchange` for alternate-exchange, named after its priority."""
    keys = {key.replace("_", "-"): value for key, value in definition.items()}
    body = {"pattern": ".*", "definition": keys, "priority": priority, "apply-to": apply_to}
    vhost.put(f"policies/{vhost.quoted}/p{priority}", body)


@pytest.mark.usefixtures("core")
async def test_an_alternate_exchange_is_found_on_every_own_exchange_at_once(
    management: Management, vhost: Vhost
) -> None:
    assert await management.check_own_exchanges(vhost.name, NAMES) == []
    exchange_policy(vhost, "exchanges", 1, alternate_exchange="anything")
    problems = await management.check_own_exchanges(vhost.name, NAMES)
    own = {NAMES.inbox, NAMES.fifo, NAMES.declared, NAMES.release, NAMES.return_}
    assert {(problem.name, problem.policy, problem.keys) for problem in problems} == {
        (exchange, "p1", ("alternate-exchange",)) for exchange in own
    }
    assert await management.check_own_queues(vhost.name, NAMES) == []
    exchange_policy(vhost, "queues", 2, queue_leader_locator="balanced")  # not for exchanges
    assert len(await management.check_own_exchanges(vhost.name, NAMES)) == len(own)
    exchange_policy(vhost, "all", 3, queue_leader_locator="balanced")
    assert await management.check_own_exchanges(vhost.name, NAMES) == []


async def test_operator_policies_reach_no_alternate_exchange(vhost: Vhost) -> None:
    """So nobody looks at them."""
    body = {"pattern": ".*", "definition": {"alternate-exchange": "anything"}, "apply-to": "exchanges"}
    answer = vhost.api.put(f"operator-policies/{vhost.quoted}/limits", json=body)
    assert (answer.status_code, "not recognised policy settings" in answer.text) == (400, True)


@pytest.mark.slow
@pytest.mark.usefixtures("core")
async def test_what_the_broker_says_and_what_we_compute_agree_once_it_has_counted(
    management: Management, vhost: Vhost
) -> None:
    vhost.policy("everything", ".*", {"max-length": 5})
    operator_policy(vhost, "limits", "inbox", {"message-ttl": 60000})
    vhost.policy("lazy", ".*", {"queue-mode": "lazy", "expires": 1000}, priority=9)  # not for quorum queues

    def counted() -> bool:
        path = f"queues/{vhost.quoted}/{NAMES.inbox}?columns=name,operator_policy"
        return bool(vhost.get(path).get("operator_policy"))

    before = await management.check_own_queues(vhost.name, NAMES)
    await asyncio.to_thread(eventually, counted, 30)
    after = await management.check_own_queues(vhost.name, NAMES)
    for problems in (before, after):
        assert {key for problem in problems if problem.name == NAMES.inbox for key in problem.keys} == {
            "max-length",
            "message-ttl",
        }

    vhost.policy("shadow", r"^dlx-router\.", {"queue-leader-locator": "balanced"}, priority=99)
    vhost.api.delete(f"operator-policies/{vhost.quoted}/limits").raise_for_status()
    assert await management.check_own_queues(vhost.name, NAMES) == []  # though the counts are old


@pytest.mark.usefixtures("core")
async def test_a_policy_for_other_queues_is_none_of_our_business(
    management: Management, vhost: Vhost, amqp: Client
) -> None:
    amqp.queue("dlx-routers-own-copy")
    vhost.policy("others", "^dlx-routers", {"max-length": 5})
    assert await management.check_own_queues(vhost.name, NAMES) == []


class _Elsewhere(BaseHTTPRequestHandler):
    """Answers with something else, as a proxy's page might."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"[]")

    def log_message(self, *_: object) -> None:
        pass


async def test_an_answer_that_is_no_list_of_queues_is_an_error() -> None:
    with HTTPServer(("127.0.0.1", 0), _Elsewhere) as server:
        thread = Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        client = Management(f"http://u:hunter2@127.0.0.1:{server.server_port}")
        with pytest.raises(ManagementError, match="no list of queues"):
            await client.head_timestamps("/", ".")
        await client.close()
        server.shutdown()
        thread.join()


@pytest.mark.usefixtures("newest")
async def test_wrong_credentials_are_an_error_without_them(vhost: Vhost) -> None:
    parts = urlsplit(vhost.management_url)
    client = Management(lambda: f"http://guest:hunter2@{parts.hostname}:{parts.port}")
    with pytest.raises(ManagementError, match=r"401 \(.+\), user or password is wrong") as caught:
        await client.check_own_queues(vhost.name, NAMES)
    assert "hunter2" not in f"{caught.value!r} {client!r}"
    await client.close()


def test_keys_that_shorten_expire_or_redirect_are_harmful() -> None:
    assert harmful({"max-length-bytes": 1, "dead-letter-exchange": "x", "queue-leader-locator": "balanced"}) == (
        "dead-letter-exchange",
        "max-length-bytes",
    )
    assert harmful({}) == ()


def test_of_policies_with_one_priority_all_count_because_the_broker_may_choose_any() -> None:
    low = Rule("low", ".*", {"expires": 1}, 0, "all")
    tie = [Rule(name, "^own", {"max-length": 1}, 5) for name in ("a", "b")]
    skipped = Rule("ha", ".*", {"ha-mode": "all"}, 9, "all")
    streams = Rule("streams", ".*", {"max-length-bytes": 1}, 9, "streams")
    assert effective("own.inbox", [low, *tie, skipped, streams]) == tuple(tie)
    assert effective("other", [low, *tie]) == (low,)
    assert effective("own", [Rule("odd", "(?<n>own)\\K", {}, 1)])[0].name == "odd"
