"""Views in SQL that DuckDB and Spark read alike, upon `events`; the columns are those of the dictionary.

What *recovered* means is core's answer, as in `spark/analyses`. The moment until which all is known is that of
`archive.complete`, whose table they ask too. `unix_millis` is Spark's; DuckDB gets a macro of that name.
"""

from typing import Final

from dlx_router.core.recovered import (
    AT_LEAST_MS,
    DEATHS,
    OPEN,
    ORDER,
    RECOVERED,
    SILENT,
    UNDECIDED,
    WAITS,
    fate_sql,
    first_death_sql,
    given_back_sql,
    wait_sql,
)

ASKED: Final = "read_to_end"
"""The table of `archive.complete.read_to_end`: stream string, complete_ms long."""

_KNOWN: Final = f"""
SELECT coalesce(min(until_ms), 0) AS known_ms FROM (
  SELECT stream, max(until_ms) AS until_ms FROM (
    SELECT stream, least(ts_ms, unix_millis(ingest_ts)) AS until_ms FROM events WHERE ingest_ts IS NOT NULL
    UNION ALL SELECT stream, complete_ms AS until_ms FROM {ASKED}
  ) AS every GROUP BY stream
) AS streams WHERE until_ms > 0
  AND (stream IN (SELECT stream FROM {ASKED}) OR NOT EXISTS (SELECT 1 FROM {ASKED}))
"""
"""`archive.complete.complete_until`."""
_NEWEST: Final = ", ".join(f"{name} DESC NULLS LAST" for name in ORDER)
_DIED: Final = f"kind IN {DEATHS!r} AND redrive_id IS NULL"
# `fate_sql` compares with `as_of_ms - window`: the moment is a column here, so it goes to the other side.
_OUTCOME: Final = fate_sql(as_of_ms=0, window="(quiet_ms - known_ms)")

LETTERS: Final = f"""
WITH quiet AS (
  SELECT vhost, failed_queue, reason, greatest({AT_LEAST_MS}, {WAITS} * coalesce(max({wait_sql()}), 0)) AS quiet_ms
  FROM events GROUP BY vhost, failed_queue, reason
), known AS (
  {_KNOWN}
), walked AS (
  SELECT vhost, id, failed_queue, kind, reason, policy, attempts, ts_ms, due_ms,
    min({first_death_sql()}) OVER letter AS first_death_ms, count(CASE WHEN {_DIED} THEN 1 END) OVER letter AS deaths,
    max(redrives) OVER letter AS redrives, max(redrive_id) OVER letter AS redrive_id,
    row_number() OVER (PARTITION BY id, failed_queue, vhost ORDER BY {_NEWEST}) AS nth
  FROM events WHERE id IS NOT NULL AND observed IS NULL AND kind NOT IN {SILENT!r}
  WINDOW letter AS (PARTITION BY id, failed_queue, vhost)
), ended AS (
  SELECT walked.*, coalesce(quiet.quiet_ms, {AT_LEAST_MS}) AS quiet_ms, known.known_ms
  FROM walked CROSS JOIN known LEFT JOIN quiet ON quiet.vhost = walked.vhost
    AND quiet.failed_queue = walked.failed_queue AND quiet.reason = walked.reason
  WHERE walked.nth = 1
), judged AS (
  SELECT ended.*, {given_back_sql()} AS given_back_ms, {_OUTCOME} AS outcome FROM ended
)
SELECT vhost, id, failed_queue, reason, policy, first_death_ms, ts_ms AS last_ms, deaths, attempts, redrives,
  redrive_id, given_back_ms, CASE WHEN outcome = '{RECOVERED}' THEN given_back_ms END AS recovered_ms, outcome
FROM judged
"""

GROUPS: Final = f"""
WITH died AS (
  SELECT id, failed_queue, vhost, fingerprint, count(*) AS deaths, min(ts_ms) AS first_ms, max(ts_ms) AS last_ms,
    max(reason) AS reason, max(error.type) AS error_type, max(error_template) AS error_template
  FROM events WHERE id IS NOT NULL AND observed IS NULL AND {_DIED}
  GROUP BY id, failed_queue, vhost, fingerprint
), counted AS (
  SELECT died.vhost, died.failed_queue, died.fingerprint, max(died.reason) AS reason,
    max(died.error_type) AS error_type, max(died.error_template) AS error_template, count(*) AS letters,
    CAST(sum(died.deaths) AS BIGINT) AS deaths,
    count(CASE WHEN letters.outcome = '{RECOVERED}' THEN 1 END) AS recovered,
    count(CASE WHEN letters.outcome IN {UNDECIDED!r} THEN 1 END) AS {OPEN}, min(died.first_ms) AS first_ms,
    max(died.last_ms) AS last_ms
  FROM died LEFT JOIN letters ON letters.id = died.id AND letters.failed_queue = died.failed_queue
    AND letters.vhost = died.vhost
  GROUP BY died.vhost, died.failed_queue, died.fingerprint
)
SELECT vhost, failed_queue, fingerprint, reason, error_type, error_template, letters, deaths, recovered, {OPEN},
  letters - recovered - {OPEN} AS lost, first_ms, last_ms
FROM counted
"""
