"""A RabbitMQ policy of people on queues of ours is refused with a way out, and never changed or merged."""

from dataclasses import replace
from typing import Any, Final

import pytest

from dlx_router.broker.management import Snapshot, Standing
from dlx_router.broker.policies import Rule
from dlx_router.core.names import Names
from dlx_router.core.policy import Policy, Selector, SelectorKind, Source, ordered
from dlx_router.provisioning.broker_rules import in_force
from dlx_router.provisioning.plan import plan
from dlx_router.provisioning.steps import after
from tests.provisioning.test_provision import INBOX, Commands

NAMES: Final = Names()
LEADS: Final = {"dead-letter-exchange": INBOX}
ORDERS: Final = ordered([Policy("orders", Selector(SelectorKind.MATCH, "orders.#"), Source("p", "p.yaml", 1))])


def vhost(*rules: Rule, queues: tuple[str, ...] = ("orders.new", "mails")) -> Snapshot:
    return Snapshot("/", (4, 3), tuple(Standing(queue, "quorum") for queue in queues), policies=rules)


def refusals(*rules: Rule, queues: tuple[str, ...] = ("orders.new", "mails"), owned: str = "") -> list[str]:
    planned = plan(ORDERS, vhost(*rules, queues=queues), NAMES, frozenset({owned} - {""}))
    assert planned.is_refused is bool(planned.conflicts)
    assert all(note.code == "foreign-policy" for note in planned.conflicts)
    return [note.text for note in planned.conflicts]


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (Rule("theirs", "^orders", {"message-ttl": 5}, 3), ("queue orders.new", "write message-ttl into the policy")),
        (Rule("theirs", ".*", {"consumer-timeout": 9}, 0), ("queue orders.new", "priority above")),
        (Rule("theirs", r"^orders\.old$", {"expires": 9}, 0), ("queues to come that policy orders", "write expires")),
        (Rule("theirs", "^orders", LEADS, 0), ("queue orders.new", "priority above")),
        (Rule("theirs", "^orders", {**LEADS, "dead-letter-routing-key": "x"}, 9_999), ("queue orders.new",)),
        (Rule("theirs", "^[[:alpha:]]", {"expires": 9}, 0), ("only RabbitMQ can read", "orders.new, maybe", "plainly")),
    ],
)  # fmt: skip
def test_a_policy_of_people_on_the_same_queues_is_refused_with_a_way_out(rule: Rule, words: tuple[str, ...]) -> None:
    (text,) = refusals(rule)
    assert all(word in text for word in ('policy "theirs"', *words)), text


@pytest.mark.parametrize(
    "rule",
    [
        Rule("theirs", "^mails", {"message-ttl": 5}, 3),
        Rule("theirs", "^orders", {"alternate-exchange": "x"}, 3, "exchanges"),
        Rule("theirs", "^orders", {"max-age": "1h"}, 3, "streams"),
        Rule("theirs", "^orders", {**LEADS, "message-ttl": 5}, 9_999),
        Rule("theirs", "^[[:alpha:]]", {**LEADS, "message-ttl": 5}, 9_999),
    ],
)
def test_a_policy_of_other_queues_and_one_that_leads_to_the_inbox_by_itself_are_left_alone(rule: Rule) -> None:
    now = vhost(rule)
    planned = plan(ORDERS, now, NAMES, frozenset())
    assert not planned.conflicts
    rules = after(now.policies, planned.steps)
    assert rule in rules
    effective = in_force(rules, "orders.new", "quorum")
    assert effective is not None
    assert effective.definition["dead-letter-exchange"] == INBOX
    assert plan(ORDERS, replace(now, policies=rules), NAMES, frozenset()).conflicts == ()


def test_the_priority_that_is_asked_for_is_enough() -> None:
    rule = Rule("theirs", "^orders", LEADS, 0)
    (text,) = refusals(rule)
    above = int(text.partition("priority above ")[2].split()[0])
    assert refusals(replace(rule, priority=above)) != []
    assert refusals(replace(rule, priority=above + 1)) == []


def test_what_an_apply_of_before_merged_stays_while_the_conflict_does() -> None:
    theirs = Rule("theirs", "^orders", {"message-ttl": 5}, 3)
    merged = Rule("dlx-router.12345678", "^orders", {**LEADS, "message-ttl": 5}, 5)
    assert len(refusals(theirs, merged, owned=merged.name)) == 1
    assert refusals(merged, owned=merged.name) == []


def test_apply_changes_nothing_until_the_conflict_is_resolved(commands: Commands) -> None:
    commands.declare("orders.new", queue_type="quorum")
    commands.vhost.policy("theirs", "^orders", {"message-ttl": 70_000})
    before: Any = commands.vhost.get(f"policies/{commands.vhost.quoted}")
    refused = commands.plan()
    assert any(note["code"] == "foreign-policy" for note in refused["notes"])
    assert commands.run("apply").returncode == 1
    assert commands.vhost.get(f"policies/{commands.vhost.quoted}") == before
    commands.vhost.api.delete(f"policies/{commands.vhost.quoted}/theirs").raise_for_status()
    commands.apply()
    assert commands.plan()["steps"] == []
