"""The analyses of this folder as SQL of DuckDB, for one machine: the same rows without Java, in a fraction of the time.

A table `report_events` has the events of the time that is asked about, each once (`EVENTS`), the view
`letter_events` those of letters; `quiet` the window of each queue
and reason; `tries` and `fates` are made of both. Laws hold every answer equal to that of the DataFrames. Shares and
their intervals are for `rated` to add: they are of few rows.
"""

from typing import Any, Final

from dlx_router.core.recovered import (
    AT_LEAST_MS,
    DEATHS,
    LEASES,
    RECOVERED,
    SILENT,
    UNDECIDED,
    WAITS,
    fate_sql,
    first_death_sql,
    given_back_sql,
    try_sql,
    wait_sql,
)
from dlx_router.spark.archive.aggregates import STEP
from dlx_router.spark.intervals import wilson

Rows = list[dict[str, Any]]
GAP_MS: Final = 30 * 60_000  # without a death, then an episode is over
POISON_DEATHS: Final = 8  # so often a message dies until it counts as one
_DECIDED: Final = (*DEATHS, "held")  # about a death
_DIED: Final = f"kind IN {DEATHS!r} AND redrive_id IS NULL"
_WINDOW: Final = f"coalesce(quiet_ms, {AT_LEAST_MS})"
_QUIET: Final = "LEFT JOIN quiet USING (vhost, failed_queue, reason)"
_OPEN: Final = f"outcome IN {UNDECIDED!r}"
_GOOD: Final = f"outcome = '{RECOVERED}'"
_TOOK: Final = "recovered_ms - first_death_ms"

NAMED: Final = ("vhost", "failed_queue", "reason", "kind", "fingerprint", "redrive_id", "signature")
"""Columns of few values: as numbers (ENUM) they are compared and grouped in a third of the time."""

EVENTS: Final = f"""
SELECT id, vhost, failed_queue, reason, kind, attempts, redrives, redrive_id, ts_ms, due_ms,
  {first_death_sql()} AS first_death_ms, fingerprint, signature, events,
  id IS NOT NULL AND observed IS NULL AS is_of_letter, hash(id, failed_queue, vhost) AS letter, {STEP} AS step
FROM events
"""
"""What a report looks at; `letter` stands for (id, failed_queue, vhost), and `step` for the event's id within it."""

ERRORS: Final = """
SELECT fingerprint, any_value(error."type") AS error_type, any_value(error_template) AS error_template FROM events
WHERE fingerprint IS NOT NULL
"""
"""What each fingerprint is made of; GROUP BY is for the reader to add, behind its times."""

BODIES: Final = f"""
SELECT hash(id, failed_queue, vhost) AS letter, max(body_sha256) AS body_sha256 FROM events
WHERE id IS NOT NULL AND observed IS NULL AND kind IN {_DECIDED!r} AND redrive_id IS NULL AND body_sha256 IS NOT NULL
"""
"""The body of each letter; texts that long are not held for each event."""

LETTER_EVENTS: Final = "SELECT * FROM report_events WHERE is_of_letter"

OBSERVED_QUIET: Final = f"""
SELECT vhost, failed_queue, reason, greatest({AT_LEAST_MS}, {WAITS} * coalesce(max({wait_sql()}), 0)) AS quiet_ms
FROM report_events GROUP BY vhost, failed_queue, reason
"""


def tries(source: str, as_of_ms: int) -> str:
    """`letters.tries` of the events in `source`."""
    return f"""
WITH walked AS (
  SELECT letter, vhost, failed_queue, reason, kind, attempts, redrives, redrive_id, ts_ms, due_ms, first_death_ms,
    lead(kind) OVER (PARTITION BY letter ORDER BY ts_ms, redrives NULLS FIRST, attempts NULLS FIRST, step) AS next_kind
  FROM {source} WHERE kind NOT IN {SILENT!r}
)
SELECT letter, vhost, failed_queue, reason, kind, attempts, redrives, redrive_id, ts_ms AS decided_ms, first_death_ms,
  {given_back_sql()} AS given_back_ms, {try_sql(as_of_ms=as_of_ms, window=_WINDOW)} AS outcome
FROM walked {_QUIET} WHERE kind IN ('retried', 'redriven')
"""


def fates(as_of_ms: int) -> str:
    """`letters.letters`."""
    return f"""
WITH ends AS (
  SELECT letter, any_value(id) AS id, any_value(vhost) AS vhost, any_value(failed_queue) AS failed_queue,
    max(struct_pack(ts_ms := ts_ms, redrives := coalesce(redrives, -1), attempts := coalesce(attempts, -1),
                    step := step, kind := kind, reason := reason, due_ms := due_ms)) AS newest,
    min(first_death_ms) AS first_death_ms, count(*) FILTER (WHERE {_DIED}) AS deaths, max(redrives) AS redrives
  FROM letter_events WHERE kind NOT IN {SILENT!r} GROUP BY letter
), last AS (
  SELECT letter, id, vhost, failed_queue, newest.reason AS reason, newest.kind AS kind, newest.ts_ms AS ts_ms,
    newest.due_ms AS due_ms, first_death_ms, deaths, redrives
  FROM ends
)
SELECT letter, id, vhost, failed_queue, reason, first_death_ms, ts_ms AS last_ms, deaths, redrives,
  {fate_sql(as_of_ms=as_of_ms, window=_WINDOW)} AS outcome,
  CASE WHEN outcome = '{RECOVERED}' THEN {given_back_sql()} END AS recovered_ms
FROM last {_QUIET}
"""


def _percentile(of: str, point: float) -> str:
    return f"CAST(trunc(quantile_cont({of}, {point})) AS BIGINT)"


_OF_ATTEMPTS: Final = "kind = 'retried' AND redrives = 0 AND outcome IN ('recovered', 'failed')"

LETTER_TOTALS: Final = f"""
SELECT count(*) AS letters, count(*) FILTER (WHERE {_GOOD}) AS recovered,
  count(*) FILTER (WHERE {_GOOD} AND redrives > 0) AS by_redrive, count(*) FILTER (WHERE {_OPEN}) AS open,
  letters - open - recovered AS lost, (SELECT count(*) FROM births) AS born
FROM fates
"""
TRY_TOTALS: Final = (
    f"SELECT count(*) AS tried, count(*) FILTER (WHERE {_GOOD}) AS helped FROM tries WHERE {_OF_ATTEMPTS}"
)
"""Sums over all that the tables beside them tell of, however many rows of those are shown."""

EFFICACY: Final = f"""
SELECT vhost, failed_queue, reason, attempts, count(*) AS tried, count(*) FILTER (WHERE {_GOOD}) AS recovered,
  tried - recovered AS failed, {_percentile("given_back_ms - decided_ms", 0.5)} AS wait_p50_ms,
  {_percentile("given_back_ms - first_death_ms", 0.5)} AS elapsed_p50_ms
FROM tries WHERE {_OF_ATTEMPTS}
GROUP BY vhost, failed_queue, reason, attempts
ORDER BY sum(count(*)) OVER (PARTITION BY vhost, failed_queue, reason) DESC, vhost NULLS FIRST,
  failed_queue NULLS FIRST, reason NULLS FIRST, attempts NULLS FIRST
"""
"""Where retries are most, first: whoever shows a part of them shows whole queues that matter."""

RECOVERY: Final = f"""
SELECT vhost, failed_queue, reason, count(*) AS letters, count(*) FILTER (WHERE {_GOOD}) AS recovered,
  count(*) FILTER (WHERE {_GOOD} AND redrives > 0) AS by_redrive,
  count(*) FILTER (WHERE {_OPEN}) AS open, letters - open - recovered AS lost, {_percentile(_TOOK, 0.5)} AS time_p50_ms,
  {_percentile(_TOOK, 0.95)} AS time_p95_ms, {_percentile(_TOOK, 0.99)} AS time_p99_ms
FROM fates GROUP BY vhost, failed_queue, reason
ORDER BY letters DESC, vhost NULLS FIRST, failed_queue NULLS FIRST, reason NULLS FIRST
"""


def slo(within_ms: int) -> str:
    """`recovery.slo_burn`, without shares."""
    return f"""
SELECT vhost, failed_queue, count(*) AS letters, count(*) FILTER (WHERE {_GOOD} AND {_TOOK} <= {within_ms}) AS good,
  count(*) FILTER (WHERE {_OPEN}) AS open, letters - open - good AS bad
FROM fates GROUP BY vhost, failed_queue ORDER BY bad / nullif(letters - open, 0) DESC NULLS LAST, vhost, failed_queue
"""


def births(since_ms: int | None) -> str:
    """The first event of each letter that failed for the first time, and not before `since_ms`."""
    young = "" if since_ms is None else f" AND coalesce(born_ms, {since_ms:d}) >= {since_ms:d}"
    return f"""
WITH firsts AS (
  SELECT min(struct_pack(ts_ms := ts_ms, step := step, failed_queue := failed_queue, kind := kind)) AS birth,
    min(first_death_ms) AS born_ms
  FROM letter_events WHERE redrive_id IS NULL AND kind NOT IN ('released', {", ".join(map(repr, LEASES))})
  GROUP BY letter
)
SELECT birth FROM firsts WHERE birth.kind IN {_DECIDED!r}{young}
"""


def trends(bucket_ms: int) -> str:
    """Deaths in each bucket and queue, and the letters that failed for the first time (table `births`).

    What tells of most deaths comes first.
    """
    return f"""
WITH every AS (
  SELECT ts_ms, failed_queue, 1 AS deaths, 0 AS new_letters FROM letter_events
  WHERE redrive_id IS NULL AND kind IN {_DECIDED!r}
  UNION ALL SELECT birth.ts_ms, birth.failed_queue, 0, 1 FROM births
)
SELECT ts_ms - ts_ms % {bucket_ms} AS bucket_ms, failed_queue, sum(deaths)::BIGINT AS deaths,
  sum(new_letters)::BIGINT AS new_letters
FROM every GROUP BY ALL ORDER BY deaths DESC, bucket_ms, failed_queue NULLS FIRST
"""


GROUPS: Final = f"""
WITH died AS (
  SELECT letter, fingerprint, vhost, failed_queue, any_value(id) AS id, count(*) AS deaths, min(ts_ms) AS first_ms,
    max(ts_ms) AS last_ms, any_value(reason) AS reason
  FROM letter_events WHERE {_DIED} GROUP BY letter, fingerprint, vhost, failed_queue
)
SELECT fingerprint, vhost, failed_queue, any_value(died.reason) AS reason, any_value(error_type) AS error_type,
  any_value(error_template) AS error_template, count(*) AS letters, sum(died.deaths)::BIGINT AS deaths,
  count(*) FILTER (WHERE {_GOOD}) AS recovered,
  count(*) FILTER (WHERE {_OPEN}) AS open, letters - recovered - open AS lost, lost / letters AS lost_share,
  min(first_ms) AS first_ms, max(died.last_ms) AS last_ms,
  [arg_min(id, row(first_ms, id)), arg_max(id, row(died.last_ms, id)), min(id)] AS sample_ids
FROM died LEFT JOIN (SELECT letter, outcome FROM fates) AS ended USING (letter) LEFT JOIN errors USING (fingerprint)
GROUP BY fingerprint, vhost, failed_queue
ORDER BY letters DESC, fingerprint NULLS FIRST, failed_queue NULLS FIRST, vhost NULLS FIRST
"""

POISON: Final = f"""
SELECT vhost, failed_queue, coalesce(body_sha256, id) AS message,
  CASE WHEN body_sha256 IS NOT NULL THEN 'body_sha256' ELSE 'id' END AS known_by, count(*) AS letters,
  sum(deaths)::BIGINT AS deaths,
  coalesce(list_sort(array_agg(DISTINCT reason) FILTER (WHERE reason IS NOT NULL)), []) AS reasons,
  min(first_death_ms) AS first_ms, max(last_ms) AS last_ms, min(id) AS sample_id
FROM fates LEFT JOIN bodies USING (letter) GROUP BY vhost, failed_queue, message, known_by
HAVING sum(deaths) >= {POISON_DEATHS} AND NOT bool_or({_GOOD} OR {_OPEN}) AND (count(*) > 1 OR max(redrives) > 0)
ORDER BY deaths DESC, vhost, failed_queue, message
"""

REDRIVES: Final = f"""
WITH sent AS (
  SELECT redrive_id, letter, vhost, failed_queue, arg_max(outcome, decided_ms) AS first,
    min(decided_ms) AS first_ms, max(decided_ms) AS last_ms
  FROM tries WHERE kind = 'redriven' GROUP BY redrive_id, letter, vhost, failed_queue
)
SELECT redrive_id, vhost, failed_queue, count(*) AS letters, count(*) FILTER (WHERE {_GOOD}) AS recovered,
  count(*) FILTER (WHERE first = '{RECOVERED}') AS at_once,
  count(*) FILTER (WHERE {_OPEN}) AS open, letters - open - recovered AS lost, min(first_ms) AS first_ms,
  max(sent.last_ms) AS last_ms
FROM sent LEFT JOIN (SELECT letter, outcome FROM fates) AS ended USING (letter)
GROUP BY redrive_id, vhost, failed_queue
ORDER BY first_ms DESC, redrive_id NULLS FIRST, vhost NULLS FIRST, failed_queue NULLS FIRST
"""


def rated(rows: Rows, name: str, good: str, of: str | None = None) -> Rows:
    """The rows with the share of column `good` under `name`, and its interval as `shape.rated` has it.

    `of`: the column of all; None: the letters that have an end.
    """
    return [row | _rated(name, row[good], row[of] if of else row["letters"] - row["open"]) for row in rows]


def _rated(name: str, good: int, of: int) -> dict[str, float | None]:
    low, high = wilson(good, of) if of else (None, None)
    return {name: good / of if of else None, "low": low, "high": high}
