"""One recorded arrival → what was decided, and what other policies decide. Pure but for the loading of policies."""

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

from dlx_router.config.policy_files.loader import load_policies
from dlx_router.core.decision import decide
from dlx_router.core.names import Names
from dlx_router.core.outcome import DeadLetter, Decision, Discard, Forward, Hold, Park, Retry
from dlx_router.core.policy import Effective, Policy, PolicySet
from dlx_router.core.target import transient_queue
from dlx_router.core.words import Cause, State
from dlx_router.journal.replay import letter_of, verdict_of

KINDS: Final = ("retried", "dead_lettered", "parked", "discarded")
# A park for another cause is what the broker or the router's limits made of a decision, not the decision.
_PARKED_BY_DECISION: Final = frozenset(
    {
        Cause.NO_POLICY, Cause.UNKNOWN_ORIGIN, Cause.LOOP, Cause.CYCLE, Cause.REDRIVE_EXHAUSTED,
        Cause.ROUTING_KEY_TOO_LONG, Cause.FORBIDDEN,
    }
)  # fmt: skip
Files = tuple[tuple[str, bytes], ...]
QueueTypes = tuple[tuple[str, str, str], ...]  # vhost, queue, its type: the archive does not tell it


class Outcome(NamedTuple):
    """What a decision means for a letter. Waits are of retries, exchange and routing key of dead letters."""

    decision: str
    attempts: int
    cause: str | None = None
    exchange: str | None = None
    routing_key: str | None = None
    wait_ms: int | None = None


class Judge:
    """A set of policies that judges recorded arrivals; remembers what is in force for each (vhost, queue, reason)."""

    def __init__(self, policies: PolicySet, types: QueueTypes = ()) -> None:
        """`types`: as far as they are known."""
        self.policies = policies
        self._types = {(vhost, queue): queue_type for vhost, queue, queue_type in types}
        self.effective = lru_cache(maxsize=10_000)(self._resolve)

    def _resolve(self, vhost: str, queue: str, reason: str) -> Effective | None:
        queue_type = self._types.get((vhost, queue))
        return self.policies.resolve(vhost=vhost, queue=queue, reason=reason, queue_type=queue_type)

    @property
    def asks_types(self) -> bool:
        """Whether any policy is for queues of one type."""
        return self.policies.asks_types

    def left_out(self, vhost: str, queue: str) -> tuple[Policy, ...]:
        """The policies for one type that were not judged, because nobody told the queue's type."""
        return self.policies.left_out(vhost=vhost, queue=queue, queue_type=self._types.get((vhost, queue)))

    def judge(self, event: Mapping[str, Any]) -> Outcome:
        """What these policies decide about the letter as it arrived then: its time, its chance, its history."""
        policy = self.effective(event["vhost"], event["failed_queue"], event["reason"])
        decision = decide(letter_of(event), policy, event["ts_ms"], draw_of(event), lambda: verdict_of(event))
        if policy is not None and isinstance(decision, DeadLetter) and decision.queue is not None:
            decision = _as_made(decision, event, transient_queue(policy))
        return outcome_of(decision)


def _as_made(decision: DeadLetter, event: Mapping[str, Any], shared: str) -> DeadLetter:
    """The queue that is made for it: the one for all exclusive and vanished queues, where the event says so."""
    went = event.get("target") or {}
    return replace(decision, keys=(shared,), queue=shared) if went.get("routing_key") == shared else decision


def was_decided(event: Mapping[str, Any]) -> bool:
    """Whether the event tells what `decide()` said about an arrival, and not what the broker or a person made of it."""
    if event["kind"] != "parked":
        by_person = event["kind"] == "discarded" and event.get("redrive_id") is not None
        return event["kind"] in KINDS and not by_person
    cause = event.get("cause")
    by_broker = cause == Cause.FORBIDDEN and (event["tries"] > 0 or event.get("state") == State.HELD)
    return cause in _PARKED_BY_DECISION and not by_broker and event.get("redrive_id") is None


def recorded(event: Mapping[str, Any]) -> Outcome:
    """What the router decided then."""
    kind, attempts, cause = event["kind"], event["attempts"], event.get("cause")
    if kind == "retried":
        return Outcome("retry", attempts, None, None, None, event["due_ms"] - event["ts_ms"])
    if kind == "dead_lettered":
        target = event["target"]
        return Outcome("dead-letter", attempts, cause, target["exchange"], target["routing_key"])
    return Outcome("park" if kind == "parked" else "discard", attempts, cause)


def outcome_of(decision: Decision) -> Outcome:
    """The same of a decision."""
    match decision:
        case Retry():
            return Outcome("retry", decision.attempts, None, None, None, decision.wait_ms)
        case DeadLetter():
            return Outcome("dead-letter", decision.attempts, decision.cause, decision.exchange, decision.keys[0])
        case Park():
            return Outcome("park", decision.attempts, decision.cause)
        case Hold() | Discard():
            return Outcome(decision.action.value, decision.attempts, decision.cause)
        case Forward():
            return Outcome("forward", 0, None, decision.exchange, decision.keys[0])


def draw_of(event: Mapping[str, Any]) -> float:
    """The chance that the jitter was given; where none was drawn, one that is the same in every backtest."""
    drawn = event.get("draw")
    if isinstance(drawn, int | float) and -1 <= drawn <= 1:  # the journal may hold anything, NaN too
        return float(drawn)
    digest = blake2b(event["event_id"].encode(errors="surrogateescape"), digest_size=7).digest()
    return int.from_bytes(digest) / 2**55 - 1


def differing(was: Outcome, now: Outcome) -> list[str]:
    """The names of what differs; empty for the same decision."""
    return [name for name, before, after in zip(Outcome._fields, was, now, strict=True) if before != after]


def files_of(path: Path, prefix: str = "dlx-router") -> Files:
    """The policy files as they are sent to where letters are judged. Raises PolicyErrors with all that is wrong."""
    files = load_policies(path, Names(prefix)).files
    return tuple((Path(name).name, Path(name).read_bytes()) for name in files)


@lru_cache(maxsize=4)
def judge_of(files: Files, prefix: str, types: QueueTypes = ()) -> Judge:
    """The judge, made once in each process; compiled expressions cannot be sent, their files can."""
    with TemporaryDirectory(prefix="dlx-router-policies-") as folder:
        for name, data in files:
            (Path(folder) / name).write_bytes(data)
        return Judge(load_policies(Path(folder), Names(prefix)).policies, types)


def event_of(text: str) -> dict[str, Any]:
    """An archived event from JSON without nulls. In the archive `first` is always told, so absent means unknown."""
    event: dict[str, Any] = json.loads(text)
    event.setdefault("first", None)
    return event
