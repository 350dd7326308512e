"""A realistic week of dead letters with known causes, as journal lines, and the truth about it.

    python -m tools.pipeline.week --letters 20000 --seed 7 > week.ndjson

Letters fail as tools/pipeline/causes.py says; what follows is decided by the router's own `decide()` under the policies
of tools/pipeline/policies/now, and written by the router's own journal code. So the lines are those that a router would
have written, and `Truth` knows what really happened to each letter: no analysis is asked.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final
from zlib import crc32

from dlx_router.config.policy_files.loader import load_policies
from dlx_router.core.decision import decide
from dlx_router.core.letter import Arrival, Death, First, Letter
from dlx_router.core.names import Names
from dlx_router.core.outcome import DeadLetter, Decision, Discard, Forward, Hold, Park, Retry
from dlx_router.core.policy import PolicySet
from dlx_router.core.target import original_keys
from dlx_router.journal.entry import Entry
from dlx_router.journal.events import KIND_OF, Ruling, fragments
from dlx_router.journal.privacy import Rule, disclosed
from dlx_router.wire import properties
from tools.pipeline.causes import CAUSES, REDRIVE_ID, REDRIVE_S, REDRIVEN, Cause, Start, starts

MONDAY_MS: Final = 1_791_158_400_000  # 2026-10-05 00:00 UTC
NOW: Final = Path(__file__).parent / "policies" / "now"
BETTER: Final = Path(__file__).parent / "policies" / "better"
_NAMES: Final = Names()
_RULE: Final = Rule(body="final")
_HANDLING_MS: Final = 40  # a delivery is rejected so long after it was taken
_ROUTER: Final = "router-1"


@dataclass
class Fate:
    """What really happened to one letter. `deliveries`: before it ended, redrive excluded; times in ms, epoch."""

    id: str
    cause: str
    queue: str
    reason: str
    first_death_ms: int
    deliveries: int = 1
    recovered_ms: int | None = None  # by a retry
    dead: bool = False  # at least once
    redriven: bool = False
    saved: bool = False  # by the redrive
    events: int = 0
    deaths: int = 0  # of all stays
    body: bytes = b""


@dataclass
class Truth:
    """All fates, and the lines of the journal in order of time."""

    fates: list[Fate] = field(default_factory=list)
    lines: list[tuple[int, bytes]] = field(default_factory=list)
    rows: list[tuple[int, Entry]] = field(default_factory=list)  # the same events, for messages in format 2

    def journal(self) -> Iterator[bytes]:
        """The lines, oldest first."""
        return (line for _, line in self.lines)

    def of(self, cause: str) -> list[Fate]:
        """The fates of one cause."""
        return [fate for fate in self.fates if fate.cause == cause]


def week(letters: int, seed: int, policies: Path = NOW, causes: Sequence[Cause] = CAUSES, *, vhost: str = "/") -> Truth:
    """The week of a vhost. Its last line is a letter that fails at the very end, so that all others came to rest."""
    loaded = load_policies(policies).policies
    truth = Truth()
    for start in starts(seed, letters, causes):
        _Life(start, loaded, truth, vhost).live()
    for pairs in (truth.lines, truth.rows):
        pairs.sort(key=lambda pair: pair[0])
    return truth


class _Life:
    """One letter: delivered, failed, decided, written down; until it is handled or dead."""

    def __init__(self, start: Start, policies: PolicySet, truth: Truth, vhost: str) -> None:
        self._start, self._cause, self._chance, self._vhost = start, start.cause, start.chance, vhost
        self._policies, self._truth = policies, truth
        self._body = self._cause.body(self._chance)
        self._error = self._cause.error(self._chance)
        name = f"{self._cause.name}-{start.number}"
        self._id = blake2b(f"{start.at_s}/{name}".encode(), digest_size=16).hexdigest()
        self._props = _props(name, self._cause.producer)
        self._first_ms = _ms(start.at_s)
        self._policy = policies.resolve(
            vhost=vhost, queue=self._cause.queue, reason=self._cause.reason, queue_type=None
        )
        self.fate = Fate(
            self._id, self._cause.name, self._cause.queue, self._cause.reason, self._first_ms, body=self._body
        )
        truth.fates.append(self.fate)

    def live(self) -> None:
        """From the first failure to the end, and once more if somebody sends it back."""
        recovered_ms = self._stay(self._first_ms, redrives=0, deaths=0)
        self.fate.recovered_ms = recovered_ms
        if recovered_ms is None and self._cause.name == REDRIVEN:
            back_ms = _ms(REDRIVE_S) + self._start.number * 20  # 50 a second
            self.fate.redriven = True
            self._write(self._letter(self.fate.deliveries, 1, ()), _redriven(self._policies.revision), back_ms)
            self.fate.saved = self._stay(back_ms + _HANDLING_MS, redrives=1, deaths=self.fate.deliveries) is not None

    def _stay(self, at_ms: int, *, redrives: int, deaths: int) -> int | None:
        """Deliveries until one works (its time) or the letter is dead (None)."""
        delivery = 1
        while self._cause.fails(self._chance, (at_ms - MONDAY_MS) / 1000, delivery, redrives):
            self.fate.deaths += 1
            letter = self._died(at_ms, deaths + delivery, redrives, delivery)
            now, draw = at_ms + _HANDLING_MS, round(self._chance.uniform(-1, 1), 6)
            decision = decide(letter, self._policy, now, draw)
            self._write(letter, self._ruling(letter, decision), now, decision, draw)
            if redrives == 0:
                self.fate.deliveries = delivery
            if not isinstance(decision, Retry):
                self.fate.dead = True
                return None
            self._write(self._waited(letter, decision), _released(self._policies.revision, decision), decision.due_ms)
            at_ms, delivery = decision.due_ms, delivery + 1
        return at_ms

    def _died(self, at_ms: int, times: int, redrives: int, delivery: int) -> Letter:
        """As it comes to the inbox: one death more than before. RabbitMQ's x-death keeps the time of the first."""
        again = redrives if delivery == 1 else 0
        state = None if times == 1 else ("dead" if again else "retrying")
        letter = self._letter(times, redrives, (1,), state=state, base_attempts=delivery - 1)
        back = bool(again)
        return replace(letter, last_death_ms=at_ms, known_before=back, rejected_since=back)

    def _letter(
        self, times: int, redrives: int, fresh: tuple[int, ...], *, state: str | None = None, base_attempts: int = 0
    ) -> Letter:
        reason = self._cause.reason if not self._cause.reason.startswith("application") else "rejected"
        key = self._cause.queue.rpartition(".")[2]
        death = Death(self._cause.queue, reason, times, self._first_ms // 1000, self._cause.exchange, (key,))
        return Letter(
            id=self._id,
            vhost=self._vhost,
            source=_NAMES.inbox,
            arrival=Arrival.INBOX,
            exchange=_NAMES.declared if self._error else _NAMES.inbox,
            routing_key=key,
            history=(death,),
            first=First(self._cause.queue, self._cause.exchange, (key,), reason),
            failed_queue=self._cause.queue,
            reason=self._cause.reason,
            fresh=tuple(death._replace(times=count, reason=self._cause.reason) for count in fresh),
            base_attempts=base_attempts,
            redrives=redrives,
            tries=0,
            state=state,
            first_death_ms=self._first_ms,
            last_death_ms=self._first_ms,
            error=self._error,
        )

    def _waited(self, letter: Letter, decision: Retry) -> Letter:
        """The same letter when its wait is over."""
        return self._letter(
            letter.history[0].times, letter.redrives, (), state="retrying", base_attempts=decision.attempts
        )

    def _ruling(self, letter: Letter, decision: Decision) -> Ruling:
        policy = self._policy.policy if self._policy is not None else ""
        exchange, key = _target(decision, letter)
        rung = _NAMES.rung_for(decision.wait_ms) or 0 if isinstance(decision, Retry) else 0
        return Ruling(
            KIND_OF[decision.action], decision.attempts, _ROUTER, policy=policy, revision=self._policies.revision,
            cause=decision.cause or "", exchange=exchange, routing_key=key, rung_ms=rung,
        )  # fmt: skip

    def _write(
        self, letter: Letter, ruling: Ruling, at_ms: int, decision: Decision | None = None, draw: float | None = None
    ) -> None:
        due = decision.due_ms if isinstance(decision, Retry) else None
        shared = fragments(letter, ruling)
        own: dict[str, Any] = {
            "first_ms": self._first_ms,
            "last_ms": letter.last_death_ms,
            "crc32": crc32(self._body),
            "size": len(self._body),
            "props": self._props,
            "due_ms": due,
            "draw": draw,
            "extra": disclosed(_RULE, ruling.kind, headers=b"", body=self._body, error=self._error),
        }
        self.fate.events += 1
        self._truth.lines.append((at_ms, shared.line(self._id, at_ms, **own)))
        self._truth.rows.append((at_ms, shared.entry(self._id, at_ms, **own)))


def _target(decision: Decision, letter: Letter) -> tuple[str | None, str]:
    match decision:
        case DeadLetter():
            return decision.exchange, decision.keys[0]
        case Park():
            return "", _NAMES.parking
        case Retry() if not _NAMES.rung_for(decision.wait_ms):
            return _NAMES.return_, original_keys(letter)[0]
        case Forward():
            return decision.exchange, decision.keys[0]
        case Retry() | Hold() | Discard():
            return None, ""


def _released(revision: str, decision: Retry) -> Ruling:
    return Ruling("released", decision.attempts, _ROUTER, revision=revision, exchange=_NAMES.return_)


def _redriven(revision: str) -> Ruling:
    return Ruling("redriven", 0, _ROUTER, revision=revision, exchange=_NAMES.return_, redrive_id=REDRIVE_ID)


def _props(name: str, producer: str) -> properties.Properties:
    blank = properties.parse(b"\x00\x00", 0)
    blank.message_id, blank.content_type = name.encode(), b"application/json"
    blank.app_id, blank.delivery_mode = producer.encode(), 2
    return blank


def _ms(at_s: float) -> int:
    return MONDAY_MS + round(at_s * 1000)


def main() -> int:
    """Write the week to standard output, and the truth in brief to standard error."""
    parser = argparse.ArgumentParser(description="A made-up week of dead letters, as journal lines.")
    parser.add_argument("--letters", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args()
    truth = week(given.letters, given.seed)
    sys.stdout.buffer.writelines(truth.journal())
    counts = {cause: len(truth.of(cause)) for cause in sorted({fate.cause for fate in truth.fates})}
    print(json.dumps(counts), file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
