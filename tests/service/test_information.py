"""What a router, its commands and pages say is true: nothing unknown is shown as nothing, and trouble has its fix."""

from collections.abc import Callable
from typing import Any, Final

import httpx
import pytest

from tests.redrive.test_commands import command
from tests.support.bulk import INBOX, dying_queue, pour
from tests.support.client import Client
from tests.support.eventually import eventually
from tests.support.plain_http import NO_TLS
from tests.support.policies import POLICY
from tests.support.router import Router
from tests.support.vhost import Vhost

pytestmark = pytest.mark.usefixtures("newest")
Start = Callable[..., Router]
INDEX: Final = "index.db"


def asked(router: Router, *args: str) -> tuple[int, str]:
    """Exit code and output of a command that asks this router."""
    done = command(*args, API_URL=f"http://127.0.0.1:{router.port}")
    return done.returncode, done.stdout + done.stderr


def posted(router: Router, vhost: Vhost, **body: Any) -> httpx.Response:
    """The answer to a new task."""
    url = f"http://127.0.0.1:{router.port}/api/v1/tasks"
    return httpx.post(url, json={"vhost": vhost.name, **body}, timeout=30, trust_env=False, verify=NO_TLS)


def test_what_the_index_does_not_know_is_an_error(start_router: Start, vhost: Vhost, tmp_path: Any) -> None:
    router = start_router(POLICY, INDEX_PATH=str(tmp_path / INDEX))
    eventually(lambda: asked(router, "groups") == (0, "No groups.\n"), 30)
    for args, words in (
        (("groups", "--vhost", "nope"), "vhost 'nope' is not served here"),
        (("letters", "list", "--vhost", "nope"), "vhost 'nope' is not served here"),
        (("letters", "list", "--group", "nope"), "no group 'nope'"),
        (("letters", "search", "x", "--group", "nope"), "no group 'nope'"),
    ):
        code, text = asked(router, *args)
        assert (code, words in text) == (2, True), text
    assert asked(router, "letters", "list", "--vhost", vhost.name) == (0, "No letters.\n")


def test_a_router_without_a_connection_names_no_leader(start_router: Start, vhost: Vhost) -> None:
    router = start_router(POLICY, wait=False, AMQP_URL=vhost.amqp_url.replace("guest:guest", "guest:wrong"))
    eventually(lambda: "ACCESS_REFUSED" in router.ask("/readyz")[1], 30)
    code, text = asked(router, "status")
    assert (code, "leader unknown" in text, "another router" in text) == (1, True, False), text


def test_an_api_without_tokens_beyond_this_machine_is_warned_of(start_router: Start) -> None:
    router = start_router(POLICY, HTTP_HOST="0.0.0.0")
    assert router.says_ready(200, "API_TOKENS_FILE")
    assert "API_TOKENS_FILE" in router.output


def test_dead_letters_of_a_removed_policy_can_be_redriven(
    start_router: Start, vhost: Vhost, amqp: Client, tmp_path: Any
) -> None:
    """Its queue is no work queue: the index knows what is in it."""
    old = "version: 1\npolicies: [{name: all, match: '#', definition: {dead-letter-queue-prefix: 'OLD.'}}]\n"
    now = POLICY.replace("1}", "1, dead-letter-queue-prefix: 'NEW.'}")
    router = start_router(old.replace("{dead", "{max-delivery-attempts: 1, dead"), INDEX_PATH=str(tmp_path / INDEX))
    dying_queue(amqp, "removed")
    pour(amqp, "removed", ["a", "b"])
    amqp.queue("living", dead_letter_exchange=INBOX)
    eventually(lambda: amqp.exists("OLD.removed") and amqp.depth("OLD.removed") == 2, 30)
    eventually(lambda: "OLD.removed" in asked(router, "queues")[1], 30)
    router.stop()
    (router.policies / "policies.yaml").write_text(now, encoding="utf-8")
    router.start()

    def begun() -> bool:
        answer = posted(router, vhost, queue="OLD.removed", kind="discard")
        assert answer.status_code == 201, answer.text
        return True

    assert eventually(begun, 30, every=0.2)
    eventually(lambda: amqp.depth("OLD.removed") == 0, 30)
    assert posted(router, vhost, queue="living", kind="discard").status_code == 409


NOWHERE: Final = """
version: 1
policies:
  - name: billing
    match: "billing.#"
    definition: {max-delivery-attempts: 1, dead-letter-exchange: billing.nowhere}
"""
MISSING: Final = "exchange 'billing.nowhere', named by policy 'billing' ("


def test_a_missing_exchange_and_parked_messages_are_reported_everywhere(
    start_router: Start, vhost: Vhost, amqp: Client
) -> None:
    router = start_router(NOWHERE, UNROUTABLE_GRACE="1s")
    api = f"http://127.0.0.1:{router.port}"
    urls = {"AMQP_URL": vhost.amqp_url, "MANAGEMENT_URL": vhost.management_url}

    def doctor(**env: str) -> str:
        done = command("doctor", "--json", "--policies", str(router.policies), **urls, **env)
        assert done.returncode == 1, done.stdout
        return done.stdout

    eventually(lambda: router.says_ready(200, MISSING, "policies.yaml:6), does not exist", "declare the exchange"), 60)
    assert MISSING in doctor(API_URL="http://127.0.0.1:1")
    assert MISSING in " ".join(asked(router, "status")[1].split())
    dying_queue(amqp, "billing.invoices")
    pour(amqp, "billing.invoices", ["a", "b"])
    parked = "2 messages in 'dlx-router.parking'"
    eventually(lambda: router.says_ready(200, parked), 120)
    told = doctor(API_URL=api)
    assert (parked in told, '"router"' in told, "no router answers" in told) == (True, True, False), told
    assert parked in " ".join(asked(router, "status")[1].split())
    amqp.channel.exchange_declare("billing.nowhere", "fanout", durable=True)
    amqp.channel.queue_purge("dlx-router.parking")
    eventually(lambda: not any(text in router.ask("/readyz")[1] for text in ("billing.nowhere", parked)), 120)


def test_doctor_knows_how_many_queues_a_vhost_may_have(vhost: Vhost, tmp_path: Any) -> None:
    (tmp_path / "p.yaml").write_text(POLICY, encoding="utf-8")
    vhost.put(f"vhost-limits/{vhost.quoted}/max-queues", {"value": 0})
    urls = {"AMQP_URL": vhost.amqp_url, "MANAGEMENT_URL": vhost.management_url}
    done = command("doctor", "--policies", str(tmp_path), **urls)
    assert "has 0 of at most 0 queues (max-queues)" in " ".join(done.stdout.split()), done.stdout


def test_a_selector_that_matches_no_queue_is_reported(vhost: Vhost, amqp: Client, tmp_path: Any) -> None:
    rows = ("queue: 'orders.*'", "match: 'orders.*'", "match: 'nothing.#'", "match: '#'")
    text = "".join(f"  - {{name: p{at}, {row}, priority: {at}}}\n" for at, row in enumerate(rows))
    (tmp_path / "p.yaml").write_text(f"version: 1\npolicies:\n{text}", encoding="utf-8")
    amqp.queue("orders.new")
    urls = {"AMQP_URL": vhost.amqp_url, "MANAGEMENT_URL": vhost.management_url}
    lint = command("policy", "lint", str(tmp_path), "--broker", **urls)
    found = [line for line in lint.stdout.splitlines() if "DLX218" in line and "matches no queue now" in line]
    assert [line.partition("policy ")[2].partition(",")[0] for line in found] == ['"p0"', '"p2"'], lint.stdout
    assert 'for a pattern write match: "orders.*"' in found[0]
    plan = command("plan", "--policies", str(tmp_path), **urls).stdout
    for name, words in (("p0", True), ("p1", False), ("p2", True), ("p3", False)):
        assert (f"policy {name}, " in plan) == words, plan
