"""Expressions that only RabbitMQ reads, that it reads as bytes, or that it refuses: plan and apply on a real broker."""

from typing import Any, Final
from urllib.parse import quote

import pytest

from tests.provisioning.test_provision import INBOX, Commands
from tests.support.eventually import eventually

ODD: Final = """version: 1
policies:
  - {name: class, pattern: "^[äö]rger", definition: {max-delivery-attempts: 2}}
  - {name: flags, pattern: "(?i)^mails$", definition: {message-ttl: 1h}}
  - {name: next, queue: Billing, definition: {message-ttl: 1h}}
  - {name: first, pattern: "^(?P<t>pay)", definition: {message-ttl: 2h}}
"""
SAFE: Final = {"dead-letter-exchange": INBOX, "dead-letter-strategy": "at-least-once", "overflow": "reject-publish"}
HOUR_MS: Final = 3_600_000


def has(commands: Commands, queue: str, definition: dict[str, Any]) -> None:
    eventually(lambda: commands.effective(quote(queue)) == definition, 30)


def refused(commands: Commands) -> str:
    """What apply says where something is in the way."""
    done = commands.run("apply")
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.slow
def test_queues_have_what_they_should_have_or_apply_is_refused(commands: Commands) -> None:
    commands.write(ODD)
    for queue in ("ärger", "mails", "Billing", "billing", "payments", "tmp.a", "other"):
        commands.declare(quote(queue), queue_type="quorum")
    commands.vhost.policy("short", r"^(?i)tmp\.", {"expires": 900_000, "message-ttl": 1000}, priority=5)
    text = refused(commands)
    assert 'policy "short"' in text
    assert "queue ärger: policy class" in text
    assert set(commands.policies()) == {"short"}, "nothing is changed while something is in the way"
    commands.vhost.policy("short", r"^tmp\.", {"expires": 900_000, "message-ttl": 1000}, priority=5)
    commands.write(ODD + "  - {name: own, queue: ärger}\n")
    commands.apply()
    has(commands, "ärger", SAFE)
    has(commands, "mails", {**SAFE, "message-ttl": HOUR_MS})
    has(commands, "Billing", {**SAFE, "message-ttl": HOUR_MS})
    has(commands, "payments", {**SAFE, "message-ttl": 2 * HOUR_MS})
    has(commands, "billing", {})
    has(commands, "other", {})
    has(commands, "tmp.a", {"expires": 900_000, "message-ttl": 1000})
    assert commands.plan()["steps"] == []


LARGE: Final = f'  - {{name: large, pattern: "^(?:{"a" * 200}){{900}}"}}\n'  # PCRE compiles it to more than 64 KiB
OTHERS: Final = """version: 1
policies:
  - {{name: one, match: "{}.#", definition: {{message-ttl: 1h}}}}
"""


@pytest.mark.slow
def test_apply_ends_at_a_policy_that_the_broker_refuses_and_removes_none(commands: Commands) -> None:
    commands.declare("orders.a", queue_type="quorum")
    commands.write(OTHERS.format("orders"))
    commands.apply()
    before = {*commands.policies()}
    commands.write(OTHERS.format("mails") + LARGE)
    assert "RabbitMQ refuses policy" in refused(commands)
    assert before <= {*commands.policies()}, "what was there stays"
    commands.write(OTHERS.format("mails"))
    commands.apply()
    assert len(commands.policies()) == len(before), "also those are ours still that stayed"
    has(commands, "orders.a", {})
    assert commands.plan()["steps"] == []
