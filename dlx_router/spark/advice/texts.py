"""Advice in words: verdicts, the reasons for them, and what cannot be known."""

from collections.abc import Iterator, Sequence
from typing import Final

from dlx_router.config.units import number_of
from dlx_router.spark.advice.cost import Ladder, schedule
from dlx_router.spark.advice.evidence import EDGES_MS, Tries, by_attempt, letters_of, recovered_of
from dlx_router.spark.advice.hopeless import Hopeless
from dlx_router.spark.intervals import wilson

NEVER: Final = "never"
FEWER: Final = "fewer"
LONGER: Final = "longer"
SOONER: Final = "sooner"
SOME: Final = "some"
KEEP: Final = "keep"
VERDICTS: Final = {
    NEVER: "do not retry",
    SOME: "do not retry some",
    FEWER: "fewer attempts",
    LONGER: "wait for longer",
    SOONER: "wait for less",
    KEEP: "keep what you have",
}
NO_POLICY: Final = "no policy is for this queue"
NO_RETRIES: Final = "the policy does not try such letters again: what retries would bring cannot be known"
MIXED: Final = (
    "letters came with different counts of deliveries (a delivery limit, crashes): "
    "what an attempt brought cannot be told"
)
_LAST_PAYS: Final = 0.05


def few(letters: int, needed: int) -> str:
    """Too few letters."""
    return f"letters that were tried again: {letters}; fewer than {needed} prove nothing"


def one_incident(busiest: int, letters: int) -> str:
    """Too many at one time."""
    return (
        f"{busiest} of {letters} letters failed first within one hour: one incident does not tell what retries bring "
        "at other times; a setting `outage` holds letters during one"
    )


def other_policies(now: int, seen: int) -> str:
    """Recorded under others."""
    most = number_of(seen, "delivery", "deliveries")
    return (
        f"letters were given up after {most} at most, the policies allow {now}: this was recorded under "
        "other policies; ask again when these have been at work for some days"
    )


def nothing_better(share: float, now: Ladder, first: int) -> str:
    """Nothing that is surely better."""
    if now.attempts <= first:
        return "nothing else was tried"
    if share <= 0:
        return "no other way of retrying would have cost less"
    what = "too little, or not sure enough, for a change"
    return f"the best other way might save {percent(share)} of what can be saved: {what}"


def verdict(now: Ladder, ladder: Ladder | None, first: int, *, some: bool) -> str:
    """One word for what is to be done."""
    if ladder is not None and ladder.attempts <= first:
        return NEVER
    if ladder is None or ladder == now:
        return SOME if some else KEEP
    if schedule(ladder, first).span_ms > schedule(now, first).span_ms:
        return LONGER
    return FEWER if ladder.attempts < now.attempts else SOONER


def reasons(rows: Sequence[Tries], chosen: Sequence[Hopeless], then: Ladder, first: int) -> tuple[str, ...]:
    """What the advice rests on, a line each."""
    return (*_conditions(chosen), *_attempts(rows, then, first))


def _conditions(chosen: Sequence[Hopeless]) -> Iterator[str]:
    for choice in chosen:
        retries = number_of(choice.retries, "retry", "retries")
        tried = f"{choice.recovered} of {number_of(choice.letters, 'letter')} recovered by {retries}"
        yield f"{choice.condition}: {tried} (at most {percent(choice.high)})"


def _attempts(rows: Sequence[Tries], then: Ladder, first: int) -> Iterator[str]:
    letters, good, tried = letters_of(rows), recovered_of(rows), sum(row.tried for row in rows)
    by = number_of(tried, "retry", "retries")
    yield f"{good} of {number_of(letters, 'letter')} recovered by {by} ({_share(good, letters)})"
    for attempts, (got, of, waited) in by_attempt(rows).items():
        gone = "" if attempts < then.attempts else ", given up by then" if then.attempts > first else ""
        yield f"delivery {attempts + 1}, {about(waited / of)} after the one before: {_share(got, of)} of {of}{gone}"


def unknown(rows: Sequence[Tries], then: Ladder, *, is_plain: bool) -> tuple[str, ...]:
    """What no archive of this time can tell."""
    if not rows:
        return ()
    latest = max(row.at for row in rows)
    gaps = [f"no letter was tried later than {about(EDGES_MS[min(latest, len(EDGES_MS) - 1)])} after its first death"]
    last, (good, tried, _) = list(by_attempt(rows).items())[-1]
    low = wilson(good, tried)[0]
    if low > _LAST_PAYS and last + 1 <= then.attempts:
        gaps.append(
            f"delivery {last + 1}, the last that was made, still saved {_share(good, tried)}: "
            "one more may pay, but nobody tried; allow it for a week and ask again"
        )
    if not is_plain:
        gaps.append(
            "waits of an attempt varied too little to tell whether the wait helped or the attempt: "
            "redelivery-collision-avoidance-factor: 0.5 for a week would tell"
        )
    return tuple(gaps)


def _share(good: int, of: int) -> str:
    low, high = wilson(good, of)
    return f"{percent(good / of) if of else 'none'} (95 %: {percent(low)} to {percent(high)})"


def percent(share: float) -> str:
    """As people write it."""
    digits = 1 if 0 < share < 0.0995 or 0.9005 < share < 1 else 0  # noqa: PLR2004 - where a digit more says something
    return f"{100 * share:.{digits}f} %"


def about(ms: float) -> str:
    """A time with two digits that count."""
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if ms >= size:
            return f"{ms / size:.2g} {unit}" if ms / size < 100 else f"{ms / size:.0f} {unit}"  # noqa: PLR2004 - 1e+02
    return f"{ms:.0f} ms"
