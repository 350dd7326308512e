"""Letters in columns → what was decided of each, and what other policies decide: one `decide()` for each shape.

A shape is all that a decision looks at but times and chance; letters that are equal in it are judged once, and once
more as they are when their time (`redelivery-max-elapsed`) is over. Chance is the jitter alone. The waits that it makes
and whether they end in time are computed in columns. Conditions may ask for anything: with them every letter is judged
by itself. A law holds both ways equal: tests/spark/analyses/test_shapes.py.

Anybody may write to a stream: a letter of which no router wrote such an event is not judged, and is told as such, by a
row whose `differs` is null.
"""

import json
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dlx_router.core.backoff import base_delay_ms
from dlx_router.core.policy import Effective
from dlx_router.spark.backtest.replay import Judge, Outcome, differing, draw_of, recorded, was_decided

SHAPE: Final = (
    "kind", "vhost", "source", "arrival", "exchange", "routing_key", "failed_queue", "reason", "cause", "attempts",
    "base_attempts", "redrives", "tries", "target", "state", "known_before", "rejected_since", "fresh", "first",
    "redrive_id", "said_cause", "breaker", "declared", "headers",
)  # fmt: skip
DEATH: Final = ("queue", "reason", "count", "exchange", "routing_keys")  # what a decision looks at of a death
OWN: Final = ("event_id", "id", "ts_ms", "draw", "first_death_ms", "due_ms", "since_ms", "size", "body_values")
_NO_TIMES: Final[dict[str, Any]] = {
    "event_id": "", "ts_ms": 0, "draw": 0.0, "due_ms": 0, "first_death_ms": 0, "last_death_ms": 0,
    "digest": {"size": 0}, "id": "",
}  # fmt: skip
_COMMON: Final = ("vhost", "failed_queue", "reason", "redrives")  # of the rows, the same for a shape
SHAPES: Final = 10_000  # remembered by a task
_NONE: Final = -(1 << 62)  # is no wait
_FAR: Final = 1 << 60  # a moment that is never reached
_LONGS: Final = range(-(1 << 63), 1 << 63)
_NO_EVENT: Final = (LookupError, TypeError, ValueError, ArithmeticError)  # what no router wrote raises these
_WAIT: Final = Outcome._fields.index("wait_ms")


class Shape(NamedTuple):
    """What is known of all letters of a shape. `jittered`: the wait depends on the draw, by this policy and base.

    `was` None: it tells of no decision. `now` None: each is judged by itself. `over`: what is decided where a wait
    would end later than `elapsed_ms` after the first death; None: the same. `is_event`: a router may have written it.
    """

    event: dict[str, Any]
    was: Outcome | None
    now: Outcome | None = None
    allowed: int | None = None
    jittered: tuple[Effective, int] | None = None
    over: Outcome | None = None
    elapsed_ms: int = 0
    is_event: bool = True


class Shapes:
    """The judge's answers by shape; of one task."""

    def __init__(self, judge: Judge) -> None:
        self._judge = judge
        self._known: OrderedDict[str, Shape] = OrderedDict()

    def judged(self, batch: pa.RecordBatch, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        """The letters that were decided upon, of a batch with columns `shape` (JSON) and OWN: rows of `schema`.

        In any order. What cannot be judged has a row too, without decisions.
        """
        encoded = batch.column("shape").dictionary_encode()
        codes = encoded.indices.to_numpy()
        shapes = [self._shape(text) for text in encoded.dictionary.to_pylist()]
        forged = np.array([not shape.is_event for shape in shapes], bool)[codes]
        together = np.array([shape.was is not None and shape.now is not None for shape in shapes], bool)[codes]
        if together.any():
            some = pa.array(together)
            yield _in_columns(batch.filter(some), codes[together], shapes, schema)
        alone = np.array([shape.was is not None and shape.now is None for shape in shapes], bool)[codes]
        if alone.any():
            rows = self._one_by_one(batch.filter(pa.array(alone)), [shapes[code] for code in codes[alone]])
            yield _in_rows(rows, schema)
        if forged.any():
            owns = _own(batch.filter(pa.array(forged)))
            yield _in_rows(map(_unjudged, owns, [shapes[code] for code in codes[forged]]), schema)

    def _shape(self, text: str) -> Shape:
        if text not in self._known:
            self._known[text] = _judged(self._judge, event_of(text))
            if len(self._known) > SHAPES:
                self._known.popitem(last=False)
        return self._known[text]

    def _one_by_one(self, batch: pa.RecordBatch, shapes: Sequence[Shape]) -> Iterator[tuple[Any, ...]]:
        for own, shape in zip(_own(batch), shapes, strict=True):
            try:
                row = self._row(own, shape)
            except _NO_EVENT:
                row = _unjudged(own, shape)
            yield row

    def _row(self, own: dict[str, Any], shape: Shape) -> tuple[Any, ...]:
        event = {**shape.event, "due_ms": own["ts_ms"], "first_death_ms": own["ts_ms"], **own}
        was, now = recorded(event), self._judge.judge(event)
        _require_longs(was, now)
        return (
            own["event_id"], event["vhost"], own["id"], event["failed_queue"], event["reason"], own["ts_ms"],
            event["redrives"], differing(was, now), shape.allowed, *was, *now,
        )  # fmt: skip


def _judged(judge: Judge, event: dict[str, Any]) -> Shape:
    """What `decide()` says of the shape, unless it may say otherwise at another time."""
    try:
        return _decided(judge, event) if was_decided(event) else Shape(event, None)
    except _NO_EVENT:
        return Shape(event, None, is_event=False)


def _require_longs(*outcomes: Outcome) -> None:
    """ArithmeticError where a number is larger than a column holds."""
    for number in (value for outcome in outcomes for value in outcome if isinstance(value, int)):
        if number not in _LONGS:
            raise OverflowError(number)


def _unjudged(own: dict[str, Any], shape: Shape) -> tuple[Any, ...]:
    """The row of a letter of which nothing can be said."""
    event = shape.event
    names = (own.get("event_id"), event.get("vhost"), own.get("id"), event.get("failed_queue"), event.get("reason"))
    return (*names, own.get("ts_ms"), event.get("redrives"), None, shape.allowed, *(None,) * (2 * len(Outcome._fields)))


def _in_rows(rows: Iterable[tuple[Any, ...]], schema: pa.Schema) -> pa.RecordBatch:
    columns = zip(zip(*rows, strict=True), schema, strict=True)
    return pa.RecordBatch.from_arrays([pa.array(column, field.type) for column, field in columns], schema=schema)


def _decided(judge: Judge, event: dict[str, Any]) -> Shape:
    plain = {**event, **_NO_TIMES, "since_ms": _FAR}
    was, policy = recorded(plain), judge.effective(event["vhost"], event["failed_queue"], event["reason"])
    if policy is None:
        now = judge.judge(plain)
        _require_longs(was, now)
        return Shape(event, was, now)
    if policy.never_retry or policy.retry_only:
        return Shape(event, was, None, policy.max_attempts)
    least, most = (judge.judge({**plain, "draw": draw}) for draw in (-1.0, 1.0))
    _require_longs(was, least, most)
    shape = Shape(event, was, least, policy.max_attempts)
    if least != most:  # a wait only grows with its draw
        shape = shape._replace(jittered=(policy, base_delay_ms(policy, least.attempts)))
    late = judge.judge({**plain, "ts_ms": _FAR, "since_ms": 1, "draw": -1.0})
    return shape if late == least else shape._replace(over=late, elapsed_ms=policy.max_elapsed_ms or 0)


def _in_columns(
    batch: pa.RecordBatch, codes: "np.ndarray[Any, Any]", shapes: Sequence[Shape], schema: pa.Schema
) -> pa.RecordBatch:
    """Rows of `schema` of letters whose shapes are judged."""
    was_ms, now_ms = _waited(batch, codes, shapes), _waits(batch, codes, shapes)
    late = _late(batch, now_ms, codes, shapes)
    if late.any():
        codes = np.where(late, codes + len(shapes), codes)
        shapes = [*shapes, *(shape._replace(now=shape.over or shape.now) for shape in shapes)]
        now_ms = pc.if_else(pa.array(late), pa.scalar(None, pa.int64()), now_ms)
    others = [_differs(shape) for shape in shapes]
    lists = pa.array([*others, *([*names, Outcome._fields[_WAIT]] for names in others)], pa.list_(pa.string()))
    same_wait = pc.equal(pc.fill_null(was_ms, _NONE), pc.fill_null(now_ms, _NONE)).to_numpy(zero_copy_only=False)
    columns = {name: batch.column(name) for name in ("event_id", "id", "ts_ms")}
    columns["differs"] = lists.take(pa.array(np.where(same_wait, codes, codes + len(shapes))))
    by_shape: dict[str, list[Any]] = {"allowed": [shape.allowed for shape in shapes]}
    by_shape |= {name: [shape.event.get(name) for shape in shapes] for name in _COMMON}
    for at, name in enumerate(Outcome._fields[:_WAIT]):
        by_shape[f"was_{name}"] = [shape.was and shape.was[at] for shape in shapes]
        by_shape[f"now_{name}"] = [shape.now and shape.now[at] for shape in shapes]
    place = pa.array(codes)
    columns |= {name: pa.array(values, schema.field(name).type).take(place) for name, values in by_shape.items()}
    columns |= {"was_wait_ms": was_ms, "now_wait_ms": now_ms}
    arrays = [columns[field.name].cast(field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _differs(shape: Shape) -> list[str]:
    """The names of what differs, the wait left out: that is each letter's own."""
    if shape.was is None or shape.now is None:
        return []
    return differing(shape.was._replace(wait_ms=None), shape.now._replace(wait_ms=None))


def _waited(batch: pa.RecordBatch, codes: "np.ndarray[Any, Any]", shapes: Sequence[Shape]) -> pa.Array:
    """The wait that was recorded; null where none was."""
    retried = np.array([shape.was is not None and shape.was.wait_ms is not None for shape in shapes], bool)[codes]
    waited = pc.subtract(batch.column("due_ms"), batch.column("ts_ms"))
    return pc.if_else(pa.array(retried), waited, pa.scalar(None, pa.int64()))


def _waits(batch: pa.RecordBatch, codes: "np.ndarray[Any, Any]", shapes: Sequence[Shape]) -> pa.Array:
    """The wait that is decided now, with the letter's own draw; null where there is none."""
    fixed = pa.array([shape.now and shape.now.wait_ms for shape in shapes], pa.int64()).take(pa.array(codes))
    drawn = np.array([shape.jittered is not None for shape in shapes], bool)[codes]
    if not drawn.any():
        return fixed
    draws = _draws(batch.filter(pa.array(drawn)))
    known = [(0, 0.0, 0) if shape.jittered is None else _numbers(*shape.jittered) for shape in shapes]
    base, jitter, cap = (np.array(values)[codes[drawn]] for values in zip(*known, strict=True))
    return pc.replace_with_mask(fixed, pa.array(drawn), pa.array(jittered(base, jitter, cap, draws)))


def _late(
    batch: pa.RecordBatch, now_ms: pa.Array, codes: "np.ndarray[Any, Any]", shapes: Sequence[Shape]
) -> "np.ndarray[Any, Any]":
    """Whether the letter's next delivery, or the decision where there is none, comes after its time is over."""
    limited: np.ndarray[Any, Any] = np.array([shape.over is not None for shape in shapes], bool)[codes]
    if not limited.any():
        return limited
    at = batch.column("ts_ms")
    since, first = (pc.fill_null(batch.column(name), 0) for name in ("since_ms", "first_death_ms"))
    begun = pc.if_else(pc.equal(since, 0), first, since)
    passed = pc.subtract(pc.add(at, pc.fill_null(now_ms, 0)), begun).to_numpy(zero_copy_only=False)
    late: np.ndarray[Any, Any] = limited & (passed > np.array([shape.elapsed_ms for shape in shapes])[codes])
    return late


def _numbers(policy: Effective, base: int) -> tuple[int, float, int]:
    return base, policy.jitter, policy.cap_ms


def jittered(base: Any, jitter: Any, cap_ms: Any, draw: Any) -> "np.ndarray[Any, Any]":  # noqa: ANN401 - arrays
    """`core.backoff.wait_ms` of columns, operation by operation, so that every bit of a float is the same."""
    low = base * jitter
    high = np.minimum(low, cap_ms - base)
    wait = base + draw * (low + high) / 2 + (high - low) / 2
    waits: np.ndarray[Any, Any] = np.clip(np.rint(wait).astype(np.int64), 0, cap_ms)
    return waits


def _draws(batch: pa.RecordBatch) -> "np.ndarray[Any, Any]":
    """`replay.draw_of` each; only of those that have none it is asked."""
    draws: np.ndarray[Any, Any] = batch.column("draw").cast(pa.float64()).to_numpy(zero_copy_only=False).copy()
    odd = np.flatnonzero(~((draws >= -1) & (draws <= 1)))
    ids = batch.column("event_id").take(pa.array(odd)).to_pylist()
    draws[odd] = [draw_of({"event_id": event_id}) for event_id in ids]
    return draws


def _own(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """Each letter's own values as an event has them; what is null is not there."""
    values = [batch.column(name).to_pylist() for name in OWN]
    for row in zip(*values, strict=True):
        event = {name: value for name, value in zip(OWN, row, strict=True) if value is not None}
        event |= {"last_death_ms": 0, "digest": {"size": event.pop("size", 0)}}
        yield {**event, "body_values": json.loads(event["body_values"])} if "body_values" in event else event


def event_of(text: str) -> dict[str, Any]:
    """The shape as an event of the journal: without nulls, deaths without their times.

    In the archive `first` is always told, so absent means unknown.
    """
    event: dict[str, Any] = {"first": None, **json.loads(text)}
    columns = [event.pop(f"death_{name}", ()) for name in DEATH]
    rows = (dict(zip(DEATH, row, strict=True)) for row in zip(*columns, strict=True))
    event["deaths"] = [{**{k: v for k, v in row.items() if v is not None}, "time_ms": 0} for row in rows]
    return event
