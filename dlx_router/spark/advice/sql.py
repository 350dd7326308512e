"""`query` without Spark and traits: the evidence of one machine's archive, by SQL of DuckDB upon its `tries`."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from dlx_router.spark.advice.evidence import EDGES_MS, Evidence, Key, Tries

Ask = Callable[[str], Sequence[tuple[Any, ...]]]
_QUEUE: Final = "vhost, failed_queue, reason"
_HOUR_MS: Final = 3_600_000
_FIRST_STAYS: Final = "kind = 'retried' AND redrives = 0 AND reason IS NOT NULL AND attempts IS NOT NULL"
_CLOSED: Final = "outcome IN ('recovered', 'failed')"
_BUCKET: Final = """\
CASE WHEN {ms} < 1 THEN 0 WHEN {ms} < 250 THEN 1
  ELSE least({most}, 2 + CAST(floor(2 * log2(({ms} + 0.5) / 250)) AS INT)) END\
"""


def bucket_sql(ms: str) -> str:
    """`evidence.bucket` of an expression."""
    return _BUCKET.format(ms=f"({ms})", most=len(EDGES_MS))


PLACED: Final = f"""
SELECT letter, any_value(vhost) AS vhost, any_value(failed_queue) AS failed_queue, min(decided_ms) AS begun_ms,
  arg_min(reason, decided_ms) AS reason
FROM {{tries}} WHERE {_FIRST_STAYS} GROUP BY letter
"""
"""One row for each letter that was tried again."""

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
  sum(given_back_ms - decided_ms)::BIGINT
FROM followed WHERE {_CLOSED} GROUP BY {_QUEUE}, attempts, since_bucket, at_bucket
"""

_BUSIEST: Final = f"""
SELECT {_QUEUE}, max(letters) FROM (
  SELECT {_QUEUE}, count(*) AS letters FROM placed GROUP BY {_QUEUE}, begun_ms // {_HOUR_MS}
) GROUP BY {_QUEUE}
"""


def evidence(ask: Ask) -> Evidence:
    """What was counted. Tables `placed` and `given` are there."""
    tries = tuple(Tries(Key(*row[:3]), *row[3:]) for row in ask(_TRIES))
    return Evidence(tries, {Key(*row[:3]): row[3] for row in ask(_BUSIEST)})
