"""Which queues the policies make, or send dead letters to."""

from collections.abc import Iterable
from typing import Any

import pytest

from dlx_router.core.dead_letter_queues import Aim, aims, deletes, is_made, is_named
from dlx_router.core.policy import Effective, PolicySet
from dlx_router.core.template import parse
from tests.core.core_samples import policy, policy_set


def _policies(**definition: Any) -> PolicySet:
    named = {name.replace("_", "-"): value for name, value in definition.items()}
    if "dead-letter-routing-key" in named:
        named["dead-letter-routing-key"] = parse(named["dead-letter-routing-key"])
    return policy_set(policy(match="work.#", definition=named))


def _made(queue: str, policies: PolicySet) -> bool:
    def of(failed: str) -> Iterable[Effective]:
        resolved = policies.resolve(vhost="/", queue=failed, reason="rejected", queue_type=None)
        return () if resolved is None else (resolved,)

    return is_made(queue, policies, of)


@pytest.mark.parametrize(
    ("queue", "definition", "made"),
    [
        ("DLQ.work.a", {}, True),
        ("DLQ.other", {}, False),
        ("DLQ.", {}, False),
        ("work.a", {}, False),
        ("DLQ.transient", {}, True),
        (f"DLQ.{'x' * 230}-{'0' * 16}", {}, True),
        (f"DLQ.{'x' * 230}-{'g' * 16}", {}, False),
        ("work.a.dead", {"dead_letter_queue_prefix": "", "dead_letter_queue_suffix": ".dead"}, True),
        ("work.a", {"dead_letter_queue_prefix": "", "dead_letter_queue_suffix": ".dead"}, False),
        ("DLQ.work.a", {"dead_letter_exchange": "dlx"}, False),
        ("DLQ.work.a", {"dead_letter_exchange": "dlx", "auto_create_dead_letter_resources": True}, True),
    ],
)
def test_made_is_what_a_policy_in_force_makes(queue: str, definition: dict[str, Any], made: bool) -> None:  # noqa: FBT001 - a column of the table
    assert _made(queue, _policies(**definition)) is made


@pytest.mark.parametrize(
    ("queue", "definition", "named"),
    [
        ("dead", {"dead_letter_exchange": "", "dead_letter_routing_key": "dead"}, True),
        ("dead", {"dead_letter_routing_key": "dead"}, True),
        ("dead", {"dead_letter_exchange": "dlx", "dead_letter_routing_key": "dead"}, False),
        ("dead.work.a", {"dead_letter_routing_key": "dead.{queue}"}, True),
        ("anything", {"dead_letter_routing_key": "{queue}"}, False),
        ("dead", {"dead_letter_exchange": ""}, False),
        ("dead", {}, False),
    ],
)
def test_named_is_what_a_policy_reaches_by_the_default_exchange(
    queue: str,
    definition: dict[str, Any],
    named: bool,  # noqa: FBT001 - a row of the table
) -> None:
    assert is_named(queue, _policies(**definition), "/") is named


def test_aims_are_the_exchanges_with_the_key_where_it_is_one() -> None:
    assert aims(_policies(dead_letter_exchange="dlx", dead_letter_routing_key="dead"), "/") == {Aim("dlx", "dead")}
    assert aims(_policies(dead_letter_exchange="dlx", dead_letter_routing_key="{queue}"), "/") == {Aim("dlx", None)}
    assert aims(_policies(dead_letter_exchange="dlx"), "/") == {Aim("dlx", None)}
    assert aims(_policies(dead_letter_routing_key="dead"), "/") == set()


def test_a_policy_of_another_vhost_says_nothing_and_one_reason_says_something() -> None:
    elsewhere = policy_set(policy(vhost="other", definition={"dead-letter-exchange": "dlx"}))
    assert aims(elsewhere, "/") == set()
    overlay = policy_set(policy(on={"expired": {"dead-letter-exchange": "late"}}))
    assert aims(overlay, "/") == {Aim("late", None)}


def test_deletes_is_said_anywhere() -> None:
    assert not deletes(_policies())
    assert deletes(_policies(auto_delete_dead_letter_queue_after=1000))
    assert deletes(policy_set(policy(on={"expired": {"auto-delete-dead-letter-queue-after": 1000}})))
