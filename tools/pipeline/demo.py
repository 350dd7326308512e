"""A week of letters whose causes are known, through the whole pipeline, and every number checked against the truth.

    python -m tools.pipeline.demo [--letters 8000] [--seed 7] [--out build/pipeline]

A private broker and a router are started; the week (tools/pipeline/week.py) is written into the journal; then: ingest,
report, backtest of a better policy, redrive of a group, ingest, reconciliation. Ends by itself, with 1 where a number
is wrong.
"""

import argparse
import os
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from dlx_router.cli.pipeline.run_analysis import known_until, way_of
from dlx_router.core.names import Names
from dlx_router.spark.archive.ingest import Ingest, ingest
from dlx_router.spark.archive.reading import read
from dlx_router.spark.backtest.replay import files_of
from dlx_router.spark.backtest.run import Backtest, backtest
from dlx_router.spark.options import Options
from dlx_router.spark.publishing import CONFIRMED, Publishing
from dlx_router.spark.redrive.letters import Sender, batch_of
from dlx_router.spark.redrive.plan import Choice, freeze
from dlx_router.spark.redrive.reconcile import reconcile
from dlx_router.spark.redrive.run import run
from dlx_router.spark.report.by_spark import gather
from dlx_router.spark.report.data import ReportData
from dlx_router.spark.report.page import page
from dlx_router.spark.session import build_session
from tests.support.client import Client
from tests.support.router import Router
from tests.support.vhost import Vhost
from tools import brokers
from tools.pipeline.week import BETTER, NOW, Truth, week

ROOT: Final = Path(__file__).parents[2]
QUEUE: Final = "payments.charge"
POISON_DEATHS: Final = 8  # as poison_messages has it, where a redrive did not help
REDRIVEN: Final = "gateway-timeouts"
ENOUGH: Final = 4000  # letters; of fewer the intervals are too wide for a verdict on each policy
_VHOST: Final = "pipeline-demo"  # also of the events: a letter that goes back remembers where it is from
_URL: Final = "DLX_ROUTER_DEMO_AMQP_URL"
_BATCH: Final = 100
_NAMES: Final = Names()


@dataclass
class Checks:
    """Numbers against the truth; each is told as it is checked."""

    wrong: list[str] = field(default_factory=list)

    def equal(self, what: str, answer: object, truth: object) -> None:
        """Say and remember whether they are the same."""
        good = answer == truth
        print(f"  {'✓' if good else '✗'} {what}: {answer}" + ("" if good else f", in truth {truth}"))
        if not good:
            self.wrong.append(what)

    def within(self, what: str, low: float, high: float, truth: float) -> None:
        """An estimate's interval holds the truth."""
        good = low <= truth <= high
        print(f"  {'✓' if good else '✗'} {what}: {low:.0f} to {high:.0f}, in truth {truth:.0f}")
        if not good:
            self.wrong.append(what)


@dataclass(frozen=True)
class Scene:
    """Where everything is."""

    spark: SparkSession
    archive: Path
    out: Path
    key_file: Path
    vhost: Vhost
    truth: Truth
    checks: Checks

    @property
    def events(self) -> DataFrame:
        """The archive as it is now."""
        return read(self.spark, self.archive)

    def ingest(self) -> int:
        """Archive what is new."""
        result = ingest(None, Ingest(self.archive, f"env:{_URL}", _NAMES.journal))
        print(f"  {result.events} events in {result.segments} segments, {result.bad} that cannot be read")
        return result.events


def main(argv: Sequence[str] | None = None) -> int:
    """0 where every number is right."""
    parser = argparse.ArgumentParser(description="The pipeline on a week of letters whose causes are known.")
    parser.add_argument("--letters", type=int, default=8000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "pipeline", help="where the report is left")
    given = parser.parse_args(argv)
    began = time.monotonic()
    print(f"A week with {given.letters} letters (seed {given.seed}) …", flush=True)
    truth, checks = week(given.letters, given.seed, vhost=_VHOST), Checks()
    given.out.mkdir(parents=True, exist_ok=True)
    with brokers.chosen() as broker, tempfile.TemporaryDirectory(prefix="dlx-router-demo-") as folder:
        vhost = Vhost.make(broker, _VHOST)
        try:
            _demo(Path(folder), given.out, vhost, truth, checks, given)
        finally:
            vhost.close()
    print(
        f"{time.monotonic() - began:.0f} s. " + (f"Wrong: {'; '.join(checks.wrong)}" if checks.wrong else "All right.")
    )
    return 1 if checks.wrong else 0


def _demo(folder: Path, out: Path, vhost: Vhost, truth: Truth, checks: Checks, given: argparse.Namespace) -> None:
    key_file = folder / "key"
    key_file.write_text(secrets.token_hex(32), encoding="utf-8")
    os.environ[_URL] = vhost.amqp_url
    with Client(vhost.amqp_url) as client:
        client.queue(QUEUE, "quorum", dead_letter_exchange=_NAMES.inbox)
        env = {"PROVENANCE_KEY_FILE": str(key_file), "JOURNAL": "required"}
        router = Router(
            amqp_url=vhost.amqp_url, management_url=vhost.management_url, policies=NOW, log=folder / "log", env=env
        )
        router.start(within=60)
        spark = build_session("dlx-router demo", conf={"spark.sql.shuffle.partitions": "2"})
        spark.sparkContext.setLogLevel("ERROR")
        scene = Scene(spark, folder / "archive", out, key_file, vhost, truth, checks)
        try:
            _journal(scene)
            print("\ningest")
            checks.equal("events in the archive", scene.ingest(), len(truth.lines))
            _report(scene)
            _backtest(scene, week(given.letters, given.seed, BETTER))
            _redrive(scene, client, folder / "plan")
        finally:
            spark.stop()
            router.close()


def _journal(scene: Scene) -> None:
    """The week, written as a router writes it: batches of events, confirmed."""
    lines, sender = list(scene.truth.journal()), Sender("", _NAMES, b"")
    options = Options.read({"connection": f"env:{_URL}", "streams": _NAMES.journal})
    with Publishing(options.address()) as out:
        batches = (batch_of(lines[at : at + _BATCH], sender) for at in range(0, len(lines), _BATCH))
        results = [result for _, result in out.publish(batches)]
    scene.checks.equal("batches confirmed by the journal", results.count(CONFIRMED), len(results))


def _report(scene: Scene) -> None:
    print("\nreport")
    events = scene.events.cache()
    data = gather(events, title="A week of dead letters", as_of_ms=known_until(events, scene.archive))
    events.unpersist()
    (scene.out / "report.html").write_text(page(data), encoding="utf-8")
    print(f"  {scene.out / 'report.html'}")
    _letters(scene, data)
    _groups(scene, data)
    verdicts = {queue.queue: part.verdict for queue in data.advice for part in queue.parts}
    known = {
        "orders.new": "never", "media.resize": "never", "stock.reserve": "keep", "payments.charge": "keep",
        "search.index": "keep",
    }  # fmt: skip
    if len(scene.truth.fates) < ENOUGH:
        print(f"  verdicts on the policies are not compared: fewer than {ENOUGH} letters are too few for each of them")
        return
    scene.checks.equal("verdicts on the policies", dict(sorted(verdicts.items())), dict(sorted(known.items())))


def _letters(scene: Scene, data: ReportData) -> None:
    fates = scene.truth.fates
    by_retry = sum(fate.recovered_ms is not None for fate in fates)
    scene.checks.equal("letters", data.total("letters"), len(fates))
    scene.checks.equal("recovered by a retry", data.total("recovered") - data.total("by_redrive"), by_retry)
    scene.checks.equal("recovered by a redrive", data.total("by_redrive"), sum(fate.saved for fate in fates))
    lost = sum(fate.dead and not fate.saved for fate in fates)
    scene.checks.equal("not recovered", data.total("lost"), lost)
    poison = {row["message"] for row in data.poison}
    pictures = {fate.body for fate in scene.truth.of("heic-pictures")}
    again = [fate for fate in fates if fate.redriven and not fate.saved and fate.deaths >= POISON_DEATHS]
    scene.checks.equal("poison messages", len(poison), len(pictures) + len(again))


def _groups(scene: Scene, data: ReportData) -> None:
    truth: dict[tuple[str, str], int] = {}
    for fate in scene.truth.fates:
        truth[fate.queue, fate.reason] = truth.get((fate.queue, fate.reason), 0) + 1
    counts = {(row["failed_queue"], row["reason"]): row["letters"] for row in data.groups}
    scene.checks.equal("groups", len(data.groups), len(truth))
    scene.checks.equal("letters of each group", sorted(counts.values()), sorted(truth.values()))


def _backtest(scene: Scene, better: Truth) -> None:
    print("\nbacktest: the policies as they were")
    as_of = known_until(scene.events, scene.archive)
    same = backtest(scene.events, files_of(NOW), as_of_ms=as_of)
    scene.checks.equal("differences", same.differing_arrivals, 0)
    print("\nbacktest: what the report advises")
    answer: Backtest = backtest(scene.events, files_of(BETTER), as_of_ms=as_of)
    changes: dict[str, int] = {}
    for row in answer.changes:
        changes[row["failed_queue"]] = changes.get(row["failed_queue"], 0) + row["letters"]
    invalid, stock = scene.truth.of("missing-vat"), scene.truth.of("stock-outage")
    scene.checks.equal("letters that differ", changes, {"orders.new": len(invalid), "stock.reserve": len(stock)})
    scene.checks.equal("orders not tried in vain", answer.cut, len(invalid))
    spared = sum(fate.deliveries - 1 for fate in invalid)
    scene.checks.equal("retries that would not have been made", answer.retries_spared, spared)
    for estimate in answer.estimates:
        saved = sum(fate.recovered_ms is not None for fate in better.of("stock-outage"))
        scene.checks.within(
            f"estimate: {estimate.failed_queue} recovered by retries, 95 %", estimate.low, estimate.high, saved
        )


def _redrive(scene: Scene, client: Client, folder: Path) -> None:
    print("\nredrive: the letters of a group that are dead")
    dead = sorted(fate.id for fate in scene.truth.of(REDRIVEN) if fate.dead)
    events = scene.events
    group = events.where((f.col("failed_queue") == QUEUE) & (f.col("kind") == "dead_lettered")).first()
    chosen = Choice(group=group.fingerprint if group is not None else "", queue=QUEUE)
    name = f"r-demo-{datetime.now(UTC):%H%M%S}"
    plan = freeze(events, chosen, folder, redrive_id=name, as_of_ms=known_until(events, scene.archive))
    scene.checks.equal("letters in the plan", plan.letters, len(dead))
    result = run(scene.spark, folder, way_of(f"env:{_URL}", str(scene.key_file), 0))
    scene.checks.equal("confirmed", result.confirmed, len(dead))
    got = _consumed(client, len(dead))
    scene.checks.equal("letters that came, by id", sorted(got) == dead, True)  # noqa: FBT003 - answer and truth
    print("\ningest, and the journal's word")
    scene.ingest()
    counts = reconcile(scene.spark, scene.events, folder, as_of_ms=known_until(scene.events, scene.archive))
    scene.checks.equal("told by the journal", counts["told"], len(dead))
    again = scene.events.where((f.col("kind") == "retried") & (f.col("router_id") != "router-1"))
    rows = again.select("id", "redrives", "attempts").collect()
    scene.checks.equal("one died again: redrives, attempts", [(row.redrives, row.attempts) for row in rows], [(1, 1)])
    shutil.rmtree(folder)


def _consumed(client: Client, count: int) -> list[str]:
    """The ids of the letters that the consumer was given; it rejects the first, which the router then retries."""
    client.fail(QUEUE, 60)
    got: list[Any] = [client.take(QUEUE, 60) for _ in range(count)]
    return [message.headers["dlx-router-id"] for message in got]


if __name__ == "__main__":
    sys.exit(main())
