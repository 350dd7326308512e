"""Each key and each rule has a test that shows it. A new key of the schema without a line here fails."""

# ruff: noqa: E501 - a table, a key a line
import ast
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from tools.pages import reference

ROOT: Final = Path(__file__).parents[2]
SCHEMA: Final = json.loads((ROOT / "docs" / "policies.schema.json").read_text(encoding="utf-8"))["$defs"]

KEYS: Final[Mapping[str, str]] = {
    "dead-letter-exchange": "service/test_routing.py::test_a_dead_letter_exchange_of_any_type_routes_by_the_original_key",
    "dead-letter-routing-key": "core/test_decision.py::test_headers_of_the_letter_may_stand_in_the_key_and_missing_ones_are_counted",
    "dead-letter-routing-key-rewrite": "core/test_decision.py::test_a_spent_letter_goes_to_its_target",
    "max-delivery-attempts": "service/test_retry.py::test_n_attempts_are_exactly_n_deliveries",
    "retry-on": "core/test_decision.py::test_only_reasons_in_retry_on_are_tried_again",
    "redelivery-delay": "service/test_retry.py::test_waits_double_up_to_their_cap_and_are_never_early",
    "redelivery-delay-multiplier": "service/test_retry.py::test_waits_double_up_to_their_cap_and_are_never_early",
    "max-redelivery-delay": "service/test_retry.py::test_waits_double_up_to_their_cap_and_are_never_early",
    "redelivery-collision-avoidance-factor": "core/test_decision.py::test_the_draw_moves_the_wait",
    "auto-create-dead-letter-resources": "core/test_decision.py::test_a_spent_letter_goes_to_its_target",
    "dead-letter-queue-prefix": "service/test_routing.py::test_a_dead_letter_queue_is_made_as_the_policy_says",
    "dead-letter-queue-suffix": "service/test_routing.py::test_a_dead_letter_queue_is_made_as_the_policy_says",
    "dead-letter-queue-type": "service/test_routing.py::test_a_dead_letter_queue_is_made_as_the_policy_says",
    "dead-letter-headers": "service/test_routing.py::test_the_final_copy_carries_the_headers_of_other_systems",
    "max-redrives": "service/test_routing.py::test_redrives_by_hand_start_anew_are_counted_and_end_in_parking",
    "discard": "core/test_decision.py::test_only_discard_drops_and_it_says_so",
    "allow-queues": "core/test_decision.py::test_a_queue_that_a_message_may_name_is_one_of_those_allowed",
    "never-retry": "core/test_further.py",
    "retry-only": "core/test_further.py",
    "redelivery-max-elapsed": "core/test_further.py",
    "outage": "service/test_outage.py::test_an_outage_uses_no_attempts",
    "ordering": "service/test_retention.py::test_a_fifo_queues_dead_letters_come_in_the_order_of_their_deaths",
    "message-ttl": "service/test_relay.py::test_what_waits_longer_than_its_time_dies_expired_and_not_early",
    "max-length": "service/test_relay.py::test_the_oldest_die_where_the_queue_is_too_long_for_its_target",
    "max-length-bytes": "core/test_relaying.py::test_a_policy_sets_the_limits_of_a_queue",
    "trust-timestamp": "core/test_relaying.py::test_a_policy_sets_the_limits_of_a_queue",
    "dead-letter-queue-ttl": "service/test_retention.py::test_what_leaves_by_retention_is_journalled_first",
    "dead-letter-queue-max-length": "service/test_retention.py::test_what_leaves_by_retention_is_journalled_first",
    "dead-letter-queue-max-length-bytes": "service/test_retention.py::test_what_leaves_by_retention_is_journalled_first",
    "auto-delete-dead-letter-queue-after": "service/dispatch/test_idle_queues.py",
    "allow-chain": "config/lint/test_lint_page.py::test_the_first_example_is_found_and_the_second_is_sound",
    "alert": "service/test_alerts.py",
    "journal": "service/test_keys.py::test_a_condition_that_fails_is_false_counted_told_and_costs_no_letter",
    "on": "service/test_routing.py::test_each_reason_has_its_own_target",
    "apply-to": "service/test_keys.py::test_apply_to_means_queues_of_a_type",
}  # fmt: skip
# Only handed on: what `apply` does with them is shown where it is tested.
HANDED_ON: Final = frozenset({"overflow", "delivery-limit", "expires", "requeue-is-death"})

# What the documents of the four systems say, and the test that shows it.
RULES: Final[Mapping[str, str]] = {
    "RabbitMQ: rejected, expired and over the limit are deaths":
        "service/test_history.py::test_deaths_of_several_reasons_are_counted_each_and_told_newest_first",
    "RabbitMQ: the DLX is an exchange of any type":
        "service/test_routing.py::test_a_dead_letter_exchange_of_any_type_routes_by_the_original_key",
    "RabbitMQ: an alternate exchange is a route":
        "service/test_routing.py::test_a_dead_letter_exchange_of_any_type_routes_by_the_original_key",
    "RabbitMQ: a missing exchange drops; ours parks":
        "service/test_faults.py::test_an_exchange_that_appears_within_the_grace_gets_its_letters",
    "RabbitMQ: rights on the DLX": "service/test_faults.py::test_a_target_without_write_right_parks_its_letters_as_forbidden",
    "RabbitMQ: original keys, CC included": "service/test_routing.py::test_all_original_keys_route_as_the_broker_would",
    "RabbitMQ: with x-dead-letter-routing-key bar, bar": "service/test_routing.py::test_each_reason_has_its_own_target",
    "RabbitMQ: confirmed before removed": "core/test_settlement.py",
    "RabbitMQ: a cycle of expiries is dropped; ours parks":
        "service/test_routing.py::test_a_target_that_expires_back_without_a_rejection_parks_its_letters_as_a_cycle",
    "RabbitMQ: x-death, newest first": "service/test_history.py::test_deaths_of_several_reasons_are_counted_each_and_told_newest_first",
    "RabbitMQ: original-expiration is told": "service/test_history.py::test_the_expiration_by_which_a_letter_died_is_told",
    "Artemis: others flow on while one waits":
        "service/test_retry.py::test_letters_with_short_waits_do_not_stand_behind_those_with_long",
    "Artemis: the cap is ten delays": "core/test_backoff.py::test_the_cap_is_ten_delays_unless_it_is_said",
    "Artemis: 5000, x1.5, factor 0.15, max 50000": "core/test_backoff.py::test_the_example_queue_of_artemis",
    "Artemis: 5000, 10000, 15000": "core/test_backoff.py::test_artemis_doubles_five_seconds_up_to_fifteen",
    "Artemis: 875, 1375, 975": "core/test_backoff.py::test_artemis_avoids_collisions",
    "Artemis: -1 is infinite": "core/test_decision.py::test_n_attempts_are_n_deliveries_and_dead_instead_of_the_next",
    "Artemis: a global limit of 3 and -1 for one":
        "config/policy_files/test_policies.py::test_a_global_limit_of_three_attempts_and_none_for_the_hot_queue",
    "Artemis: DLQ.stocks gets the letters of stocks only":
        "core/test_decision.py::test_dead_letter_queues_are_named_after_the_failed_queue",
    "Artemis: dead letters tell where they came from":
        "service/test_routing.py::test_the_final_copy_carries_the_headers_of_other_systems",
    "Artemis: auto-created, hence auto-deleted": "service/dispatch/test_idle_queues.py",
    "Yandex: FIFO with FIFO":
        "service/test_retention.py::test_a_fifo_queues_dead_letters_come_in_the_order_of_their_deaths",
    "Yandex: the message keeps its id":
        "service/test_history.py::test_one_id_over_all_tries_and_another_for_another_message",
    "Yandex: retention": "service/test_retention.py::test_what_leaves_by_retention_is_journalled_first",
    "EMQ: a deleted DLQ loses nothing": "service/test_routing.py::test_a_dead_letter_queue_that_is_deleted_is_made_again",
    "EMQ: a source is no other queue's DLQ":
        "config/lint/test_lint_page.py::test_the_first_example_is_found_and_the_second_is_sound",
    "EMQ: reserved attributes": "core/test_publication.py::test_what_a_producer_said_under_an_alias_is_kept_once",
    "EMQ: what was sent to a DLQ directly has none of them":
        "core/test_publication.py::test_a_letter_without_a_history_gets_no_aliases",
    "EMQ: deadMessage": "service/test_declared.py::test_a_declared_death_is_a_rejection_with_a_reason_of_its_own",
    "EMQ: each queue of a fan-out counts on its own": "service/test_retry.py::test_a_retry_reaches_only_the_queue_that_failed",
    "EMQ: alarms": "service/test_alerts.py",
    "boundary of all: n deliveries, dead instead of n + 1":
        "service/test_retry.py::test_n_attempts_are_exactly_n_deliveries",
}  # fmt: skip


@cache
def functions(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / "tests" / file).read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


@pytest.mark.parametrize("where", sorted({*KEYS.values(), *RULES.values()}))
def test_the_test_that_shows_it_is_there(where: str) -> None:
    file, _, name = where.partition("::")
    assert not name or name in functions(file)


@pytest.mark.parametrize("key", [*SCHEMA["definition"]["properties"], "apply-to"])
def test_every_key_of_the_schema_has_a_scenario_that_writes_it(key: str) -> None:
    if key in HANDED_ON:
        return
    page = (
        "docs/lint.md"
        if KEYS[key].startswith("config/lint/test_lint_page")
        else f"tests/{KEYS[key].partition('::')[0]}"
    )
    text = (ROOT / page).read_text(encoding="utf-8")
    assert key in text or key.replace("-", "_") in text


def test_no_scenario_is_of_a_key_that_is_gone() -> None:
    assert {*KEYS} | HANDED_ON == {*SCHEMA["definition"]["properties"], "apply-to"}


def test_the_page_of_the_policy_language_is_that_of_the_code() -> None:
    assert (ROOT / "docs" / "policies.md").read_text(encoding="utf-8") == reference.policies(), "run `make pages`"
