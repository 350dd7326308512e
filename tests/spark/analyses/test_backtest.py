"""The backtest: nothing differs under the same policies, and what differs under others is what a small script says."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import DataFrame, SparkSession

from dlx_router.cli.pipeline.queue_types import known_types
from dlx_router.cli.pipeline.run_backtest import backtest_lines
from dlx_router.spark.backtest.differences import SAMPLES, arrivals, changed, summary
from dlx_router.spark.backtest.estimate import Stratum, predicted
from dlx_router.spark.backtest.replay import draw_of, event_of, files_of, judge_of, recorded, was_decided
from dlx_router.spark.backtest.run import backtest, left_out
from tests.journal import plain_reader
from tests.spark.rows import AS_OF_MS, archived
from tests.support.client import Client
from tests.support.eventually import eventually
from tests.support.router import Router
from tests.support.vhost import Vhost
from tools.pipeline import week

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


def changed_policies(folder: Path, old: str, new: str) -> Path:
    """The week's policies with one key changed."""
    text = (week.NOW / "shop.yaml").read_text()
    assert text.count(old) == 1
    (folder / "shop.yaml").write_text(text.replace(old, new))
    return folder


def test_the_same_policies_change_nothing(events: DataFrame, truth: week.Truth) -> None:
    answer = backtest(events, files_of(week.NOW), as_of_ms=AS_OF_MS)
    assert (answer.differing_arrivals, answer.differing_letters, answer.changes, answer.estimates) == (0, 0, (), ())
    assert answer.letters == len(truth.fates)


def given_up(lines: list[dict[str, Any]], most: int) -> tuple[set[str], set[str]]:
    """Ids of the letters that fewer attempts change, and of those that recovered by a retry they do not get."""
    ids, saved = set(), set()
    newest: dict[str, dict[str, Any]] = {}
    for event in lines:
        if event["failed_queue"].startswith("orders."):
            continue
        if event["kind"] == "retried" and event["attempts"] >= most:
            ids.add(event["id"])
        if event["kind"] != "released" and not event["redrives"]:
            newest[event["id"]] = event
    for letter in ids:
        if newest[letter]["kind"] == "retried":
            saved.add(letter)
    return ids, saved


def test_one_key_changes_exactly_the_letters_that_it_should(
    events: DataFrame, lines: list[dict[str, Any]], tmp_path: Path
) -> None:
    files = files_of(changed_policies(tmp_path, "max-delivery-attempts: 4 ", "max-delivery-attempts: 3 "))
    different = changed(arrivals(events, files)).cache()
    ids, saved = given_up(lines, 3)
    assert {row.id for row in different.select("id").collect()} == ids
    rows = different.where("first").collect()
    assert {(row.was_decision, row.now_decision, row.now_cause) for row in rows} == {
        ("retry", "dead-letter", "attempts_spent")
    }
    assert sum(row.letters for row in summary(different).collect()) == len(ids)
    answer = backtest(events, files, as_of_ms=AS_OF_MS)
    assert (answer.cut, answer.cut_recovered) == (len(ids), len(saved))
    assert answer.estimates == ()  # all of it is recorded: nothing is left to be guessed


def test_policies_for_a_type_are_judged_where_the_type_is_known_and_else_named(
    events: DataFrame, tmp_path: Path
) -> None:
    typed = changed_policies(tmp_path, 'match: "orders.#"', 'match: "orders.#"\n    apply-to: quorum_queues')
    queues = {row.failed_queue for row in events.select("failed_queue").distinct().collect()}
    types = tuple(("/", queue, "quorum") for queue in sorted(queues))
    notes: tuple[str, ...] = ()
    for known in (types, ()):
        judged = arrivals(events, files_of(typed), types=known)
        differing = judged.where("size(differs) > 0").select("failed_queue").distinct().collect()
        notes = left_out(events, judge_of(files_of(typed), "dlx-router", known))
        assert all(row.failed_queue.startswith("orders.") for row in differing)
        assert bool(differing) is bool(notes) is (not known)
    assert re.match(r"policy orders \(shop\.yaml:\d+\) is for quorum queues only: orders\.", notes[0])


@pytest.mark.usefixtures("newest")
def test_the_broker_tells_the_types_of_queues(
    vhost: Vhost, amqp: Client, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    amqp.queue("q", "quorum")
    amqp.queue("c", "classic")
    monkeypatch.setenv("DLX_ROUTER_AMQP_URL", vhost.amqp_url)
    assert known_types([vhost.name]) == ()
    monkeypatch.setenv("DLX_ROUTER_MANAGEMENT_URL", vhost.management_url)
    assert known_types(["gone", vhost.name]) == ((vhost.name, "c", "classic"), (vhost.name, "q", "quorum"))
    assert "vhost 'gone': the types of queues are not known" in capsys.readouterr().err


@pytest.mark.slow
def test_an_estimate_holds_what_then_happens(events: DataFrame, truth: week.Truth) -> None:
    answer = backtest(events, files_of(week.BETTER), as_of_ms=AS_OF_MS)
    [estimate] = answer.estimates
    then = week.week(len(truth.fates), 11, week.BETTER).of("stock-outage")
    assert estimate.low <= sum(fate.recovered_ms is not None for fate in then) <= estimate.high
    assert answer.as_dict()["estimates"][0]["label"] == "estimate"


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_what_a_router_wrote_is_decided_again_the_same(
    spark: SparkSession, vhost: Vhost, amqp: Client, start_router: Any, tmp_path: Path
) -> None:
    amqp.exchange("shop", "topic")
    for name in ("orders.new", "mail.send", "unmatched"):
        amqp.queue(name, "quorum", dead_letter_exchange="dlx-router.inbox")
    amqp.channel.queue_declare("mine", exclusive=True, arguments={"x-dead-letter-exchange": "dlx-router.inbox"})
    amqp.bind("orders.new", "shop", "new")
    amqp.bind(amqp.queue("dead"), "shop", "dead.#")
    policies = {"p.yaml": POLICIES}
    router: Router = start_router(policies, JOURNAL="required")
    amqp.publish("1", key="new", exchange="shop", message_id="a")
    for _ in range(3):
        amqp.fail("orders.new")
    amqp.publish("2", key="mail.send", headers={"tenant": "t1"})
    amqp.publish("3", key="mail.send")
    amqp.fail("mail.send")
    amqp.fail("mail.send")
    amqp.publish("4", key="unmatched")
    amqp.fail("unmatched")
    amqp.publish("5", key="mine")
    amqp.fail("mine")
    kinds = ["dead_lettered"] * 4 + ["parked"] + ["released"] * 2 + ["retried"] * 2
    journal = eventually(lambda: read_journal(vhost, len(kinds)), 30)
    events = archived(spark, journal, tmp_path / "journal.ndjson").cache()
    assert sorted(row.kind for row in events.select("kind").collect()) == kinds
    judged = arrivals(events, files_of(router.policies)).collect()
    assert [row.asDict() for row in judged if row.differs] == []
    assert len(judged) == 7
    assert {row.was_routing_key for row in judged if row.failed_queue == "mine"} == {"DLQ.transient"}


POLICIES = """
version: 1
policies:
  - name: orders
    match: "orders.#"
    definition:
      {max-delivery-attempts: 3, redelivery-delay: 400, redelivery-collision-avoidance-factor: 0.5}
  - name: mine
    match: mine
    definition: {max-delivery-attempts: 1}
  - name: mail
    match: "mail.#"
    definition:
      max-delivery-attempts: 1
      dead-letter-exchange: shop
      dead-letter-routing-key: "dead.{queue}.{header:tenant}"
"""


def read_journal(vhost: Vhost, count: int) -> bytes:
    """All lines of the journal, once there are so many."""
    lines: list[bytes] = []
    with Client(vhost.amqp_url) as reader:
        reader.channel.basic_qos(prefetch_count=100)
        consumer = reader.channel.consume(
            "dlx-router.journal", arguments={"x-stream-offset": "first"}, inactivity_timeout=1
        )
        for method, how, body in consumer:
            if method is None:
                break
            reader.channel.basic_ack(method.delivery_tag)
            lines += [json.dumps(event).encode() for event in plain_reader.events(how.content_encoding, body)]
    assert len(lines) >= count, lines
    return b"\n".join(lines)


@pytest.mark.parametrize(
    ("event", "decided"),
    [
        ({"kind": "retried"}, True),
        ({"kind": "released"}, False),
        ({"kind": "held", "cause": "target_refused"}, False),
        ({"kind": "parked", "cause": "loop"}, True),
        ({"kind": "parked", "cause": "unroutable"}, False),
        ({"kind": "parked", "cause": "forbidden", "tries": 0}, True),
        ({"kind": "parked", "cause": "forbidden", "tries": 0, "state": "held"}, False),
        ({"kind": "quarantined", "cause": "malformed"}, False),
        ({"kind": "discarded"}, True),
        ({"kind": "discarded", "redrive_id": "t-1"}, False),
        ({"kind": "parked", "cause": "loop", "redrive_id": "t-1"}, False),
    ],
)
def test_what_the_broker_or_a_person_made_of_a_decision_is_not_judged(event: dict[str, Any], decided: object) -> None:
    assert was_decided(event) is decided


def test_an_event_that_no_router_wrote_is_counted_and_ends_nothing(
    spark: SparkSession, lines: list[dict[str, Any]], tmp_path: Path
) -> None:
    retried = [event for event in lines if event["kind"] == "retried"][:20]
    forged = {name: retried[0][name] for name in ("v", "id", "kind", "router_id", "vhost", "failed_queue", "reason")}
    journal = [*retried, {**forged, "event_id": "forged", "ts_ms": retried[0]["ts_ms"]}]
    made = archived(spark, b"\n".join(json.dumps(event).encode() for event in journal) + b"\n", tmp_path / "j.ndjson")
    (tmp_path / "p").mkdir()
    (tmp_path / "p/all.yaml").write_text(
        'version: 1\npolicies:\n  - {name: all, match: "#", definition: {never-retry: ["attempts > 9"]}}\n'
    )
    answer = backtest(made, files_of(tmp_path / "p"), as_of_ms=AS_OF_MS)
    assert (answer.judged, answer.unjudged, answer.as_dict()["unjudged"]) == (20, 1, 1)
    assert backtest_lines(answer)[1] == "not judged: 1 decision, told by events that no router writes so"
    assert all(len(row["sample_ids"]) <= SAMPLES for row in answer.changes)
    assert any(row["letters"] > SAMPLES for row in answer.changes)


def test_a_chance_that_was_never_drawn_is_the_same_each_time() -> None:
    draws = [draw_of({"event_id": f"e-{number}"}) for number in range(2000)]
    assert draws == [draw_of({"event_id": f"e-{number}"}) for number in range(2000)]
    assert -1 <= min(draws) < -0.99
    assert 0.99 < max(draws) < 1
    assert abs(np.mean(draws)) < 0.05
    assert draw_of({"event_id": "e-1", "draw": 0.25}) == 0.25


def test_policies_travel_as_files(lines: list[dict[str, Any]]) -> None:
    judge = judge_of(files_of(week.NOW), "dlx-router")
    dead = next(event for event in lines if event["kind"] == "dead_lettered")
    event = event_of(json.dumps({**dead, "fresh": dead.get("fresh", dead["deaths"]), "first": None}))
    assert judge.judge(event) == recorded(event)


def test_nineteen_of_twenty_intervals_hold_what_happens() -> None:
    chance = np.random.default_rng(5)
    held = 0
    for trial in range(300):
        p_in, p_out = chance.uniform(0, 0.5), chance.uniform(0.3, 1)
        seen_in, seen_out = int(chance.integers(5, 400)), int(chance.integers(5, 400))
        inside = (int(chance.binomial(seen_in, p_in)), seen_in)
        outside = (int(chance.binomial(seen_out, p_out)), seen_out)
        groups = [Stratum(2, 1, 300, inside, outside), Stratum(0, 2, 100, inside, outside)]
        whole = (inside[0] + outside[0], seen_in + seen_out)
        _, low, high = predicted(groups, whole, seed=trial)
        saved = chance.binomial(300, 1 - (1 - p_in) ** 2 * (1 - p_out)) + chance.binomial(100, 1 - (1 - p_out) ** 2)
        held += low <= saved <= high
    assert 0.91 <= held / 300 <= 0.99


def test_what_was_never_seen_is_as_good_as_unknown() -> None:
    _, low, high = predicted([Stratum(0, 1, 1000)], (0, 0))
    assert low < 20
    assert high > 980
