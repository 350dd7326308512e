"""`query` without Spark and without traits: the evidence of one machine's archive, by SQL of DuckDB upon its `tries`.

The tables are those of `analyses.sql`: `letter_events` and `tries`, of the best signed events.
"""

from collections.abc import Callable, Sequence
from typing import Any, Final

from dlx_router.core.recovered import DEATHS
from dlx_router.spark.advice.evidence import EDGES_MS, Calm, Episode, Evidence, Key, Tries
from dlx_router.spark.advice.outages import FINE, LETTERS
from dlx_router.spark.analyses.sql import GAP_MS

Ask = Callable[[str], Sequence[tuple[Any, ...]]]
_QUEUE: Final = "vhost, failed_queue, reason"
_MINUTE_MS: Final = 60_000
_FIRST_STAYS: Final = "kind = 'retried' AND redrives = 0 AND reason IS NOT NULL AND attempts IS NOT NULL"
_LARGE: Final = f"episode_letters >= {LETTERS}"
_EPISODE: Final = f"CASE WHEN {_LARGE} THEN episode_ms END"
_CLOSED: Final = "outcome IN ('recovered', 'failed')"

# An edge of `evidence.EDGES_MS` is 250 ms times a power of the root of two, rounded: never half a millisecond off.
_BUCKET: Final = """\
CASE WHEN {ms} < 1 THEN 0 WHEN {ms} < 250 THEN 1
  ELSE least({most}, 2 + CAST(floor(2 * log2(({ms} + 0.5) / 250)) AS INT)) END\
"""


def bucket_sql(ms: str) -> str:
    """`evidence.bucket` of an expression."""
    return _BUCKET.format(ms=f"({ms})", most=len(EDGES_MS))


PLACED: Final = f"""
WITH begun AS (
  SELECT letter, any_value(vhost) AS vhost, any_value(failed_queue) AS failed_queue, min(decided_ms) AS begun_ms,
    arg_min(reason, decided_ms) AS reason
  FROM {{tries}} WHERE {_FIRST_STAYS} GROUP BY letter
), marked AS (
  SELECT *, coalesce(begun_ms - lag(begun_ms) OVER own > {GAP_MS}, false)::INT AS starts
  FROM begun WINDOW own AS (PARTITION BY {_QUEUE} ORDER BY begun_ms)
), numbered AS (
  SELECT *, sum(starts) OVER (PARTITION BY {_QUEUE} ORDER BY begun_ms) AS number FROM marked
)
SELECT letter, {_QUEUE}, begun_ms, min(begun_ms) OVER own AS episode_ms, max(begun_ms) OVER own AS episode_end,
  count(*) OVER own AS episode_letters
FROM numbered WINDOW own AS (PARTITION BY {_QUEUE}, number)
"""
"""One row for each letter that was tried again: its reason, its episode."""

GIVEN: Final = """
SELECT placed.*, kind, attempts, redrives, decided_ms, given_back_ms, outcome
FROM {tries} AS tries JOIN placed USING (letter)
"""

_TRIES: Final = f"""
WITH followed AS (
  SELECT *, coalesce(lead({_CLOSED}) OVER (PARTITION BY letter ORDER BY decided_ms, attempts), false) AS goes_on
  FROM given WHERE {_FIRST_STAYS}
)
SELECT {_QUEUE}, attempts, {bucket_sql("decided_ms - begun_ms")} AS since_bucket,
  {bucket_sql("given_back_ms - begun_ms")} AS at_bucket, count(*) FILTER (WHERE outcome = 'recovered'),
  count(*) FILTER (WHERE outcome = 'failed'), count(*) FILTER (WHERE outcome = 'failed' AND NOT goes_on),
  sum(given_back_ms - decided_ms)::BIGINT, {_EPISODE} AS episode
FROM followed WHERE {_CLOSED} GROUP BY {_QUEUE}, attempts, since_bucket, at_bucket, episode
"""

_MINUTES: Final = f"""
WITH died AS (
  SELECT letter, ts_ms FROM {{events}} WHERE kind IN {(*DEATHS, "held")!r} AND redrive_id IS NULL
), each AS (
  SELECT {_QUEUE}, {_EPISODE} AS episode, ts_ms // {_MINUTE_MS} AS minute, count(*) AS deaths
  FROM died JOIN placed USING (letter) GROUP BY ALL
)
SELECT {_QUEUE}, episode, max(deaths), CAST(trunc(quantile_cont(deaths, 0.5)) AS BIGINT) FROM each GROUP BY ALL
"""

_SIDES: Final = f"""
SELECT {_QUEUE}, episode_ms, episode_end,
  count(*) FILTER (WHERE outcome = 'recovered' AND given_back_ms <= episode_end),
  count(*) FILTER (WHERE given_back_ms <= episode_end),
  count(*) FILTER (WHERE outcome = 'recovered' AND given_back_ms > episode_end),
  count(*) FILTER (WHERE given_back_ms > episode_end)
FROM given WHERE {_LARGE} AND {_CLOSED} GROUP BY {_QUEUE}, episode_ms, episode_end
"""

_REMAINING: Final = f"""
SELECT {_QUEUE}, episode_ms, avg(episode_end - begun_ms), count(*) FROM placed WHERE {_LARGE}
GROUP BY {_QUEUE}, episode_ms, floor({FINE} * log2(episode_end - begun_ms + 1))
"""


def evidence(ask: Ask, events: str) -> Evidence:
    """What was counted. Tables `placed` and `given` are there; `events`: the view of those that count."""
    minutes = ask(_MINUTES.format(events=events))
    return Evidence(
        tuple(map(_tries, ask(_TRIES))),
        tuple(_episodes(ask, {row[:4]: row[5] for row in minutes})),
        tuple(Calm(Key(*row[:3]), row[3], row[4]) for row in minutes),
    )


def _tries(row: tuple[Any, ...]) -> Tries:
    vhost, queue, reason, attempts, since, at, recovered, failed, ended, wait_ms, episode_ms = row
    key = Key(vhost, queue, reason)
    return Tries(key, attempts, since, at, recovered, failed, ended, wait_ms, episode_ms=episode_ms)


def _episodes(ask: Ask, typical: dict[tuple[Any, ...], int]) -> list[Episode]:
    """Those that are large enough."""
    remaining: dict[tuple[Any, ...], list[tuple[int, int]]] = {}
    for *episode, ms, letters in ask(_REMAINING):
        remaining.setdefault(tuple(episode), []).append((round(ms), letters))
    return [
        Episode(
            Key(*row[:3]), row[3], row[4], (row[5], row[6]), (row[7], row[8]), tuple(sorted(remaining[row[:4]])),
            typical.get(row[:4], 0),
        )
        for row in ask(_SIDES)
    ]  # fmt: skip
