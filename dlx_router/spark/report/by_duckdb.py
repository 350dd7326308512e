"""What the report shows, out of an archive of this machine: by DuckDB, without Java. `by_spark` says the same."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dlx_router.core.signature import Signature
from dlx_router.spark.advice import sql as advice_sql
from dlx_router.spark.advice.judge import Known, QueueAdvice, advise
from dlx_router.spark.analyses import sql
from dlx_router.spark.archive.complete import complete_until, read_to_end
from dlx_router.spark.archive.files import ArchiveError
from dlx_router.spark.archive.layout import Archive
from dlx_router.spark.duckdb_session import database_error, in_a_line
from dlx_router.spark.report.data import NOTHING, Objective, ReportData, Rows, bucket_ms, most_rows
from dlx_router.spark.tables.database import writable

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_BEST: Final = (Signature.OK, Signature.UNKNOWN, Signature.NONE)  # as advice.query has it
Quiet = Sequence[tuple[str, str, str | None, int]]  # vhost, failed queue, reason, ms


class Times(NamedTuple):
    """Since when and until when events were decided, ms since 1970; None: all."""

    since_ms: int | None = None
    until_ms: int | None = None

    def where(self) -> str:
        """As a condition."""
        ends = ((">=", self.since_ms), ("<", self.until_ms))
        return " AND ".join(["true", *(f"ts_ms {sign} {ms:d}" for sign, ms in ends if ms is not None)])


ALL: Final = Times()


@dataclass(frozen=True, slots=True)
class Events:
    """Those of the time that was asked for. Every method may raise ArchiveError."""

    _database: "DuckDBPyConnection"
    complete_ms: int
    """Until when they tell everything."""
    _since_ms: int | None = None

    def places(self) -> list[tuple[str, str, str | None]]:
        """Vhost, failed queue and reason of every one that has a queue, sorted."""
        return self._asked(
            "SELECT DISTINCT vhost, failed_queue, reason FROM report_events WHERE failed_queue IS NOT NULL ORDER BY ALL"
        )

    def vhosts(self) -> list[str]:
        """Of all of them, sorted."""
        return [
            row[0]
            for row in self._asked("SELECT DISTINCT vhost FROM report_events WHERE vhost IS NOT NULL ORDER BY ALL")
        ]

    def gathered(
        self, *, title: str, objective: Objective | None = None, quiet: Quiet | None = None, known: Known | None = None
    ) -> ReportData:
        """All rows. `quiet`, `known`: as for `by_spark.gather`. ValueError where there is no event at all."""
        objective = objective or Objective()
        first_ms, last_ms = self._asked("SELECT min(ts_ms), max(ts_ms) FROM report_events WHERE id IS NOT NULL")[0]
        if first_ms is None:
            raise ValueError(NOTHING)
        self._prepare(quiet)
        step_ms = bucket_ms(first_ms, last_ms)
        queries = {"recovery": sql.RECOVERY, "efficacy": sql.EFFICACY, "trends": sql.trends(step_ms),
                   "groups": sql.GROUPS, "slo": sql.slo(objective.within_ms), "poison": sql.POISON,
                   "redrives": sql.REDRIVES}  # fmt: skip
        rows = {name: self._rows(query, most_rows(name)) for name, query in queries.items()}
        return ReportData(
            title=title,
            made_at=datetime.now(UTC),
            first_ms=first_ms,
            complete_ms=self.complete_ms,
            last_ms=last_ms,
            bucket_ms=step_ms,
            objective=objective,
            kinds=self._counts("kind", ""),
            recovery=sql.rated(rows["recovery"], "recovered_share", "recovered"),
            advice=self._advice(known),
            efficacy=sql.rated(rows["efficacy"], "recovered_share", "recovered", "tried"),
            trends=rows["trends"],
            groups=[row | {"sample_ids": [*dict.fromkeys(row["sample_ids"])]} for row in rows["groups"]],
            slo=[row | _burn(row, objective) for row in sql.rated(rows["slo"], "good_share", "good")],
            poison=rows["poison"],
            redrives=sql.rated(rows["redrives"], "recovered_share", "recovered"),
            totals=self._totals(),
            whole={name: self._count(query) for name, query in queries.items() if len(rows[name]) == most_rows(name)},
            signatures=self._counts("signature", Signature.NONE),
            gaps=self._asked("SELECT coalesce(sum(events), 0) FROM report_events WHERE kind = 'gap'")[0][0],
        )

    def _prepare(self, quiet: Quiet | None) -> None:
        """The tables that the analyses ask."""
        self._make("quiet", sql.OBSERVED_QUIET)
        if quiet is not None:
            self._asked("DELETE FROM quiet")
        if quiet:
            self._database.executemany("INSERT INTO quiet VALUES (?, ?, ?, ?)", quiet)
        self._make("tries", sql.tries("letter_events", self.complete_ms))
        self._make("fates", sql.fates(self.complete_ms))
        self._make("births", sql.births(self._since_ms))

    def _totals(self) -> dict[str, int]:
        (letters,), (retries,) = self._rows(sql.LETTER_TOTALS, 1), self._rows(sql.TRY_TOTALS, 1)
        return {**letters, **retries}

    def _count(self, query: str) -> int:
        return int(self._asked(f"SELECT count(*) FROM ({query})")[0][0])

    def _advice(self, known: Known | None) -> list[QueueAdvice]:
        """Of the best signed events; `tries` is of all, which mostly are as well signed."""
        counts = self._counts("signature", Signature.UNKNOWN)
        believed = next((best.value for best in _BEST if best.value in counts), "")
        events, tries = "letter_events", "tries"
        if {*counts} != {believed}:
            events, tries = "believed", "believed_tries"
            self._make(
                events,
                f"SELECT * FROM letter_events WHERE coalesce(signature::VARCHAR, '{Signature.UNKNOWN}') = '{believed}'",
            )
            self._make(tries, sql.tries(events, self.complete_ms))
        self._make("placed", advice_sql.PLACED.format(tries=tries))
        self._make("given", advice_sql.GIVEN.format(tries=tries))
        return advise(advice_sql.evidence(self._asked), known)

    def _counts(self, column: str, unknown: str) -> dict[str, int]:
        """Events by what the column says."""
        value = f"coalesce({column}::VARCHAR, '{unknown}')"
        return dict(self._asked(f"SELECT {value} AS value, count(*) FROM report_events GROUP BY value"))

    def _make(self, name: str, query: str) -> None:
        self._asked(f"CREATE TEMP TABLE {name} AS {query}")

    def _rows(self, query: str, most: int) -> Rows:
        answer = self._database.execute(f"{query} LIMIT {most}")
        names = [column[0] for column in answer.description or ()]
        return [dict(zip(names, row, strict=True)) for row in answer.fetchall()]

    def _asked(self, query: str) -> list[tuple[Any, ...]]:
        return self._database.execute(query).fetchall()


def _burn(row: dict[str, Any], objective: Objective) -> dict[str, Any]:
    """How fast the error budget is used up."""
    closed = row["letters"] - row["open"]
    burn = row["bad"] / closed / (1 - objective.share) if closed else None
    return {"objective": objective.share, "within_ms": objective.within_ms, "burn": burn}


@contextmanager
def opened(root: Path | str, times: Times = ALL) -> Iterator[Events]:
    """The events of this archive and time. ArchiveError where it cannot be read, OptionError without DuckDB."""
    since = "" if times.since_ms is None else datetime.fromtimestamp(times.since_ms / 1000, UTC).date().isoformat()
    with writable(root, since=since) as database:
        try:
            complete_ms = _complete_ms(database, times, Archive(root))
            _load(database, times)
            yield Events(database, complete_ms, times.since_ms)
        except database_error() as error:
            raise ArchiveError(f"{root}: {in_a_line(error)}") from None


def _complete_ms(database: "DuckDBPyConnection", times: Times, archive: Archive) -> int:
    """Until when the archive surely tells everything; not beyond the time that was asked for."""
    since = times._replace(until_ms=None).where()  # what came later may have been ingested long after
    newest = database.execute(
        f"SELECT stream, max(least(ts_ms, epoch_us(ingest_ts) // 1000)) FROM raw_events"
        f" WHERE ingest_ts IS NOT NULL AND {since} GROUP BY stream"
    ).fetchall()
    known_ms = complete_until(read_to_end(archive), dict(newest))
    return known_ms if times.until_ms is None else min(times.until_ms, known_ms)


def _load(database: "DuckDBPyConnection", times: Times) -> None:
    """The table `report_events`, and the view `letter_events` of it."""
    for name, values in _named(database, times).items():
        database.execute(f"CREATE TYPE {name}_name AS ENUM (SELECT unnest(?::VARCHAR[]))", [values])
    named = ", ".join(f"{name}::{name}_name AS {name}" for name in sql.NAMED)
    database.execute(
        f"CREATE TEMP TABLE report_events AS SELECT * REPLACE ({named}) FROM ({sql.EVENTS} WHERE {times.where()})"
    )
    database.execute(f"CREATE TEMP VIEW letter_events AS {sql.LETTER_EVENTS}")
    errors = sql.ERRORS.replace("SELECT fingerprint,", "SELECT fingerprint::fingerprint_name AS fingerprint,")
    database.execute(f"CREATE TEMP TABLE errors AS {errors} AND {times.where()} GROUP BY 1")
    database.execute(f"CREATE TEMP VIEW bodies AS {sql.BODIES} AND {times.where()} GROUP BY letter")


def _named(database: "DuckDBPyConnection", times: Times) -> dict[str, list[str]]:
    """The values of those columns, sorted; all by one look at the files."""
    each = ", ".join(f"list_sort(list(DISTINCT {name}) FILTER ({name} IS NOT NULL))" for name in sql.NAMED)
    row = database.execute(f"SELECT {each} FROM raw_events WHERE {times.where()}").fetchone() or ()
    return {name: values or [] for name, values in zip(sql.NAMED, row, strict=True)}
