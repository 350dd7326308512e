"""Recovered: the one answer to "did sending it back help?", for index and Spark alike. Pure.

The question is put to the journal: what are the newest events of a letter (its id and failed queue), in `ORDER`?

- A letter was *given back* by its event `retried`, at its `due_ms` (it waits until then), or by `redriven`, at once.
- It has *recovered* when that is the newest event about it, and its window has passed since: max(1 h, 2 × the longest
  wait of its policy). Nobody tells when a consumer is done with a letter; silence is all there is to see.
- Until the window has passed the answer is *open*: neither helped nor lost. The same holds for a letter whose wait is
  not over (`due_ms` lies ahead), and for one that is `held`: its target or its queue would not have it yet.
- Any other newest event is the answer itself: where the letter lies, or that it is gone.
- `SILENT` events say nothing about it: `released` is the end of a wait, `edited` what the next `redriven` sends, and
  what becomes of a letter that is `leased` is told by an event of its own beside `lease_ended`.

`fate_sql` and `try_sql` are the same answers as an expression that SQLite and Spark read alike; laws hold them equal.
"""

from math import ceil
from typing import Final

from dlx_router.core.backoff import base_delay_ms
from dlx_router.core.policy import Effective

AT_LEAST_MS: Final = 3_600_000
WAITS: Final = 2  # so many of the longest wait
ORDER: Final = ("ts_ms", "redrives", "attempts", "event_id")  # of a letter's events; within a millisecond, of its life
LEASES: Final = ("leased", "lease_ended")
SILENT: Final = ("released", "edited", *LEASES)
DEATHS: Final = ("retried", "dead_lettered", "parked", "quarantined", "discarded")  # what is decided when it dies again
RECOVERED: Final = "recovered"
FAILED: Final = "failed"
REFUSED: Final = "refused"
OPEN: Final = "open"
UNDECIDED: Final = (OPEN, "held")  # neither helped nor lost
_MANY: Final = 1_000_000  # deliveries without end reach the cap
# The end of the year 9999, the last that a date has; a time may be any number that somebody wrote into a stream.
_LATEST_MS: Final = 253_402_300_799_999
_DUE: Final = f"due_ms BETWEEN 0 AND {_LATEST_MS}"
_GIVEN_BACK: Final = (
    f"CASE kind WHEN 'retried' THEN CASE WHEN {_DUE} THEN due_ms ELSE ts_ms END WHEN 'redriven' THEN ts_ms END"
)


def window_ms(longest_wait_ms: int) -> int:
    """How long a letter must have been silent: max(1 h, 2 × its policy's longest wait)."""
    return max(AT_LEAST_MS, WAITS * longest_wait_ms)


def given_back_ms(kind: str, ts_ms: int, due_ms: int | None) -> int | None:
    """When an event gives (or will give) its letter back to the failed queue; None: it does not.

    At once, where its `due_ms` is no time.
    """
    if kind == "retried":
        return ts_ms if due_ms is None or not 0 <= due_ms <= _LATEST_MS else due_ms
    return ts_ms if kind == "redriven" else None


def fate(kind: str, ts_ms: int, due_ms: int | None, *, as_of_ms: int, window_ms: int) -> str:
    """What became of a letter by its newest event that is not in SILENT: recovered, open, or the event's own kind.

    `as_of_ms`: until when the journal is known; what is not read yet could speak.
    """
    given_back = given_back_ms(kind, ts_ms, due_ms)
    if given_back is None:
        return kind
    return RECOVERED if given_back <= as_of_ms - window_ms else OPEN


def tried(kind: str, ts_ms: int, due_ms: int | None, *, next_kind: str | None, as_of_ms: int, window_ms: int) -> str:
    """How a time that a letter was given back ended: recovered, failed, refused or open.

    `next_kind`: of the next event of the letter that is not in SILENT. Refused: its queue would not have it. Open: too
    early to say, or it was taken away before (retired, redriven).
    """
    if next_kind is None:
        return fate(kind, ts_ms, due_ms, as_of_ms=as_of_ms, window_ms=window_ms)
    if next_kind == "held":
        return REFUSED
    return FAILED if next_kind in DEATHS else OPEN


def wait_sql() -> str:
    """How long an event makes its letter wait, of the columns kind, ts_ms and due_ms; null: it does not.

    Nor does one whose `due_ms` is no time: arithmetic with it would end every query that reads it.
    """
    return f"(CASE WHEN kind = 'retried' AND {_DUE} THEN due_ms - ts_ms END)"


def first_death_sql() -> str:
    """The column `first_death_ms`; null where it is no time, as in `wait_sql`."""
    return f"(CASE WHEN first_death_ms BETWEEN 0 AND {_LATEST_MS} THEN first_death_ms END)"


def given_back_sql() -> str:
    """`given_back_ms` of the columns kind, ts_ms and due_ms."""
    return f"({_GIVEN_BACK})"


def fate_sql(*, as_of_ms: int, window: str) -> str:
    """`fate` of the columns kind, ts_ms and due_ms; `window`: an expression of SQL."""
    silent = f"{_GIVEN_BACK} <= {as_of_ms:d} - {window}"
    return f"(CASE WHEN {_GIVEN_BACK} IS NULL THEN kind WHEN {silent} THEN '{RECOVERED}' ELSE '{OPEN}' END)"


def try_sql(*, as_of_ms: int, window: str) -> str:
    """`tried` of the same columns and next_kind."""
    last = fate_sql(as_of_ms=as_of_ms, window=window)
    return (
        f"(CASE WHEN next_kind IS NULL THEN {last} WHEN next_kind = 'held' THEN '{REFUSED}'"
        f" WHEN next_kind IN {DEATHS!r} THEN '{FAILED}' ELSE '{OPEN}' END)"
    )


def longest_wait_ms(policy: Effective | None) -> int:
    """The longest wait that the policy can give a letter, jitter included; 0 without a policy or a delay."""
    if policy is None:
        return 0
    last = _MANY if policy.max_attempts < 0 else policy.max_attempts - 1
    base = max(base_delay_ms(policy, 1), base_delay_ms(policy, last))  # waits may shrink
    return min(base + ceil(base * policy.jitter), max(policy.cap_ms, 0)) if last > 0 else 0
