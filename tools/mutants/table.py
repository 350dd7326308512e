"""The mutants: small ways to spoil the router, each with the test that must notice. tools/mutants/run.py runs them."""

from dataclasses import dataclass
from typing import Final


class MutantError(Exception):
    """A mutant cannot be made or judged; says which and why."""


@dataclass(frozen=True)
class Mutant:
    """`search` stands exactly once in dlx_router/`file`; with `replace` in its place `test` must fail."""

    name: str
    file: str
    search: str
    replace: str
    test: str

    def applied(self, source: str) -> str:
        """The spoiled source; MutantError where the place is not found, or not alone."""
        if (times := source.count(self.search)) != 1:
            raise MutantError(f"{self.name}: found {times} times in dlx_router/{self.file}: {self.search!r}")
        return source.replace(self.search, self.replace)


_REFUSALS: Final = "tests/faults/test_refusals.py"
_SETTLEMENT: Final = "tests/core/test_settlement.py"
_DECISION: Final = "tests/core/test_decision.py"
_ARRIVAL: Final = "tests/core/test_arrival.py"
_PUBLICATION: Final = "tests/core/test_publication.py"
_ONE_DECISION: Final = "tests/cli/test_one_decision.py::test_every_surface_says_what_the_router_does"

MUTANTS: Final = (
    Mutant(
        "priority-in-rung",
        "core/publication.py",
        "        rung_ms=rung_ms,\n    )\n",
        "        rung_ms=rung_ms,\n        priority=record.props.priority,\n    )\n",
        f"{_PUBLICATION}::test_a_waiting_copy_is_persistent_and_has_no_priority",
    ),
    Mutant(
        "ack-before-confirm",
        "broker/publisher.py",
        "        self._confirms.publish(job)\n        self._link.send(data)\n",
        "        self._link.send(data)\n"
        "        number = self._confirms.publish(job)\n"
        "        for one, _ in self._confirms.answered(number, multiple=False):\n"
        '            self._on_answer(one, "")\n',
        f"{_REFUSALS}::test_what_nobody_takes_is_parked",
    ),
    Mutant(
        "return-ignored",
        "core/settlement.py",
        "        self._returned[number] = why\n",
        "",
        f"{_SETTLEMENT}::test_a_return_is_told_with_the_answer_of_its_own_publish_whatever_lies_between",
    ),
    Mutant(
        "return-acked",
        "service/dispatch/worker.py",
        "            self._not_arrived(job, NotTaken(why))\n",
        "            self._settling.confirmed([job])\n",
        f"{_REFUSALS}::test_what_nobody_takes_is_parked",
    ),
    Mutant(
        "nack-taken-for-ack",
        "broker/publisher.py",
        '            why = "" if event.ok else NACKED\n',
        '            why = ""\n',
        f"{_REFUSALS}::test_what_a_full_target_refuses_is_held",
    ),
    Mutant(
        "doubt-forgotten",
        "core/settlement.py",
        "        jobs = list(self._pending.values())\n",
        "        jobs: list[Job] = []\n",
        f"{_SETTLEMENT}::test_after_a_channel_is_gone_all_that_is_open_is_in_doubt_and_numbers_begin_anew",
    ),
    Mutant(
        "confirm-one-too-far",
        "core/settlement.py",
        "                if number and pending > number:\n",
        "                if number and pending > number + 1:\n",
        f"{_SETTLEMENT}::test_one_or_all_up_to_a_number_are_answered",
    ),
    Mutant(
        "ack-one-too-far",
        "core/settlement.py",
        "            if tag not in done:\n                break\n            last = tag\n",
        "            last = tag\n            if tag not in done:\n                break\n",
        f"{_SETTLEMENT}::test_settled_deliveries_take_as_few_acks_as_possible",
    ),
    Mutant(
        "run-keeps-its-jobs",
        "service/inflight/runs.py",
        "        self.forget(start, stop)\n        return jobs\n",
        "        return jobs\n",
        "tests/service/inflight/test_compiled.py::test_a_run_keeps_nothing_of_its_letters_that_became_jobs",
    ),
    Mutant(
        "merge-counts-once",
        "core/history.py",
        "_grown(old, death, old.times + death.times, cut=cut)",
        "_grown(old, death, old.times, cut=cut)",
        "tests/core/test_history.py::test_the_broker_and_the_record_together_tell_every_death_once",
    ),
    Mutant(
        "own-deaths-told",
        "core/history.py",
        "    return tuple(death for death in deaths if not is_own(death.queue))\n",
        "    return tuple(deaths)\n",
        "tests/core/test_history.py::test_waits_in_our_own_queues_are_no_deaths",
    ),
    Mutant(
        "table-re-encoded",
        "wire/table.py",
        '    parts.append(append)\n    return b"".join(parts)\n',
        "    from pamqp import decode as theirs, encode as back\n"
        '    kept = theirs.field_table(_counted(b"".join(parts)))[1]\n'
        "    return back.field_table(kept)[4:] + append\n",
        "tests/wire/test_table.py::test_what_is_not_removed_survives_in_order",
    ),
    Mutant(
        "expiration-kept",
        "service/inflight/encoder.py",
        "            expiration=None,\n            user_id=self._user_id(envelope.props),\n",
        "            user_id=self._user_id(envelope.props),\n",
        "tests/service/inflight/test_compiled.py::test_the_short_way_writes_what_the_long_way_writes",
    ),
    Mutant(
        "attempts-not-counted",
        "core/decision.py",
        "    return letter.base_attempts + died(letter, policy)\n",
        "    return letter.base_attempts\n",
        f"{_ARRIVAL}::test_attempts_are_failures_since_the_letter_last_came_other_than_by_our_retry",
    ),
    Mutant(
        "one-delivery-too-many",
        "core/decision.py",
        "attempts < policy.max_attempts",
        "attempts <= policy.max_attempts",
        f"{_DECISION}::test_n_attempts_are_n_deliveries_and_dead_instead_of_the_next",
    ),
    Mutant(
        "loop-not-seen",
        "core/decision.py",
        "letter.state is not None and not letter.fresh:\n        return Cause.LOOP\n",
        "letter.state is not None and not letter.fresh:\n        return None\n",
        f"{_ARRIVAL}::test_what_comes_back_is_told_apart",
    ),
    Mutant(
        "due-ignored",
        "core/waiting.py",
        "            rest = wait_ms - rung\n",
        "            rest = 0\n",
        "tests/core/test_clock.py::test_over_any_clocks_the_rungs_add_up_to_the_wait",
    ),
    Mutant(
        "grace-ignored",
        "core/decision.py",
        "ladder_elapsed_ms(tries - 1) >= grace_ms",
        "ladder_elapsed_ms(tries - 1) >= 0",
        f"{_DECISION}::test_without_a_way_it_is_parked_when_the_grace_is_over",
    ),
    Mutant(
        "signature-not-checked",
        "core/remembered.py",
        "    if not separator or not compare_digest(tail, expected):\n",
        "    if not separator:\n",
        "tests/core/test_record.py::test_another_routers_key_is_refused",
    ),
    Mutant(
        "copied-record-obeyed",
        "core/arrival.py",
        "    if record is None or not facts.belongs:\n        return",
        "    if record is None:\n        return",
        f"{_ARRIVAL}::test_a_copied_record_lends_its_count_to_nobody",
    ),
    Mutant(
        "cc-lost",
        "core/publication.py",
        "        cc=() if plain else keys[1:],\n",
        "        cc=(),\n",
        f"{_PUBLICATION}::test_the_way_back_looks_like_the_first_delivery",
    ),
    Mutant(
        "parked-routes-again",
        "core/publication.py",
        "kept, AT_REST_BYTES, cc=(), priority=",
        "kept, AT_REST_BYTES, cc=None, priority=",
        f"{_PUBLICATION}::test_a_parked_copy_stays_where_it_is_put",
    ),
    Mutant(
        "transient-at-rest",
        "core/publication.py",
        "    delivery_mode: int | None = 2\n",
        "    delivery_mode: int | None = 1\n",
        f"{_PUBLICATION}::test_every_copy_at_rest_is_persistent",
    ),
    Mutant(
        "crowd-at-the-cap",
        "core/backoff.py",
        "    high = min(low, policy.cap_ms - base)\n",
        "    high = low\n",
        "tests/core/test_backoff.py::test_at_the_cap_the_crowd_spreads_below_it",
    ),
    Mutant(
        "type-dropped-by-the-api",
        "admin/api/policies.py",
        "reason=reason, queue_type=queue_type)",
        "reason=reason, queue_type=None)",
        _ONE_DECISION,
    ),
    Mutant(
        "type-dropped-by-the-backtest",
        "spark/backtest/replay.py",
        "reason=reason, queue_type=queue_type)",
        "reason=reason, queue_type=None)",
        _ONE_DECISION,
    ),
    Mutant(
        "api-prints-otherwise",
        "admin/api/policies.py",
        "[row._asdict() for row in explanation.keys]",
        '[{**row._asdict(), "value": row.value.strip("[]")} for row in explanation.keys]',
        _ONE_DECISION,
    ),
    Mutant(
        "waiting-counts-as-helped",
        "core/recovered.py",
        "THEN CASE WHEN {_DUE} THEN due_ms ELSE",
        "THEN CASE WHEN {_DUE} THEN ts_ms ELSE",
        "tests/core/test_recovered.py::test_the_expression_for_columns_is_the_rule",
    ),
    Mutant(
        "end-of-a-wait-says-it-helped-not",
        "index/queries.py",
        "AND steps.kind NOT IN {SILENT!r} ORDER",
        "AND steps.kind NOT IN ('edited', '') ORDER",
        "tests/index/test_outcome.py::test_a_letter_of_the_index_says_whether_it_helped",
    ),
)
