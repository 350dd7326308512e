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
