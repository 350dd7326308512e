"""What a bulk redrive does, and how every command reaches its events, once it is clear that Spark is wanted."""

import secrets
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from dlx_router.cli import output
from dlx_router.cli.pipeline.moments import times, without_events
from dlx_router.cli.pipeline.names import prefix, tls_options
from dlx_router.service.vhost.signing_key import KeyFileError, from_file
from dlx_router.spark.archive.complete import complete_until, read_to_end
from dlx_router.spark.archive.layout import Archive
from dlx_router.spark.archive.reading import read
from dlx_router.spark.conditions import unseen
from dlx_router.spark.options import OptionError, Options
from dlx_router.spark.redrive.overlap import overlaps
from dlx_router.spark.redrive.plan import Choice, Plan, PlanError, Target, blind, chosen, counted, freeze, vhosts_of
from dlx_router.spark.redrive.reconcile import reconcile as reconciled
from dlx_router.spark.redrive.run import Progress, run
from dlx_router.spark.redrive.way import Way
from dlx_router.spark.session import LARGE, build_session

__all__ = [
    "Choice",
    "Plan",
    "Where",
    "dry_run",
    "frozen",
    "goes_twice",
    "reconcile",
    "send",
    "target_of",
    "way_of",
    "what_goes",
]


@dataclass(frozen=True, slots=True)
class Where:
    """Which events, and where Spark runs."""

    archive: Path
    since: str | None = None
    until: str | None = None
    master: str | None = None
    remote: str | None = None

    def session(self, *, reads: bool = True) -> SparkSession:
        """The session of this command. What is wrong with what it will read is said before Spark starts."""
        if reads:
            self._require_folder()
            self._times()
        session = build_session("dlx-router pipeline", master=self.master, remote=self.remote, heap=LARGE)
        if not self.remote:
            session.sparkContext.setLogLevel("ERROR")  # what matters of Spark's errors comes back as exceptions
        return session

    def events(self, spark: SparkSession) -> DataFrame:
        """The events of the time that was asked for."""
        until, events = self._times()[1], self.known(spark)
        return events if until is None else events.where(f.col("ts_ms") < until)

    def known(self, spark: SparkSession, *, repeated: bool = False) -> DataFrame:
        """The same and all later ones: what is known of these letters."""
        since = self._times()[0]
        first = None if since is None else datetime.fromtimestamp(since / 1000, UTC).date()
        events = read(spark, self.archive, since=first, repeated=repeated)
        return events if since is None else events.where(f.col("ts_ms") >= since)

    def as_of_ms(self, spark: SparkSession, events: DataFrame) -> int:
        """Until when `events` tell everything, see `known_until`; with --until not beyond that."""
        until = self._times()[1]
        if until is None:
            return known_until(events, self.archive)
        every = self.known(spark, repeated=True)  # it may have been ingested long after
        return min(until, known_until(every, self.archive))

    @property
    def since_ms(self) -> int | None:
        """The begin of the time that was asked for."""
        return self._times()[0]

    def within(self, choice: Choice) -> Choice:
        """Of letters whose last event was in this time."""
        since, until = self._times()
        return replace(choice, since_ms=since, until_ms=until)

    def without_events(self) -> str | None:
        """What to say where the manifests know of no event in this time, for which nobody should wait for Spark."""
        return None if self.remote else without_events(self.archive, *self._times())  # its folder is the server's

    def _times(self) -> tuple[int | None, int | None]:
        return times(self.since, self.until)

    def _require_folder(self) -> None:
        if not self.remote:
            Archive(self.archive).require_folder()


def known_until(events: DataFrame, archive: Path) -> int:
    """Until when the archive surely tells everything: `archive.complete`, ms since 1970. 0 for no event."""
    decided = f.max(f.least("ts_ms", f.unix_millis("ingest_ts"))).alias("newest_ms")
    rows = events.where("ingest_ts is not null").groupBy("stream").agg(decided).collect()
    return complete_until(read_to_end(Archive(archive)), {row.stream: row.newest_ms for row in rows})


def vhosts(events: DataFrame) -> list[str]:
    """Of all events, sorted."""
    return sorted(row[0] for row in events.select("vhost").where("vhost is not null").distinct().collect())


# -- redrive --------------------------------------------------------------------------------------------------------


def way_of(connection: str, key_file: str, rate: float) -> Way:
    """How letters are sent from here. Raises OptionError where the connection is no reference."""
    ours = prefix()
    try:
        from_file(Path(key_file))
    except KeyFileError as error:
        raise OptionError(str(error)) from None
    options = Options.read({"connection": connection, "streams": f"{ours}.journal", **tls_options()})
    return Way(options, str(Path(key_file).absolute()), ours, rate)


def target_of(connection: str, to_vhost: str | None) -> Target:
    """Where letters may go: the connection's vhost, by a move where that is named. Raises OptionError."""
    vhost = Options.read({"connection": connection, "streams": f"{prefix()}.journal"}).address().vhost
    if to_vhost is not None and to_vhost != vhost:
        reason = f"the connection leads to vhost {vhost!r}, and letters go nowhere else"
        raise OptionError(f"--to-vhost {to_vhost!r}: {reason}; name that one, or connect to {to_vhost!r}")
    return Target(vhost, is_move=to_vhost is not None)


def dry_run(where: Where, choice: Choice, *, is_move: bool, as_json: bool) -> int:
    """Print what a plan would hold, by group; on standard error what its condition could not see."""
    events, choice = where.known(where.session()), where.within(choice)
    last = chosen(events, choice, is_move=is_move)
    _say_unseen(choice, blind(events, choice, is_move=is_move))
    usable = (f.col("body_mode") == "inline") & f.col("redacted").isNull()
    rows = (
        last.groupBy("vhost", "failed_queue", "reason", "kind", "fingerprint", "error_template")
        .agg(f.count("*").alias("letters"), f.count_if(usable).alias("with_body"))
        .orderBy(f.desc("letters"), "vhost", "failed_queue", "reason", "fingerprint")
        .collect()
    )
    if as_json:
        output.as_json([row.asDict() for row in rows])
        return output.OK
    for row in rows:
        bodies = f"{row.with_body:>8} of {row.letters} {row.kind}"
        output.say(f"{bodies}  {row.failed_queue}  {row.reason}  {row.fingerprint}")
    would_go = output.number(sum(row.with_body for row in rows), "letter")
    vhosts = ", ".join(sorted({repr(row.vhost) for row in rows})) or "none"
    until = _moment(known_until(events, where.archive))
    output.say(f"{would_go} would be sent back (of {sum(row.letters for row in rows)}); of vhost: {vhosts}")
    output.say(f"What became of them is known until {until}; what was sent since goes again: ingest first.")
    return output.OK


def _say_unseen(choice: Choice, letters: dict[str, int]) -> None:
    if message := unseen(choice.where):
        counts = "".join(f"; {name}: not known of {output.number(count, 'letter')}" for name, count in letters.items())
        output.warn(message + counts)


def frozen(where: Where, choice: Choice, folder: Path, target: Target) -> Plan:
    """The plan of the folder; made now where there is none. PlanError where it is not for this vhost."""
    if (folder / "plan.json").exists():
        if choice != Choice():
            raise PlanError(f"{folder}: this plan is frozen; leave the filters out to go on, or name a new folder")
        plan = Plan.load(folder)
        target.require(vhosts_of(folder))
        return plan
    _say_unseen(choice, {})
    redrive_id = f"r-{datetime.now(UTC):%Y%m%d}-{secrets.token_hex(4)}"
    spark = where.session()
    events = where.known(spark)
    return freeze(
        events,
        where.within(choice),
        folder,
        redrive_id=redrive_id,
        as_of_ms=known_until(events, where.archive),
        target=target,
    )


def what_goes(plan: Plan, target: Target) -> str:
    """For whoever is asked whether to send it."""
    queues = ", ".join(sorted(plan.queues))
    summary = (
        f"{plan.redrive_id}: {output.number(plan.letters, 'letter')} to {queues} of vhost {target.vhost!r}. What became"
        f" of them is known until {_moment(plan.as_of_ms)}: what was sent since, by another plan for one, goes again."
    )
    if not plan.moved:
        return summary
    return (
        f"{summary} A move, of {counted(plan.moved)}: they become letters of {target.vhost!r} in their records and in"
        " its journal, under its policies; the journal of their own vhost hears nothing, so there they stay dead, and"
        " plans made of its archive choose them again. To reconcile, name an archive of this vhost's journal."
    )


def goes_twice(folder: Path, plan: Plan) -> str:
    """What to say where plans beside this one sent letters of it already, which the archive did not know of; or ""."""
    known = [
        f"{output.number(each.letters, 'letter')} of it went by {each.folder}, until {_moment(each.at_ms)}"
        for each in overlaps(folder, plan)
    ]
    if not known:
        return ""
    now = "run `dlx-router pipeline ingest`, and make a new plan in a new folder; without --yes you are asked"
    return f"{folder}: {'; '.join(known)}, and the archive did not know of that, so they would go twice; {now}"


def _moment(ms: int) -> str:
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC" if ms else "no moment"


def send(where: Where, folder: Path, way: Way, *, as_json: bool) -> int:
    """Go through the plan; a line for each chunk, or a document at the end."""

    def show(progress: Progress) -> None:
        if not as_json:
            output.say(f"chunk {progress.chunks_done} of {progress.chunks}: {progress.confirmed} confirmed")

    outcome = run(where.session(reads=False), folder, way, on_chunk=show)
    if as_json:
        output.as_json({**asdict(outcome), "done": outcome.is_done})
    else:
        failed = ", ".join(f"{count} {result}" for result, count in sorted(outcome.failed.items()))
        output.say(
            f"{outcome.confirmed} of {outcome.letters} confirmed"
            + (f"; {failed}; run it again to go on" if failed else "")
        )
    return output.OK if outcome.is_done else output.FINDINGS


def reconcile(where: Where, folder: Path, *, as_json: bool) -> int:
    """What the journal knows of the plan's letters; 1 where some are untold."""
    spark = where.session()
    events = where.events(spark)
    counts: dict[str, Any] = reconciled(spark, events, folder, as_of_ms=where.as_of_ms(spark, events))
    if as_json:
        output.as_json(counts)
    else:
        output.say(", ".join(f"{name} {count}" for name, count in counts.items()))
    return output.FINDINGS if counts["untold"] else output.OK
