"""plan, apply and destroy on a real broker, by the command line."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dlx_router.core.names import Names
from tests.support.client import Client
from tests.support.command import ROOT, run_command
from tests.support.eventually import eventually
from tests.support.router import Router
from tests.support.vhost import Vhost

POLICIES = """version: 1
policies:
  - {name: base, match: "#", definition: {max-delivery-attempts: 1}}
  - {name: orders, match: "orders.#", definition: {message-ttl: 1h}}
  - {name: hot, queue: hot, definition: {delivery-limit: 5}}
  - {name: bounded, queue: bounded}
"""
INBOX = "dlx-router.inbox"


class Commands:
    """The commands, on one vhost and one folder of policies."""

    def __init__(self, vhost: Vhost, folder: Path) -> None:
        self.vhost, self.folder = vhost, folder
        self.write(POLICIES)

    def write(self, text: str) -> None:
        (self.folder / "p.yaml").write_text(text, encoding="utf-8")

    def run(self, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
        _, variables = self.typed(*args, **env)
        return run_command([*args], variables)

    def begin(self, *args: str) -> subprocess.Popen[str]:
        """The same, while it runs."""
        argv, variables = self.typed(*args)
        pipe = subprocess.PIPE
        return subprocess.Popen(argv, env=variables, cwd=ROOT, stdout=pipe, stderr=pipe, text=True)

    def typed(self, *args: str, **env: str) -> tuple[list[str], dict[str, str]]:
        """Arguments and environment of a command."""
        settings = {"AMQP_URL": self.vhost.amqp_url, "MANAGEMENT_URL": self.vhost.management_url, **env}
        named = {f"DLX_ROUTER_{key}": value for key, value in settings.items()}
        kept = {key: value for key, value in os.environ.items() if not key.startswith("DLX_ROUTER_")}
        argv = [sys.executable, "-m", "dlx_router", *args]
        return argv, {**kept, "DLX_ROUTER_POLICIES": str(self.folder), **named}

    def plan(self) -> dict[str, Any]:
        """The plan of the vhost."""
        done = self.run("plan", "--json")
        assert done.returncode in {0, 1}, done.stderr
        document: dict[str, Any] = json.loads(done.stdout)["vhosts"][0]
        assert done.returncode == bool(document["steps"] or any(note["conflict"] for note in document["notes"]))
        return document

    def apply(self) -> str:
        done = self.run("apply")
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def declare(self, name: str, **arguments: Any) -> None:
        given = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
        self.vhost.put(f"queues/{self.vhost.quoted}/{name}", {"durable": True, "arguments": given})

    def policies(self) -> dict[str, Any]:
        return {policy["name"]: policy for policy in self.vhost.get(f"policies/{self.vhost.quoted}")}

    def effective(self, queue: str) -> dict[str, Any] | None:
        """The broker's own word, which may be some seconds late."""
        definition = self.vhost.get(f"queues/{self.vhost.quoted}/{queue}").get("effective_policy_definition")
        return None if definition is None else dict(definition or {})

    def definitions(self) -> str:
        definitions = self.vhost.get(f"definitions/{self.vhost.quoted}")
        parts = {key: value for key, value in definitions.items() if isinstance(value, list)}
        return json.dumps({key: sorted(map(repr, value)) for key, value in parts.items()}, indent=1)

    def parameters(self) -> list[str]:
        return [
            parameter["name"]
            for parameter in self.vhost.get("global-parameters")
            if self.vhost.name in parameter["name"]
        ]


@pytest.fixture
def shop(commands: Commands) -> Commands:
    """Queues of every kind."""
    commands.declare("orders.new", queue_type="quorum")
    commands.declare("orders.old")
    commands.declare("hot", queue_type="quorum")
    commands.declare("bounded", queue_type="quorum", max_length=5)
    commands.declare("DLQ.hot", queue_type="quorum")
    return commands


@pytest.mark.slow
def test_apply_makes_the_broker_catch_and_destroy_leaves_it_as_it_was(shop: Commands) -> None:
    before = shop.definitions()
    assert "dead-letter-exchange" in shop.apply()
    assert shop.plan()["steps"] == []
    caught = {"dead-letter-exchange": INBOX}
    safe = {**caught, "dead-letter-strategy": "at-least-once", "overflow": "reject-publish"}
    orders = {"message-ttl": 3_600_000}
    wanted = {
        "orders.new": {**safe, **orders},
        "orders.old": {**caught, **orders},
        "hot": {**safe, "delivery-limit": 5},
        "bounded": caught,
        "DLQ.hot": {},
        INBOX: {"queue-leader-locator": "client-local"},
    }
    for queue, definition in wanted.items():
        eventually(lambda queue=queue, definition=definition: shop.effective(queue) == definition, 30)  # type: ignore[misc]  # a default binds it
    done = shop.run("destroy")
    assert done.returncode == 0, done.stdout + done.stderr
    assert shop.definitions() == before
    assert shop.parameters() == []
    assert shop.run("destroy").returncode == 0, "destroy may come twice"


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_letters_come_as_the_policies_say_and_destroy_refuses_while_there_are_any(
    shop: Commands, amqp: Client, start_router: Callable[..., Router]
) -> None:
    shop.apply()
    router = start_router(shop.folder)
    eventually(lambda: shop.effective("orders.new"), 30)
    amqp.publish(b"1", key="orders.new")
    amqp.fail("orders.new")
    eventually(lambda: amqp.exists("DLQ.orders.new") and amqp.depth("DLQ.orders.new") == 1, 20)
    refused = shop.run("destroy")
    assert refused.returncode == 1
    assert "a router runs; stop it" in refused.stdout
    assert "looking again" in refused.stderr
    assert router.stop() == 0
    amqp.publish(b"2", key="", exchange=INBOX)
    eventually(lambda: amqp.depth(INBOX) == 1)
    refused = shop.run("destroy")
    assert refused.returncode == 1, refused.stdout
    assert f"queue {INBOX} holds 1 letter" in refused.stdout
    assert shop.policies(), "nothing was removed"


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_destroy_right_after_the_end_of_a_router_and_during_it(
    shop: Commands, start_router: Callable[..., Router]
) -> None:
    before = shop.definitions()
    shop.apply()
    router = start_router(shop.folder)
    with shop.begin("destroy", "--with-journal") as destroying:
        assert destroying.stderr is not None
        assert "looking again" in destroying.stderr.readline()
        assert router.stop() == 0
        assert destroying.wait(60) == 0
    assert shop.definitions() == before
    shop.apply()
    assert start_router(shop.folder).stop() == 0
    done = shop.run("destroy", "--with-journal")
    assert done.returncode == 0, done.stdout + done.stderr
    assert shop.definitions() == before


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_doctor_reports_what_a_hand_changed_until_apply_puts_it_right(shop: Commands) -> None:
    shop.apply()
    name = next(name for name, policy in shop.policies().items() if policy["definition"].get("delivery-limit") == 5)
    assert "is not as `apply` left it" not in shop.run("doctor").stdout
    shop.vhost.policy(name, "^hot$", {"dead-letter-exchange": "elsewhere"}, priority=99)
    (step,) = shop.plan()["steps"]
    assert (step["action"], step["name"], step["was"]["priority"]) == ("change", name, 99)
    assert "is not as `apply` left it: 1 change" in shop.run("doctor").stdout
    assert '"elsewhere" → "dlx-router.inbox"' in shop.apply()
    assert shop.plan()["steps"] == []


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_what_is_not_ours_is_never_touched(shop: Commands) -> None:
    shop.vhost.policy("dlx-router.mine", "^orders", {"max-length": 7}, priority=9)
    shop.vhost.policy("theirs", "^orders", {"expires": 86_400_000}, priority=3)
    shop.declare("argued", dead_letter_exchange="elsewhere")
    done = shop.run("apply")
    assert done.returncode == 1, "a queue that cannot be caught is said"
    assert "DLX201: queue argued" in done.stdout
    assert '"dlx-router.mine" has a name of ours, but apply did not make it' in done.stdout
    assert 'policy "theirs" of priority 3' in done.stdout
    shop.declare("dlx-router.stranger")
    done = shop.run("destroy")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "kept: queue dlx-router.stranger: not made by the router" in done.stdout
    assert set(shop.policies()) == {"theirs", "dlx-router.mine"}
    assert "dlx-router.stranger" in shop.vhost.queues()


@pytest.mark.usefixtures("newest")
def test_destroy_is_kept_by_a_policy_made_by_hand_that_leads_to_an_inbox(commands: Commands) -> None:
    """What died under it was dropped, and nobody was told."""
    commands.apply()
    commands.vhost.policy("by-hand", "^audit", {"dead-letter-exchange": INBOX})
    before = commands.policies()
    refused = commands.run("destroy")
    assert refused.returncode == 1, refused.stdout
    assert f"! policy by-hand leads to {INBOX}, and apply did not make it" in refused.stdout
    assert commands.policies() == before, "nothing was removed"


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_destroy_knows_the_lock_of_a_guard_by_its_whole_name(commands: Commands, amqp: Client) -> None:
    """What only begins like one is somebody's: of a router of prefix dlx-router.guard, say. Letters in one count."""
    commands.apply()
    theirs, lock = ["dlx-router.guard.foo", "dlx-router.guard.parking"], Names().guard("work")
    for queue in (*theirs, lock):
        commands.declare(queue)
        amqp.publish(b"1", key=queue)
    refused = commands.run("destroy")
    assert refused.returncode == 1, refused.stdout
    assert f"queue {lock} holds 1 letter" in refused.stdout
    assert commands.policies(), "nothing was removed"
    amqp.take(lock)
    done = commands.run("destroy")
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(f"kept: queue {queue}: not made by the router" in done.stdout for queue in theirs)
    assert commands.vhost.queues() == theirs
    assert [amqp.depth(queue) for queue in theirs] == [1, 1]


@pytest.mark.slow
def test_a_policy_for_one_type_of_queue_holds_for_that_type_only(
    commands: Commands, amqp: Client, start_router: Callable[..., Router]
) -> None:
    commands.write("""version: 1
policies:
  - {name: all, match: "#", definition: {max-delivery-attempts: 1}}
  - name: classic
    match: "#"
    apply-to: classic_queues
    priority: 1
    definition: {dead-letter-queue-prefix: "OLD."}
""")
    commands.declare("new", queue_type="quorum")
    commands.declare("old")
    commands.apply()
    assert commands.plan()["steps"] == []
    start_router(commands.folder)
    for queue in ("new", "old"):
        eventually(lambda queue=queue: commands.effective(queue), 30)  # type: ignore[misc]  # a default binds it
        amqp.publish(b"1", key=queue)
        amqp.fail(queue)
    eventually(lambda: amqp.exists("DLQ.new") and amqp.depth("DLQ.new") == 1, 20)
    eventually(lambda: amqp.exists("OLD.old") and amqp.depth("OLD.old") == 1, 20)


@pytest.mark.usefixtures("newest")
def test_types_of_queues_are_refused_without_the_api_that_tells_them(commands: Commands) -> None:
    commands.write("version: 1\npolicies:\n  - {name: a, match: '#', apply-to: quorum_queues}\n")
    done = commands.run("run", MANAGEMENT_URL="")
    assert done.returncode == 1
    assert "apply-to" in done.stderr


@pytest.mark.usefixtures("newest")
def test_a_retry_loop_made_by_hand_becomes_a_policy(commands: Commands) -> None:
    commands.declare("jobs", dead_letter_exchange="", dead_letter_routing_key="jobs.wait")
    commands.declare("jobs.wait", message_ttl=30_000, dead_letter_exchange="", dead_letter_routing_key="jobs")
    commands.declare("later", message_ttl=5_000, dead_letter_exchange="", dead_letter_routing_key="jobs")
    done = commands.run("plan", "--adopt")
    assert done.returncode == 0, done.stderr
    assert "queue: jobs\n" in done.stdout
    assert "redelivery-delay: 30000" in done.stdout
    assert "queue later: waits 5000 ms and leads to jobs" in done.stdout
    commands.write(done.stdout)
    assert commands.run("policy", "explain", "jobs", "--vhost", commands.vhost.name).returncode == 0
