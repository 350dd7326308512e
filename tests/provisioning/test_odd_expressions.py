"""Expressions that only RabbitMQ reads, that it reads as bytes, or that it refuses: plan and apply on a real broker."""

from typing import Any, Final
from urllib.parse import quote

import pytest

from tests.provisioning.test_provision import INBOX, Commands
from tests.support.eventually import eventually

ODD: Final = r"""version: 1
policies:
  - {name: umlaut, pattern: "^.{4}-orders$", definition: {max-delivery-attempts: 1}}
  - {name: class, pattern: "^[äö]rger", definition: {max-delivery-attempts: 2}}
  - {name: flags, pattern: "(?i)^mails$", definition: {message-ttl: 1h}}
  - {name: next, queue: Billing, definition: {message-ttl: 1h}}
  - {name: first, pattern: "^(?P<t>pay)", definition: {message-ttl: 2h}}
  - {name: second, pattern: "^(?P<t>bill)", definition: {message-ttl: 2h}}
  - {name: letters, pattern: '^\pL+z$', definition: {message-ttl: 3h}}
  - {name: tmp, queue: tmpx, definition: {message-ttl: 4h}}
"""
TWICE: Final = """version: 1
policies:
  - {name: one, match: "orders.#", definition: {message-ttl: 1h, expires: 2h}}
  - {name: two, match: "orders.#.#", definition: {max-length: 10, overflow: reject-publish}}
  - {name: eu, pattern: "[.]eu$", definition: {delivery-limit: 7}}
"""
SAFE: Final = {"dead-letter-exchange": INBOX, "dead-letter-strategy": "at-least-once", "overflow": "reject-publish"}
HOUR_MS: Final = 3_600_000


def stands(commands: Commands, *queues: str) -> None:
    for queue in queues:
        commands.declare(quote(queue), queue_type="quorum")


def has(commands: Commands, queue: str, definition: dict[str, Any]) -> None:
    eventually(lambda: commands.effective(quote(queue)) == definition, 30)


def applied(commands: Commands) -> str:
    """What apply says where something is in the way."""
    done = commands.run("apply")
    assert done.returncode == 1, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.slow
def test_queues_have_what_they_should_have_whatever_dialect_an_expression_is_of(commands: Commands) -> None:
    commands.write(ODD)
    stands(
        commands, "über-orders", "ärger", "mails", "Billing", "billing", "payments", "abcz", "tmpx", "tmp.a", "other"
    )
    commands.vhost.policy("short", r"^(?i)tmp\.", {"expires": 900_000, "message-ttl": 1000}, priority=5)
    text = applied(commands)
    assert 'policy "short"' in text
    assert set(commands.policies()) == {"short"}, "nothing is changed while somebody else's may be on the same queues"
    commands.vhost.policy("short", r"^tmp\.", {"expires": 900_000, "message-ttl": 1000}, priority=5)
    commands.apply()
    has(commands, "über-orders", SAFE)
    has(commands, "ärger", SAFE)
    has(commands, "mails", {**SAFE, "message-ttl": HOUR_MS})
    has(commands, "Billing", {**SAFE, "message-ttl": HOUR_MS})
    has(commands, "billing", {**SAFE, "message-ttl": 2 * HOUR_MS})
    has(commands, "payments", {**SAFE, "message-ttl": 2 * HOUR_MS})
    has(commands, "abcz", {**SAFE, "message-ttl": 3 * HOUR_MS})
    has(commands, "tmpx", {**SAFE, "message-ttl": 4 * HOUR_MS})
    has(commands, "other", {})
    has(commands, "tmp.a", {"expires": 900_000, "message-ttl": 1000})
    assert commands.plan()["steps"] == []


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_a_dead_letter_queue_has_no_policy_though_two_policies_name_the_same_queues(commands: Commands) -> None:
    commands.write(TWICE)
    stands(commands, "orders.eu", "DLQ.payments.eu", "payments.eu")
    commands.apply()
    orders = {"message-ttl": HOUR_MS, "expires": 2 * HOUR_MS, "max-length": 10, "delivery-limit": 7}
    has(commands, "orders.eu", {**SAFE, **orders})
    has(commands, "payments.eu", {**SAFE, "delivery-limit": 7})
    has(commands, "DLQ.payments.eu", {})
    assert commands.plan()["steps"] == []


REFUSED: Final = """  - {name: odd, pattern: '^odd[\\x{20AC}]', definition: {message-ttl: 2h}}
"""
OTHERS: Final = """version: 1
policies:
  - {{name: one, match: "{}.#", definition: {{message-ttl: 1h}}}}
"""


@pytest.mark.slow
def test_a_policy_that_the_broker_refuses_is_left_out_and_said(commands: Commands) -> None:
    """All others are made, and nothing goes that may be all that catches some queues."""
    stands(commands, "orders.a", "mails.a")
    commands.write(OTHERS.format("orders"))
    commands.apply()
    before = {*commands.policies()}
    commands.write(OTHERS.format("mails") + REFUSED)
    text = applied(commands)
    assert "RabbitMQ refuses policy" in text
    assert "odd[" in text
    assert before < {*commands.policies()}, "what was there stays"
    has(commands, "mails.a", {**SAFE, "message-ttl": HOUR_MS})
    assert {step["action"] for step in commands.plan()["steps"]} == {"add", "remove"}, "it is still to be done"
    commands.write(OTHERS.format("mails"))
    commands.apply()
    assert len(commands.policies()) == len(before), "also those are ours still that stayed"
    has(commands, "orders.a", {})
    assert commands.plan()["steps"] == []
