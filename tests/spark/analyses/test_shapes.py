"""The law of the backtest: judged by shape, every letter gets what it gets when it is judged by itself."""

import json
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, reject, settings
from hypothesis import strategies as st

from dlx_router.config.findings import PolicyErrors
from dlx_router.core.backoff import wait_ms
from dlx_router.spark.backtest.differences import ARRIVALS_SCHEMA
from dlx_router.spark.backtest.replay import Judge, Outcome, differing, judge_of, recorded, was_decided
from dlx_router.spark.backtest.shapes import DEATH, OWN, SHAPE, Shapes, jittered
from tests.core.core_samples import hard_law, law
from tests.support.thoroughness import THOROUGH

pytestmark = pytest.mark.spark

NAMES = ("orders", "orders.eu", "mail")
REASONS = ("rejected", "expired", "maxlen", "delivery_limit", "application:odd", "unknown")
TS_MS = 1_700_000_000_000
KINDS = {"string": pa.string(), "long": pa.int64(), "array<string>": pa.list_(pa.string())}
ARRIVALS = pa.schema([(name, KINDS[kind]) for name, kind in map(str.split, ARRIVALS_SCHEMA.split(", "))])


TEXTS = ("shape", "event_id", "id", "body_values")
COLUMNS = pa.schema(
    (name, pa.string() if name in TEXTS else pa.float64() if name == "draw" else pa.int64()) for name in ("shape", *OWN)
)
for name, kind in (
    ("event_id", pa.string()),
    ("id", pa.string()),
    ("draw", pa.float64()),
    ("body_values", pa.string()),
):
    COLUMNS = COLUMNS.set(COLUMNS.get_field_index(name), pa.field(name, kind))


def columns(event: dict[str, Any]) -> dict[str, Any]:
    """As `arrivals` makes them of the archive."""
    shape: dict[str, Any] = {name: event[name] for name in SHAPE if name in event}
    if "deaths" in event:
        shape |= {f"death_{name}": [death.get(name) for death in event["deaths"]] for name in DEATH}
    shape["props"] = {"content_type": event["content_type"]} if "content_type" in event else {}
    bodies = json.dumps(event["body_values"]) if "body_values" in event else None
    return {**{name: event.get(name) for name in OWN}, "shape": json.dumps(shape), "body_values": bodies}


# -- random policies and letters -----------------------------------------------------------------------------------

VALUES: dict[str, list[Any]] = {
    "max-delivery-attempts": [1, 2, 3, -1],
    "redelivery-delay": [0, 1, 3, 100, 5000, "1h"],
    "redelivery-delay-multiplier": [0.5, 1.5, 2],
    "max-redelivery-delay": [150, "10s", "5m"],
    "redelivery-collision-avoidance-factor": [0.1, 0.5, 1.0],
    "retry-on": [["rejected"], ["rejected", "expired", "application"]],
    "never-retry": [["attempts > 1"], ["age > 1000"], ["size > 100"], ['header("tenant") == "a"'], ['body("/a") == 1']],
    "redelivery-max-elapsed": ["30s", "2h"],
    "outage": [{"deaths": 5, "within": "10s", "probe-every": 5000}],
    "dead-letter-exchange": ["", "dlx"],
    "dead-letter-routing-key": ["dead.{queue}.{reason}", "dead.{header:tenant}.{attempts}", "{routing_key}"],
    "dead-letter-queue-prefix": ["grave."],
    "allow-queues": [["failed.#", "orders", "mail"]],
    "max-redrives": [1, -1],
    "discard": [True],
}
definitions = st.fixed_dictionaries({}, optional={key: st.sampled_from(values) for key, values in VALUES.items()})
policies = st.lists(
    st.tuples(st.sampled_from(["orders", "mail", "orders.eu"]), definitions),
    max_size=3,
    unique_by=lambda policy: policy[0],
)
names = st.sampled_from(NAMES)
maybe = st.none() | st.booleans()
words = st.sampled_from(["a", "b", ""])


def but_null(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Members that are null are not there, as in the journal."""
    return st.fixed_dictionaries(fields).map(lambda members: {k: v for k, v in members.items() if v is not None})


deaths = but_null(
    queue=names, reason=st.sampled_from(REASONS), count=st.integers(1, 3), time_ms=st.integers(0, TS_MS),
    exchange=words, routing_keys=st.lists(words, max_size=2), original_expiration=st.none() | words,
)  # fmt: skip
fresh = but_null(queue=names, reason=st.sampled_from(REASONS), count=st.integers(1, 2))
first = but_null(queue=names, exchange=words, routing_keys=st.lists(words, min_size=1, max_size=2), reason=words)
letters = but_null(
    kind=st.sampled_from(["retried", "dead_lettered", "parked", "discarded"]),
    vhost=st.just("/"), source=st.sampled_from(["dlx-router.inbox", "orders", "grave.mail", "DLQ.orders"]),
    arrival=st.sampled_from(["inbox", "release", "retired"]), exchange=words, routing_key=words, failed_queue=names,
    reason=st.sampled_from(REASONS), cause=st.sampled_from([None, "attempts_spent", "loop", "unroutable", "forbidden"]),
    attempts=st.integers(0, 3), base_attempts=st.integers(0, 3), redrives=st.integers(0, 2), tries=st.integers(0, 1),
    target=st.just({"exchange": "", "routing_key": "DLQ.transient"}), state=st.sampled_from([None, "held", "retrying"]),
    known_before=maybe, rejected_since=maybe, fresh=st.lists(fresh, max_size=2), first=st.none() | first,
    redrive_id=st.sampled_from([None, "r-1"]), said_cause=st.sampled_from([None, "outage"]),
    breaker=st.sampled_from([None, "closed", "open"]), content_type=st.none() | words,
    declared=st.none() | but_null(never=maybe, retry_after_ms=st.none() | st.integers(0, 9000)),
    deaths=st.lists(deaths, max_size=2), headers=st.none() | st.dictionaries(st.just("tenant"), st.just('"a"')),
    id=st.just("i"), ts_ms=st.just(TS_MS) | st.integers(0, TS_MS), first_death_ms=st.integers(0, TS_MS),
    since_ms=st.none() | st.integers(0, TS_MS), draw=st.none() | st.floats(-1, 1) | st.just(float("nan")),
    due_ms=st.integers(0, TS_MS), size=st.integers(0, 200),
    body_values=st.none() | st.dictionaries(st.just("/a"), st.sampled_from(["1", "2"])),
)  # fmt: skip


@lru_cache(maxsize=500)
def judge(text: str) -> Judge:
    return judge_of((("p.yaml", text.encode()),), "dlx-router")


def written(named: list[tuple[str, dict[str, Any]]]) -> str:
    made = [
        {"name": f"p{at}", "queue": name, **({"definition": keys} if keys else {})}
        for at, (name, keys) in enumerate(named)
    ]
    return json.dumps({"version": 1, "policies": made})


# -- the law --------------------------------------------------------------------------------------------------------


def one_by_one(judge: Judge, events: list[dict[str, Any]]) -> Iterator[tuple[Any, ...]]:
    """The plain way: each letter as the journal tells it, by `decide()`."""
    for line in events:
        event = {**line, "last_death_ms": 0, "digest": {"size": line["size"]}}
        event.setdefault("first", None)
        if "content_type" in event:
            event["props"] = {"content_type": event.pop("content_type")}
        if was_decided(event):
            was, now = recorded(event), judge.judge(event)
            policy = judge.effective(event["vhost"], event["failed_queue"], event["reason"])
            yield (
                event["event_id"], event["vhost"], event["id"], event["failed_queue"], event["reason"], event["ts_ms"],
                event["redrives"], differing(was, now), policy and policy.max_attempts, *was, *now,
            )  # fmt: skip


def by_shape(judge: Judge, events: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    batch = pa.RecordBatch.from_pylist([*map(columns, events)], schema=COLUMNS)
    answers = [*Shapes(judge).judged(batch.slice(0, 3), ARRIVALS), *Shapes(judge).judged(batch.slice(3), ARRIVALS)]
    return [tuple(row.values()) for answer in answers for row in answer.to_pylist()]


@pytest.mark.slow
@settings(hard_law, max_examples=150 * THOROUGH)
@given(policies, st.lists(letters, max_size=12), st.integers(1, 3))
@example([("orders", {"redelivery-delay": 1, "redelivery-collision-avoidance-factor": 0.5})], [], 1)
def test_by_shape_is_letter_by_letter(
    named: list[tuple[str, dict[str, Any]]], drawn: list[dict[str, Any]], times: int
) -> None:
    try:
        answers = judge(written(named))
    except PolicyErrors:  # keys that contradict each other
        reject()
    events = [{**letter, "event_id": f"e-{at}"} for at, letter in enumerate(drawn * times)]
    assert sorted(by_shape(answers, events)) == sorted(one_by_one(answers, events))


class Jitter:
    """A policy, as far as waits go."""

    def __init__(self, base: int, jitter: float, cap_ms: int) -> None:
        self.delay_ms, self.jitter, self.cap_ms, self.multiplier = base, jitter, cap_ms, 1.0


@law
@given(st.integers(1, 10**12), st.floats(0, 1, exclude_min=True), st.integers(1, 10**12), st.floats(-1, 1))
@example(1, 1.0, 2, 0.0)  # 1.5: a half is rounded to the even one
@example(3, 1.0, 4, 0.0)
def test_a_column_of_waits_is_what_core_says(base: int, jitter: float, cap_ms: int, draw: float) -> None:
    base = min(base, cap_ms)
    column = jittered(np.array([base]), np.array([jitter]), np.array([cap_ms]), np.array([draw]))
    assert column.tolist() == [wait_ms(Jitter(base, jitter, cap_ms), 1, draw)]


def test_letters_of_one_shape_are_judged_once() -> None:
    asked = []
    answers = judge(written([("orders", {"redelivery-delay": 100, "redelivery-collision-avoidance-factor": 0.5})]))
    letter = {
        "kind": "retried", "vhost": "/", "source": "dlx-router.inbox", "arrival": "inbox", "exchange": "", "id": "i",
        "routing_key": "orders", "failed_queue": "orders", "reason": "rejected", "attempts": 1, "base_attempts": 0,
        "redrives": 0, "tries": 0, "deaths": [], "fresh": [{"queue": "orders", "reason": "rejected", "count": 1}],
        "ts_ms": TS_MS, "first_death_ms": TS_MS, "due_ms": TS_MS + 100, "size": 1,
    }  # fmt: skip

    class Counting(Judge):
        """Counts what it is asked."""

        def __init__(self) -> None:
            self.effective = answers.effective

        def judge(self, event: Any) -> Any:
            asked.append(event)
            return answers.judge(event)

    events = [{**letter, "event_id": f"e-{at}", "draw": at / 500 - 1} for at in range(1000)]
    batch = pa.RecordBatch.from_pylist([*map(columns, events)], schema=COLUMNS)
    shapes = Shapes(Counting())
    rows = [row for _ in range(3) for answer in shapes.judged(batch, ARRIVALS) for row in answer.to_pylist()]
    assert (len(rows), len(asked)) == (3000, 3)  # at either end of chance, and when its time is over
    assert (min(row["now_wait_ms"] for row in rows), max(row["now_wait_ms"] for row in rows)) == (50, 150)


RETRIED: dict[str, Any] = {
    "kind": "retried", "vhost": "/", "source": "dlx-router.inbox", "arrival": "inbox", "exchange": "", "id": "i",
    "routing_key": "orders", "failed_queue": "orders", "reason": "rejected", "attempts": 1, "base_attempts": 0,
    "redrives": 0, "tries": 0, "ts_ms": TS_MS, "first_death_ms": TS_MS, "due_ms": TS_MS + 100, "size": 1,
    "deaths": [{"queue": "orders", "reason": "rejected", "count": 1, "exchange": "", "routing_keys": ["orders"]}],
}  # fmt: skip
FORGED: dict[str, dict[str, Any]] = {
    "fields are missing": {name: RETRIED[name] for name in ("kind", "id", "vhost", "failed_queue", "reason", "ts_ms")},
    "no place": {"kind": "retried", "id": "i", "vhost": "/", "ts_ms": 1},
    "a body value that is no JSON": {**RETRIED, "body_values": {"/a": "not json"}},
    "a body value that is deep": {**RETRIED, "body_values": {"/a": "[" * 100_000}},
    "a header that is no JSON": {**RETRIED, "headers": {"tenant": "not json"}},
    "a wait that no column holds": {**RETRIED, "due_ms": -(2**63)},
    "attempts that no column holds": {**RETRIED, "base_attempts": 2**63 - 1},
}
CONDITIONS: list[dict[str, Any]] = [
    {},
    {"never-retry": ['body("/a") == 1']},
    {"never-retry": ['header("tenant") == "a"']},
]


@pytest.mark.parametrize("name", FORGED)
@pytest.mark.parametrize("definition", CONDITIONS, ids=["plain", "body", "header"])
def test_what_no_router_wrote_ends_no_backtest(name: str, definition: dict[str, Any]) -> None:
    """With a condition each letter is judged by itself, and one of these ended the whole."""
    events = [{**RETRIED, "event_id": "good"}, {**FORGED[name], "event_id": "forged"}]
    rows = {row[0]: row for row in by_shape(judge(written([("orders", definition)])), events)}
    assert {*rows} == {"good", "forged"}
    assert rows["good"][ARRIVALS.get_field_index("now_decision")] == "retry"


@pytest.mark.parametrize("definition", CONDITIONS, ids=["plain", "body", "header"])
@pytest.mark.parametrize("name", ["fields are missing", "no place"])
def test_what_cannot_be_judged_has_a_row_without_decisions(name: str, definition: dict[str, Any]) -> None:
    (row,) = by_shape(judge(written([("orders", definition)])), [{**FORGED[name], "event_id": "forged"}])
    assert row[ARRIVALS.get_field_index("differs")] is None
    assert {*row[-2 * len(Outcome._fields) :]} == {None}
