"""Two folders of policies compared: what changed in their words, for which queue, and what is no change."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from dlx_router.config.policy_files.difference import Diff, compared
from dlx_router.config.policy_files.loader import LoadedPolicies, load_policies

BASE = "{name: all, match: '#', definition: {max-delivery-attempts: 3, redelivery-delay: 1s}}"
ORDERS = "{name: orders, queue: orders, definition: {max-redrives: 5}}"


def loaded(folder: Path, *policies: str, file: str = "a.yaml", more: str = "") -> LoadedPolicies:
    folder.mkdir()
    text = "version: 1\npolicies:\n" + "".join(f"  - {policy}\n" for policy in policies) + more
    (folder / file).write_text(text, encoding="utf-8")
    return load_policies(folder)


def diff(tmp_path: Path, was: Iterable[str], now: Iterable[str], queues: Iterable[str] = (), vhost: str = "/") -> Diff:
    return compared(loaded(tmp_path / "was", *was), loaded(tmp_path / "now", *now), vhost, queues)


def rows_of(changes: Iterable[Any]) -> list[tuple[str, str, str]]:
    return [(change.key, change.was, change.now) for change in changes]


def test_a_changed_key_is_told_of_its_policy_and_of_each_queue_it_holds_for(tmp_path: Path) -> None:
    changes = diff(tmp_path, [BASE, ORDERS], [BASE.replace(": 3", ": 4"), ORDERS], ["mails"])
    assert [(policy.name, policy.change) for policy in changes.policies] == [("all", "changed")]
    assert rows_of(changes.policies[0].keys) == [("max-delivery-attempts", "3", "4")]
    assert {queue.queue: rows_of(queue.keys) for queue in changes.queues} == {
        "mails": [("max-delivery-attempts", "3", "4")],
        "orders": [("max-delivery-attempts", "3", "4")],
    }
    (key,) = changes.queues[0].keys
    assert key.was_by.endswith("was/a.yaml:3 (all)")
    assert key.now_by.endswith("now/a.yaml:3 (all)")
    assert not changes.is_equal


def test_what_another_policy_overrides_changes_no_queue(tmp_path: Path) -> None:
    over = "{name: orders, queue: orders, definition: {max-delivery-attempts: 9}}"
    changes = diff(tmp_path, [BASE, over], [BASE.replace(": 3", ": 4"), over])
    assert [policy.name for policy in changes.policies] == ["all"]
    assert changes.queues == ()


def test_new_and_gone_policies_are_told_whole(tmp_path: Path) -> None:
    changes = diff(tmp_path, [BASE], [ORDERS])
    assert [(policy.name, policy.change) for policy in changes.policies] == [("all", "removed"), ("orders", "added")]
    assert rows_of(changes.policies[0].keys) == [
        ("selects", "match: #", ""),
        ("max-delivery-attempts", "3", ""),
        ("redelivery-delay", "1s", ""),
    ]
    (orders,) = changes.queues
    assert (orders.was, orders.now) == (("all",), ("orders",))
    assert ("max-delivery-attempts", "3", "10") in rows_of(orders.keys)


def test_what_holds_for_a_reason_only_is_told_with_it(tmp_path: Path) -> None:
    with_reason = BASE.replace("1s", "1s, on: {expired: {discard: true}}")
    changes = diff(tmp_path, [BASE], [with_reason], ["mails"])
    assert rows_of(changes.policies[0].keys) == [("on expired: discard", "", "true")]
    assert rows_of(changes.queues[0].keys) == [("on expired: discard", "false", "true")]


@pytest.mark.parametrize(
    ("head", "key", "now"),
    [
        ("priority: 1", "priority", "1"),
        ("inherit: false", "inherit", "false"),
        ("labels: {team: shop}", "label team", "shop"),
    ],
)
def test_what_stands_at_a_policys_head_is_compared_too(tmp_path: Path, head: str, key: str, now: str) -> None:
    changes = diff(tmp_path, [BASE], [BASE.replace("name: all", f"name: all, {head}")])
    assert rows_of(changes.policies[0].keys) == [(key, "", now)]


def test_a_type_of_queues_is_told_where_it_matters(tmp_path: Path) -> None:
    quorum = "{name: q, queue: orders, apply-to: quorum_queues, definition: {max-redrives: 9}}"
    changes = diff(tmp_path, [BASE], [BASE, quorum])
    assert [(queue.queue, queue.queue_type, queue.now) for queue in changes.queues] == [
        ("orders", "quorum", ("q", "all"))
    ]
    both = compared(loaded(tmp_path / "x", BASE, quorum), loaded(tmp_path / "y", BASE.replace("1s", "2s"), quorum), "/")
    assert [queue.queue_type for queue in both.queues if queue.queue_type is None] == []


def test_lines_comments_and_names_of_files_are_no_difference(tmp_path: Path) -> None:
    was = loaded(tmp_path / "was", BASE, ORDERS)
    now = loaded(tmp_path / "now", BASE, f"{ORDERS}  # as Ann wanted it", file="b.yml")
    assert was.policies.revision != now.policies.revision
    assert compared(was, now, "/", ["mails"]).is_equal


def test_an_order_that_decides_between_equals_is_told(tmp_path: Path) -> None:
    first = "{name: x, match: 'a.#', definition: {discard: true}}"
    two = first.replace("name: x", "name: y").replace("true", "false")
    changes = diff(tmp_path, [first, two], [two, first], ["a.b"])
    assert (changes.policies, changes.is_reordered) == ((), True)
    assert rows_of(changes.queues[0].keys) == [("discard", "true", "false")]


def test_attachments_are_compared(tmp_path: Path) -> None:
    attached = "attachments:\n  - {queue: old, mode: inbox, dead-letter-exchanges: dlx}\n"
    changes = compared(loaded(tmp_path / "was", BASE), loaded(tmp_path / "now", BASE, more=attached), "/")
    assert rows_of(changes.sources) == [("attachment old", "", "queue, mode inbox; dead letters by 'dlx'")]


@pytest.mark.parametrize(("vhost", "is_equal"), [("/", True), ("shop", False)])
def test_policies_of_another_vhost_are_no_difference(tmp_path: Path, vhost: str, *, is_equal: bool) -> None:
    other = ORDERS.replace("name: orders", "name: orders, vhost: shop")
    assert diff(tmp_path, [BASE], [BASE, other], vhost=vhost).is_equal is is_equal
