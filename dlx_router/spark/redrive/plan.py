"""The plan: which letters go back, frozen in chunks before the first is sent. A folder that any engine can read.

PLAN/plan.json             what was asked for, how many letters, how they were chosen
PLAN/chunks/chunk=N/*.parquet   the letters: key and last event as JSON
PLAN/ledger/N.json         what came of chunk N; see `run`
"""

import json
import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.dataset as ds
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Row, Window
from pyspark.sql import functions as f

from dlx_router.core.recovered import LEASES
from dlx_router.spark import schemas
from dlx_router.spark.analyses.letters import KEY, of_letters
from dlx_router.spark.archive.files import settle
from dlx_router.spark.conditions import partial, unseen
from dlx_router.spark.options import OptionError
from dlx_router.spark.redrive.letters import ROUTER_ID

CHUNK: Final = 5000
_SHOWN: Final = 5
FINAL: Final = ("dead_lettered", "parked", "retired")
CHUNK_SCHEMA: Final = "vhost string, id string, failed_queue string, ts_ms long, event string"


class PlanError(OptionError):
    """The plan cannot be made or used; says which and what to do."""


@dataclass(frozen=True, slots=True)
class Choice:
    """What is asked for; None: any. `where`: a condition in SQL on the columns of the archive, of the last event.

    `since_ms`, `until_ms`: when that last event was. What came later must be among the events too, to be known.
    """

    queue: str | None = None
    reason: str | None = None
    group: str | None = None
    where: str | None = None
    limit: int | None = None
    since_ms: int | None = None
    until_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """The vhost that a connection leads to. `is_move`: letters of other vhosts become letters of this one."""

    vhost: str
    is_move: bool = False

    def require(self, letters: Mapping[str, int]) -> None:
        """PlanError where there are letters (by vhost) that are not of this vhost."""
        if others := {vhost: count for vhost, count in letters.items() if vhost != self.vhost}:
            raise PlanError(
                f"letters that are not of vhost {self.vhost!r}, where the connection leads: {counted(others)}; their"
                " records would be foreign data there. Connect to their own vhost, leave them out by --where "
                f'"vhost = {self.vhost!r}", or move them by a new plan with --to-vhost {self.vhost!r}'
            )


@dataclass(frozen=True, slots=True)
class Plan:
    """A frozen plan. `unusable` letters were chosen but are not in it: the archive lacks their bodies.

    `moved`: letters by the vhost that they were of, where the plan makes them letters of another.
    """

    redrive_id: str
    choice: dict[str, Any]
    letters: int
    chunks: int
    unusable: int
    queues: dict[str, int]
    as_of_ms: int
    moved: dict[str, int] = field(default_factory=dict)

    @classmethod
    def load(cls, folder: Path) -> "Plan":
        """PlanError where there is none, or it is not whole."""
        try:
            return cls(**json.loads((folder / "plan.json").read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise PlanError(
                f"{folder}: no plan that can be read ({error}); make one with --plan into a new folder"
            ) from error


def counted(vhosts: Mapping[str, int]) -> str:
    """Letters by vhost, for people: those with the most."""
    most = sorted(vhosts.items(), key=lambda item: (-item[1], item[0]))
    shown = ", ".join(f"{count} of {vhost!r}" for vhost, count in most[:_SHOWN])
    more = f" and of {len(most) - _SHOWN} other vhosts" if len(most) > _SHOWN else ""
    return f"{sum(vhosts.values())} ({shown}{more})"


def vhosts_of(folder: Path) -> dict[str, int]:
    """Letters of a plan by vhost, as they will be sent; plans of before are asked too. PlanError: cannot be read."""
    chunks = folder / "chunks"
    try:
        counts = ds.dataset(str(chunks), format="parquet").to_table(["vhost"])["vhost"].value_counts()
    except (OSError, pa.ArrowException) as error:
        reason = str(error).partition("\n")[0]
        raise PlanError(f"{chunks}: cannot be read ({reason}); restore it, or make a plan in a new folder") from None
    return {row["values"]: row["counts"] for row in counts.to_pylist()}


def chosen(events: DataFrame, choice: Choice, *, is_move: bool = False) -> DataFrame:
    """The last event of every letter that fits and is dead-lettered, parked or retired. PlanError on bad SQL.

    `is_move`: a letter is one in whatever vhosts it was, so that what was moved before is where it went.
    """
    key = [name for name in KEY if name != "vhost"] if is_move else [*KEY]
    standing = _standing(of_letters(events).where(~f.col("kind").isin("released", *LEASES)))
    standing = standing.where(f.col("failed_queue").isNotNull())  # a router tells it always; else there is no way back
    own = Window.partitionBy(*key).orderBy(f.desc("ts_ms"), f.desc("redrives"), f.desc("attempts"), f.desc("event_id"))
    last = (
        standing.withColumn("_n", f.row_number().over(own)).where("_n = 1").drop("_n").where(f.col("kind").isin(*FINAL))
    )
    for name, value in (("failed_queue", choice.queue), ("reason", choice.reason), ("fingerprint", choice.group)):
        last = last.where(f.col(name) == value) if value is not None else last
    last = last.where(f.col("ts_ms") >= choice.since_ms) if choice.since_ms is not None else last
    last = last.where(f.col("ts_ms") < choice.until_ms) if choice.until_ms is not None else last
    if choice.where is not None:
        try:
            last = last.where(choice.where)
            last.schema  # noqa: B018 - Spark Connect judges a condition only when it is asked
        except AnalysisException as error:
            reason = str(error).partition("\n")[0]
            raise PlanError(f"--where {choice.where!r}: {reason}; it is SQL on the archive's columns") from None
    return last


def _standing(events: DataFrame) -> DataFrame:
    """Without what bulk redrives told and took back: those letters lie where they lay."""
    back = (f.col("router_id") == ROUTER_ID) & (f.col("kind") == "held")
    one_try = [*KEY, "redrive_id", "tries"]
    return events.where(~back).join(events.where(back).select(*one_try).distinct(), one_try, "left_anti")


def blind(events: DataFrame, choice: Choice, *, is_move: bool = False) -> dict[str, int]:
    """Column of the condition → letters that fit otherwise, but their policies read nothing of it. See `conditions`."""
    asked = partial(choice.where)
    if not asked:
        return {}
    others = chosen(events, replace(choice, where=None), is_move=is_move)
    counts = others.agg(*(f.count_if(f.col(name).isNull()).alias(name) for name in asked)).collect()[0]
    return {name: counts[name] for name in asked}


def freeze(  # noqa: PLR0913 - what is written down
    events: DataFrame,
    choice: Choice,
    folder: Path,
    *,
    redrive_id: str,
    as_of_ms: int,
    chunk: int = CHUNK,
    target: Target | None = None,
) -> Plan:
    """Choose, and write it down. The folder must be new or empty. A plan that is not whole has no plan.json.

    PlanError, and nothing is left, where letters are not of the `target`'s vhost and no move is meant.
    """
    if folder.exists() and any(folder.iterdir()):
        raise PlanError(f"{folder}: not empty; a plan is frozen once, name a new folder (or run the one that is there)")
    last = chosen(events, choice, is_move=target is not None and target.is_move)
    usable = (f.col("body_mode") == "inline") & f.col("redacted").isNull()
    kept = last.where(usable)
    kept = kept.orderBy("ts_ms", "id").limit(choice.limit) if choice.limit is not None else kept
    by = _chunked(kept, folder / "chunks", chunk, target)
    queues, vhosts = _summed(by, "failed_queue"), _summed(by, "was")
    letters = sum(queues.values())
    asked = {name: value for name, value in asdict(choice).items() if value is not None}
    unusable = last.where(~f.coalesce(usable, f.lit(False))).count()  # noqa: FBT003 - lit takes no name
    plan = Plan(redrive_id, asked, letters, -(-letters // chunk), unusable, queues, as_of_ms)
    try:
        _require(plan, choice, vhosts, target)
    except PlanError:
        shutil.rmtree(folder)
        raise
    if target is not None:
        plan = replace(plan, moved={vhost: count for vhost, count in vhosts.items() if vhost != target.vhost})
    (folder / "ledger").mkdir()
    for written in (folder / "chunks").rglob("*"):
        settle(written)
    replace_text(folder / "plan.json", json.dumps(asdict(plan), indent=1))
    return plan


def _chunked(kept: DataFrame, folder: Path, chunk: int, target: Target | None) -> list[Row]:
    """Write the letters, with the vhost that they `was` of; how many of which queue and vhost they are."""
    kept = kept.withColumn("was", f.col("vhost"))
    if target is not None and target.is_move:
        kept = kept.withColumn("vhost", f.lit(target.vhost))
    number = f.row_number().over(Window.orderBy("ts_ms", "id", "failed_queue", "vhost")) - 1
    rows = kept.select(*KEY, "was", "ts_ms", f.to_json(f.struct(*schemas.EVENT.names)).alias("event"))
    rows = rows.withColumn("chunk", f.floor(number / chunk))
    rows.repartition("chunk").write.partitionBy("chunk").parquet(str(folder))
    written = kept.sparkSession.read.schema(f"{CHUNK_SCHEMA}, was string, chunk long").parquet(str(folder))
    return written.groupBy("failed_queue", "was").count().collect()


def _require(plan: Plan, choice: Choice, vhosts: Mapping[str, int], target: Target | None) -> None:
    """PlanError where nothing would be sent, or what may not be."""
    if not plan.letters:
        raise PlanError(
            f"no letter to send back: {plan.unusable} fit, but the archive does not hold their bodies"
            if plan.unusable
            else "; ".join(filter(None, ("no letter to send back: none at its end fits", unseen(choice.where))))
        )
    if target is not None and not target.is_move:
        target.require(vhosts)


def _summed(rows: list[Row], name: str) -> dict[str, int]:
    """Counted letters by this column."""
    totals: Counter[str] = Counter()
    for row in rows:
        totals[row[name]] += row["count"]
    return dict(sorted(totals.items()))


def replace_text(path: Path, text: str) -> None:
    """The file has the old text or the new one, never a part, and keeps it if the power goes."""
    aside = path.with_name(f".{path.name}.new")
    aside.write_text(text + "\n", encoding="utf-8")
    settle(aside)
    aside.replace(path)
    settle(path.parent)
