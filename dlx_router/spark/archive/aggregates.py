"""Aggregates beside the archive: of each part that counts, a row for each letter and failure group. No Spark in here.

    _aggregates/v1/event_date=D/seg=S.parquet

A part (a segment's or a compacted day's folder) never changes, so its aggregate is made once, of its files alone, and
means nothing without it. Nothing has to be kept in step: whoever is killed leaves one that is missing, which the next
reader makes, or one of a part that does not count any more, which the next one removes. It says in its footer of which
part it is: one that is torn, of another part or made otherwise is made anew, it alone. Where the archive cannot be
written, what is missing is made in a temporary folder for the one question. Rows of several parts are put
together by what cannot count twice: the least, the greatest, and the set of a letter's deaths. So an event counts
once, also where it stands in two segments. DuckDB makes and reads them: docs/decisions/0086-aggregates-by-duckdb.md.
"""

import os
import time
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from dlx_router.core.recovered import AT_LEAST_MS, DEATHS, RECOVERED, SILENT, UNDECIDED, WAITS, fate_sql, wait_sql
from dlx_router.spark import scratch
from dlx_router.spark.archive.complete import complete_until, read_to_end
from dlx_router.spark.archive.files import ArchiveError, removed, token
from dlx_router.spark.archive.layout import Archive, Part
from dlx_router.spark.archive.verify import counted
from dlx_router.spark.duckdb_session import connected, database_error, listed, pattern, reason, text

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

HOUR_MS: Final = 3_600_000
_FORMAT: Final = "v1"
_MEMORY: Final = "1GB"
_TRIES: Final = 3
_LONGEST_S: Final = 3600.0  # of the making of one

STEP: Final = """\
coalesce(case when strlen(event_id) = strlen(id) + 17 and starts_with(event_id, id || '-')
                         then try_cast('0x' || right(event_id, 16) as ubigint) end, md5_number_lower(event_id))"""
"""An event's id within its letter, as a number."""
# What is null comes first in Spark and last in DuckDB: nothing
# by which `newest` is ordered is null.
_MAKE: Final = f"""
copy (
  select stream, id, failed_queue, vhost, fingerprint, reason,
         any_value(error."type") filter (where died) as error_type,
         any_value(error_template) filter (where died) as error_template,
         list(struct_pack(step := step, ts_ms := ts_ms)) filter (where died) as deaths,
         min(ts_ms) filter (where died) as first_ms, max(ts_ms) filter (where died) as last_ms,
         max(struct_pack(ts_ms := ts_ms, redrives := coalesce(redrives, -1), attempts := coalesce(attempts, -1),
                         step := step, kind := kind, reason := reason, due_ms := due_ms))
           filter (where speaks) as newest,
         max({wait_sql()}) as wait_ms,
         max(case when ingest_ts is not null then least(ts_ms, epoch_ms(ingest_ts)) end) as decided_ms
  from (
    select *, observed is null and kind in {DEATHS!r} and redrive_id is null as died,
           observed is null and kind not in {SILENT!r} as speaks,
           {STEP} as step
    from read_parquet({{files}}, hive_partitioning = false) where id is not null
  ) group by stream, id, failed_queue, vhost, fingerprint, reason
) to {{out}} (format parquet, compression zstd, kv_metadata {{mark}})
"""
_MARK: Final = "dlx_router_part"
_MADE: Final = blake2b(_MAKE.encode(), digest_size=8).hexdigest()  # what is made by another text is made anew
_WHOLE: Final = "select bit_xor(hash(one)) from read_parquet({file}, hive_partitioning = false) as one"
_NEWEST: Final = """
select stream, max(decided_ms) as decided_ms from read_parquet({files}, hive_partitioning = false)
where decided_ms is not null group by stream"""
_EACH: Final = """
part as (select * from read_parquet({files}, hive_partitioning = false)),
by_letter as (
  select id, failed_queue, vhost, fingerprint, any_value(reason) as reason, any_value(error_type) as error_type,
         any_value(error_template) as error_template,
         len(list_distinct(flatten(list(list_transform(deaths, lambda death: death.step))))) as deaths,
         min(first_ms) as first_ms, max(last_ms) as last_ms
  from part where deaths is not null group by id, failed_queue, vhost, fingerprint
)
"""
_GROUPS: Final = f"""
with {_EACH}, quiet as (
  select vhost, failed_queue, reason, greatest({AT_LEAST_MS}, {WAITS} * coalesce(max(wait_ms), 0)) as quiet_ms
  from part group by vhost, failed_queue, reason
), ends as (
  select id, failed_queue, vhost, max(newest) as newest from part where newest is not null
  group by id, failed_queue, vhost
), said as (
  select id, failed_queue, vhost, newest.kind as kind, newest.reason as reason, newest.ts_ms as ts_ms,
         newest.due_ms as due_ms from ends
), fates as (
  select id, failed_queue, vhost, {{fate}} as outcome from said left join quiet using (vhost, failed_queue, reason)
), counted as (
  select fingerprint, vhost, failed_queue, any_value(reason) as reason, any_value(error_type) as error_type,
         any_value(error_template) as error_template, count(*) as letters, sum(deaths)::bigint as deaths,
         count(*) filter (where outcome = '{RECOVERED}') as recovered,
         count(*) filter (where outcome in {UNDECIDED!r}) as open,
         min(first_ms) as first_ms, max(last_ms) as last_ms,
         [arg_min(id, row(first_ms, id)), arg_max(id, row(last_ms, id)), min(id)] as sample_ids
  from by_letter left join fates using (id, failed_queue, vhost) group by fingerprint, vhost, failed_queue
)
select fingerprint, vhost, failed_queue, reason, error_type, error_template, letters, deaths, recovered,
       letters - recovered - open as lost, open, (letters - recovered - open) / letters as lost_share,
       first_ms, last_ms, sample_ids
from counted order by letters desc, fingerprint, failed_queue, vhost
"""
_HOURS: Final = f"""
with part as (select * from read_parquet({{files}}, hive_partitioning = false)), by_letter as (
  select vhost, failed_queue, fingerprint, list_distinct(flatten(list(deaths))) as deaths, min(first_ms) as first_ms
  from part where deaths is not null group by id, failed_queue, vhost, fingerprint
), died as (
  select vhost, failed_queue, fingerprint, unnest(deaths) as death from by_letter
), told as (
  select death.ts_ms as ts_ms, vhost, failed_queue, fingerprint, 1 as deaths, 0 as new_letters from died
  union all select first_ms, vhost, failed_queue, fingerprint, 0, 1 from by_letter
)
select ts_ms - ts_ms % {HOUR_MS} as hour_ms, vhost, failed_queue, fingerprint, sum(deaths)::bigint as deaths,
       sum(new_letters)::bigint as new_letters
from told group by ts_ms - ts_ms % {HOUR_MS}, vhost, failed_queue, fingerprint
order by hour_ms, vhost, failed_queue, fingerprint
"""
Rows = list[dict[str, Any]]


class Aggregates:
    """Those of an archive. OptionError where DuckDB is missing."""

    def __init__(self, root: Path | str) -> None:
        self._archive = Archive(root)
        self._folder = self._archive.root / "_aggregates"

    def groups(self, *, as_of_ms: int | None = None, since: str = "") -> Rows:
        """The failure groups, as `analyses.groups` says of the same days (UTC, from `since` on). GROUPS_SCHEMA.

        `as_of_ms`: until when the journal is told to its end; None: as `complete_until` says.
        """

        def answer(database: "DuckDBPyConnection", files: str) -> Rows:
            as_of = self._complete_until(database, files) if as_of_ms is None else as_of_ms
            fate = fate_sql(as_of_ms=as_of, window=f"coalesce(quiet_ms, {AT_LEAST_MS})")
            rows = _rows(database, _GROUPS.format(files=files, fate=fate))
            return [{**row, "sample_ids": [*dict.fromkeys(row["sample_ids"])]} for row in rows]

        return self._answered(since, answer)

    def hours(self, *, since: str = "") -> Rows:
        """Deaths by hour, queue and failure group, and the letters first told of there in these days."""
        return self._answered(since, lambda database, files: _rows(database, _HOURS.format(files=files)))

    def _complete_until(self, database: "DuckDBPyConnection", files: str) -> int:
        newest = {row["stream"]: row["decided_ms"] for row in _rows(database, _NEWEST.format(files=files))}
        return complete_until(read_to_end(self._archive), newest)

    def refresh(self) -> int:
        """Make what is missing or is not of its part, remove what is of no part any more; how many were made."""
        with connected(memory=_MEMORY) as database:
            return self._refreshed(database)

    def _refreshed(self, database: "DuckDBPyConnection", torn: Collection[Path] = ()) -> int:
        missing = self._missing(self._archive.parts(), torn)
        self._make_all(database, [(part, self._file(part)) for part in missing])
        self.prune()  # by what counts now: an `erase` may have gone by while they were made
        return len(missing)

    def _missing(self, parts: Iterable[Part], torn: Collection[Path]) -> list[Part]:
        """Parts whose aggregate is not there, is known to be torn, or says that it is another's."""
        return [part for part in parts if self._file(part) in torn or _footer_mark(self._file(part)) != _mark(part)]

    def _make_all(self, database: "DuckDBPyConnection", wanted: Iterable[tuple[Part, Path]]) -> None:
        with ThreadPoolExecutor() as threads:
            for made in [threads.submit(self._make, database.cursor(), part, out) for part, out in wanted]:
                made.result()

    def forget(self, part: Part) -> None:
        """Remove that of a part whose files are others now."""
        self._file(part).unlink(missing_ok=True)

    def prune(self) -> None:
        """Remove what is of no part: it may tell of letters that were erased."""
        parts = {self._file(part) for part in self._archive.parts()}
        for file in self._folder.glob("*/*/*"):
            if file not in parts and not (_whole(file) in parts and _is_being_made(file)):
                file.unlink(missing_ok=True)
        for folder in self._folder.glob("*"):
            if folder.name != _FORMAT:
                removed(folder)

    def _answered(self, since: str, answer: "Callable[[DuckDBPyConnection, str], Rows]") -> Rows:
        torn: set[Path] = set()
        with connected(memory=_MEMORY) as database, scratch.folder() as aside:
            for left in reversed(range(_TRIES)):
                files = self._files(database, since, aside, torn)
                try:
                    return answer(database, listed(map(pattern, files))) if files else []
                except database_error() as error:
                    broken = {file for file in files if not _is_whole(database, file)}  # or its day was compacted
                    if not left or not broken:
                        raise ArchiveError(f"{self._folder}: cannot be read: {reason(error)}") from None
                    torn |= broken
        raise AssertionError

    def _files(self, database: "DuckDBPyConnection", since: str, aside: Path, torn: set[Path]) -> list[Path]:
        """Those to read, all of them made; where the archive cannot be written, in `aside`."""
        if self._may_write:
            self._refreshed(database, torn)
            torn.clear()
            return [self._file(part) for part in self._archive.parts() if part.date >= since]
        parts = [part for part in self._archive.parts() if part.date >= since]
        own = {part: aside / f"{part.date} {part.seg}.parquet" for part in self._missing(parts, torn)}
        self._make_all(database, [(part, out) for part, out in own.items() if out in torn or not out.exists()])
        return [own.get(part, self._file(part)) for part in parts]

    @property
    def _may_write(self) -> bool:
        """Whether this user may make files there, for each day too; root may not where it is mounted read-only."""
        places = (self._folder / _FORMAT, self._folder, self._archive.root)
        place = next((place for place in places if place.exists()), places[-1])
        return all(
            os.access(folder, os.W_OK | os.X_OK) for folder in (place, *self._folder.glob(f"{_FORMAT}/event_date=*"))
        )

    def _file(self, part: Part) -> Path:
        return self._folder / _FORMAT / f"event_date={part.date}" / f"seg={part.seg}.parquet"

    def _make(self, database: "DuckDBPyConnection", part: Part, out: Path) -> None:
        aside = out.with_name(f".{out.name}.{token()}")
        for problem in counted(part) if part.folder.exists() else ():  # it would count as that of the whole
            raise ArchiveError(f"{problem}; `dlx-router pipeline verify` says what else is wrong")
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            mark = f"{{{_MARK}: {text(_mark(part))}}}"
            database.execute(_MAKE.format(files=listed(map(pattern, part.files)), out=text(aside), mark=mark))
            aside.replace(out)
        except database_error() as error:
            if part.folder.exists():
                problem = f"cannot be read, or its aggregate not written: {reason(error)}"
                raise ArchiveError(f"{part.folder}: {problem}") from None
        except OSError as error:
            if part.folder.exists():  # else `prune` took it away
                raise ArchiveError(f"{out}: {error.strerror}; who asks for groups has to write there") from None
        finally:
            with suppress(FileNotFoundError):
                aside.unlink()


def _mark(part: Part) -> str:
    """What the aggregate of this part says of itself; no two segments have one name, of whatever archive they are."""
    return f"{_MADE} {part.date} {part.seg} {part.rows}"


def _footer_mark(file: Path) -> str:
    """What a file says of itself; "" where it is not there, or is none."""
    try:
        metadata = pq.read_metadata(file).metadata or {}
    except (OSError, pa.ArrowException):
        return ""
    return bytes(metadata.get(_MARK.encode(), b"")).decode(errors="replace")


def _is_whole(database: "DuckDBPyConnection", file: Path) -> bool:
    """Whether each value of it can be read."""
    try:
        database.execute(_WHOLE.format(file=text(pattern(file)))).fetchall()
    except database_error():
        return False
    return True


def _whole(aside: Path) -> Path:
    """What a file that is written aside will be."""
    return aside.with_name(aside.stem.removeprefix("."))


def _is_being_made(file: Path) -> bool:
    try:
        return file.name.startswith(".") and time.time() - file.stat().st_mtime < _LONGEST_S
    except FileNotFoundError:  # it is made
        return True


def _rows(database: "DuckDBPyConnection", query: str) -> Rows:
    relation = database.sql(query)
    return [dict(zip(relation.columns, row, strict=True)) for row in relation.fetchall()]
