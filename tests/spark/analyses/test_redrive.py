"""Bulk redrive: what a consumer gets, what the ledger says, and what happens when the broker does not play along."""

import base64
import json
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from zlib import crc32

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from dlx_router.core.names import Names
from dlx_router.core.remembered import decode
from dlx_router.service.vhost.signing_key import from_file
from dlx_router.spark.amqp import StreamError
from dlx_router.spark.archive.files import ArchiveBusyError
from dlx_router.spark.options import Options
from dlx_router.spark.redrive.letters import Sender, Spoilt, copy_of, prepared
from dlx_router.spark.redrive.plan import Choice, Plan, PlanError, Target, freeze, vhosts_of
from dlx_router.spark.redrive.reconcile import reconcile
from dlx_router.spark.redrive.run import Progress, _alone, _results, progress, run
from dlx_router.spark.redrive.way import Way
from tests.spark.analyses.test_backtest import read_journal
from tests.spark.rows import AS_OF_MS, archived
from tests.support.client import Client
from tests.support.vhost import Vhost
from tools.pipeline import week

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]
QUEUE = "orders.new"
OTHER = "another vhost"
URL = "DLX_ROUTER_TEST_REDRIVE_URL"


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    path.write_text("k" * 40)
    return path


@pytest.fixture
def way(vhost: Vhost, amqp: Client, key_file: Path, tmp_path: Path) -> Way:
    """A broker with what a router would have declared, and where it is."""
    (tmp_path / "url").write_text(vhost.amqp_url)
    amqp.exchange("dlx-router.return")
    amqp.queue("dlx-router.journal", "stream")
    options = Options.read({"connection": f"file:{tmp_path}/url", "streams": "dlx-router.journal", "timeout": "20"})
    return Way(options, str(key_file), tasks=1)  # one chunk after the other


@pytest.fixture(scope="module")
def frozen(events: DataFrame, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plan of 240 letters in four chunks, moved to a vhost OTHER; a test works on a copy."""
    folder, target = tmp_path_factory.mktemp("plan") / "p", Target(OTHER, is_move=True)
    freeze(events, Choice(queue=QUEUE), folder, redrive_id="r-1", as_of_ms=AS_OF_MS, chunk=60, target=target)
    return folder


@pytest.fixture
def plan(frozen: Path, vhost: Vhost, tmp_path: Path) -> Path:
    """As if OTHER had been the test's vhost."""
    copy = Path(shutil.copytree(frozen, tmp_path / "plan"))
    for file in copy.glob("chunks/*/*.parquet"):
        rows = pq.ParquetFile(file).read().to_pylist()
        for row in rows:
            assert row["vhost"] == OTHER
            row["vhost"], row["event"] = vhost.name, json.dumps(json.loads(row["event"]) | {"vhost": vhost.name})
        pq.write_table(pa.Table.from_pylist(rows), file)
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    return copy


def dead(truth: week.Truth) -> list[str]:
    return sorted(fate.id for fate in truth.fates if fate.queue == QUEUE and fate.dead)


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_a_killed_run_goes_on_and_each_letter_comes_once(  # noqa: PLR0917 - a scene needs many fixtures
    spark: SparkSession, plan: Path, way: Way, amqp: Client, truth: week.Truth, key_file: Path, events: DataFrame,
    vhost: Vhost, tmp_path: Path,
) -> None:  # fmt: skip
    amqp.queue(QUEUE)

    def killed(_: Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(spark, plan, way, on_chunk=killed)
    assert (progress(plan).chunks_done, progress(plan).confirmed) == (1, 60)
    done = run(spark, plan, way)
    assert (done.is_done, done.confirmed, done.failed) == (True, len(dead(truth)), {})
    assert run(spark, plan, way).confirmed == len(dead(truth))  # and once more sends nothing
    got = [amqp.take(QUEUE) for _ in range(len(dead(truth)))]
    assert amqp.get(QUEUE) is None
    assert sorted(letter.headers["dlx-router-id"] for letter in got) == dead(truth)
    bodies = {fate.id: fate.body for fate in truth.fates}
    for letter in got:
        assert letter.body == bodies[letter.headers["dlx-router-id"]]
        assert letter.routing_key == "new"  # as at its first delivery
        assert letter.properties.message_id.startswith("missing-vat-")
        assert [(death["queue"], death["count"]) for death in letter.deaths] == [(QUEUE, 6)]
        record = decode(letter.headers["dlx-router"].encode(), from_file(key_file))
        assert (record.redrive_id, record.redrives, record.attempts, record.state) == ("r-1", 1, 0, "retrying")
        assert record.is_about(crc32=crc32(letter.body), size=len(letter.body), message_id=letter.properties.message_id)
    journal = archived(spark, read_journal(vhost, 240), tmp_path / "told.ndjson")
    after = events.unionByName(journal)
    counts = reconcile(spark, after, plan, as_of_ms=AS_OF_MS)
    assert counts == {"planned": 240, "told": 240, "untold": 0, "recovered": 0, "open": 240, "dead": 0}
    later = max(row.ts_ms for row in journal.select("ts_ms").collect()) + 3_600_000
    assert reconcile(spark, after, plan, as_of_ms=later)["recovered"] == 240


@pytest.mark.slow
def test_chunks_that_are_under_way_when_a_run_is_ended_are_in_the_ledger(
    spark: SparkSession, plan: Path, way: Way, amqp: Client, truth: week.Truth
) -> None:
    amqp.queue(QUEUE)
    beside = replace(way, tasks=2)

    def killed(_: Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(spark, plan, beside, on_chunk=killed)
    assert (progress(plan).chunks_done, progress(plan).confirmed) == (2, 120)
    assert run(spark, plan, beside).is_done
    got = [amqp.take(QUEUE).headers["dlx-router-id"] for _ in range(amqp.depth(QUEUE))]
    assert sorted(got) == dead(truth)


def test_a_plan_is_sent_by_one_process_at_a_time(spark: SparkSession, plan: Path, way: Way) -> None:
    with _alone(plan), pytest.raises(ArchiveBusyError, match=r"is already running: process \d+"):
        run(spark, plan, way)
    assert not [*(plan / "ledger").glob("*.json")]


def test_before_it_is_sent_the_journal_has_nothing_of_a_plan(
    spark: SparkSession, plan: Path, events: DataFrame
) -> None:
    assert reconcile(spark, events, plan, as_of_ms=AS_OF_MS)["untold"] == 240


def test_a_full_queue_keeps_what_it_has_and_the_rest_goes_again(
    spark: SparkSession, plan: Path, way: Way, amqp: Client, truth: week.Truth
) -> None:
    amqp.queue(QUEUE, max_length=100, overflow="reject-publish")
    done = run(spark, plan, way)
    assert not done.is_done
    refused = done.failed["nacked"]
    assert done.confirmed + refused == 240
    got = [amqp.take(QUEUE) for _ in range(amqp.depth(QUEUE))]
    for _ in range(3):  # it holds a hundred and a few each time
        run(spark, plan, way)
        got += [amqp.take(QUEUE) for _ in range(amqp.depth(QUEUE))]
    assert progress(plan).is_done
    assert Counter(letter.headers["dlx-router-id"] for letter in got) == Counter(dead(truth))


def test_a_missing_queue_is_said_before_anything_is_sent(spark: SparkSession, plan: Path, way: Way) -> None:
    with pytest.raises(StreamError, match=r"orders\.new"):
        run(spark, plan, way)
    assert progress(plan).chunks_done == 0


def test_a_plan_is_frozen_once(events: DataFrame, plan: Path) -> None:
    with pytest.raises(PlanError, match="not empty"):
        freeze(events, Choice(), plan, redrive_id="r-2", as_of_ms=AS_OF_MS)


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        (Choice(where="nonsense > 3"), "nonsense"),
        (Choice(where="attempts >>> 'x"), "--where"),
        (Choice(queue="no.such.queue"), r"no letter to send back: none at its end fits$"),
        (Choice(where="headers['tenant'] = '\"acme\"'"), "fits; --where asks for headers: the archive has only those"),
    ],
)
def test_a_choice_that_cannot_be_is_said(events: DataFrame, tmp_path: Path, choice: Choice, said: str) -> None:
    with pytest.raises(PlanError, match=said):
        freeze(events, choice, tmp_path / "new", redrive_id="r-3", as_of_ms=AS_OF_MS)
    assert not (tmp_path / "new").exists()


@pytest.mark.slow
def test_letters_of_another_vhost_are_refused_by_count_and_name_and_nothing_is_left(
    events: DataFrame, tmp_path: Path
) -> None:
    choice, why = Choice(queue=QUEUE), r"not of vhost 'b', where the connection leads: 240 \(240 of '/'\).*--to-vhost"
    with pytest.raises(PlanError, match=why):
        freeze(events, choice, tmp_path / "b", redrive_id="r-5", as_of_ms=AS_OF_MS, target=Target("b"))
    assert not (tmp_path / "b").exists()
    made = freeze(events, choice, tmp_path / "own", redrive_id="r-5", as_of_ms=AS_OF_MS, target=Target("/"))
    assert (made.letters, made.moved) == (240, {})


def test_a_plan_of_before_is_not_sent_into_another_vhost(
    spark: SparkSession, events: DataFrame, way: Way, amqp: Client, tmp_path: Path
) -> None:
    """It was frozen when nobody looked: `moved` is not in it."""
    amqp.queue(QUEUE)
    freeze(events, Choice(queue=QUEUE), tmp_path / "old", redrive_id="r-6", as_of_ms=AS_OF_MS)
    note = tmp_path / "old/plan.json"
    document = json.loads(note.read_text())
    del document["moved"]
    note.write_text(json.dumps(document))
    with pytest.raises(PlanError, match=r"240 of '/'"):
        run(spark, tmp_path / "old", way)
    assert (amqp.depth(QUEUE), progress(tmp_path / "old").chunks_done) == (0, 0)


def no_chunks(plan: Path) -> None:
    shutil.rmtree(plan / "chunks")


def empty_chunks(plan: Path) -> None:
    for entry in (plan / "chunks").iterdir():
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()


def torn_chunk(plan: Path) -> None:
    next(plan.glob("chunks/*/*.parquet")).write_text("torn")


@pytest.mark.parametrize("damage", [no_chunks, empty_chunks, torn_chunk])
def test_a_plan_whose_chunks_are_lost_is_said(plan: Path, damage: Callable[[Path], None]) -> None:
    damage(plan)
    with pytest.raises(PlanError, match=r"chunks: cannot be read"):
        vhosts_of(plan)


def test_a_move_says_what_changes_and_a_letter_that_was_moved_is_where_it_went(
    events: DataFrame, frozen: Path, tmp_path: Path
) -> None:
    assert Plan.load(frozen).moved == {"/": 240}
    assert vhosts_of(frozen) == {OTHER: 240}
    (letter,) = events.where(f"failed_queue = '{QUEUE}' and kind = 'dead_lettered'").select("id").take(1)
    deaths = events.where(f"id = '{letter.id}' and kind = 'dead_lettered'")
    sent = deaths.withColumn("vhost", f.lit(OTHER)).withColumn("kind", f.lit("redriven"))
    sent = sent.withColumn("ts_ms", f.col("ts_ms") + 1).withColumn("event_id", f.lit("moved"))
    both, target = deaths.unionByName(sent), Target(OTHER, is_move=True)
    with pytest.raises(PlanError, match="none at its end fits"):
        freeze(both, Choice(), tmp_path / "again", redrive_id="r-7", as_of_ms=AS_OF_MS, target=target)


def test_a_choice_by_group_and_condition_takes_the_oldest(events: DataFrame, truth: week.Truth, tmp_path: Path) -> None:
    group = events.where("failed_queue = 'mail.send'").select("fingerprint").distinct().collect()[0][0]
    choice = Choice(group=group, where="props.app_id = 'crm'", limit=20)
    made = freeze(events, choice, tmp_path / "mail", redrive_id="r-4", as_of_ms=AS_OF_MS)
    assert (made.letters, made.queues, made.unusable) == (20, {"mail.send": 20}, 0)
    rows = events.sparkSession.read.parquet(str(tmp_path / "mail" / "chunks")).select("id").collect()
    oldest = sorted(truth.of("mail-too-late"), key=lambda fate: fate.first_death_ms)[:20]
    assert {row.id for row in rows} == {fate.id for fate in oldest}


def event(lines: list[dict[str, Any]], **changed: Any) -> dict[str, Any]:
    original = next(
        candidate for candidate in lines if candidate["kind"] == "dead_lettered" and candidate["failed_queue"] == QUEUE
    )
    return {**original, "first": None, **changed}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"body_mode": "hash", "body": None}, "does not hold the body"),
        ({"body_mode": "head"}, "does not hold the body"),
        ({"redacted": ["/card"]}, "taken out"),
        ({"body": base64.b64encode(b"another").decode()}, "size or checksum"),
    ],
)
def test_a_letter_that_is_not_whole_is_not_sent(
    lines: list[dict[str, Any]], changed: dict[str, Any], said: str
) -> None:
    with pytest.raises(Spoilt, match=said):
        copy_of(event(lines, **changed), Sender("r-1", Names(), b"k" * 32))


def without(name: str) -> Callable[[dict[str, Any]], None]:
    """As where the archive's column is null."""
    return lambda event: event.pop(name)


def changed(**values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda event: event.update(values)


def in_props(**values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda event: event["props"].update(values)


def in_death(**values: Any) -> Callable[[dict[str, Any]], None]:
    return lambda event: event["deaths"][0].update(values)


FORGED: dict[str, Callable[[dict[str, Any]], Any]] = {
    "no arrival": without("arrival"),
    "no revision": without("revision"),
    "no digest": without("digest"),
    "no redrives": without("redrives"),
    "no deaths": without("deaths"),
    "unknown arrival": changed(arrival="by air"),
    "a body that is no base64": changed(body="abc"),
    "death without exchange": lambda event: event["deaths"][0].pop("exchange"),
    "death that is null": lambda event: event["deaths"].append(None),
    "time before 1970": in_death(time_ms=-5000),
    "count null": in_death(count=None),
    "routing key null": in_death(routing_keys=[None]),
    "priority": in_props(priority=300),
    "delivery mode": in_props(delivery_mode=999),
    "timestamp too large": in_props(timestamp_s=10**20 - 1),
    "timestamp before 1970": in_props(timestamp_s=-1),
    "message id too long": in_props(message_id="m" * 256),
    "headers over a frame": in_death(routing_keys=["k" * 250] * 1000),
}


@pytest.mark.parametrize("forge", FORGED.values(), ids=[*FORGED])
def test_an_event_that_no_router_wrote_is_a_spoilt_letter_before_anything_is_told(
    lines: list[dict[str, Any]], forge: Callable[[dict[str, Any]], Any]
) -> None:
    sender, forged = Sender("r-1", Names(), b"k" * 32), json.loads(json.dumps(event(lines)))
    prepared(forged, sender, AS_OF_MS)
    forge(forged)
    with pytest.raises(Spoilt, match=r"^no router wrote such an event: "):
        prepared(forged, sender, AS_OF_MS)


def test_a_name_that_no_queue_has_is_a_spoilt_letter(lines: list[dict[str, Any]]) -> None:
    with pytest.raises(Spoilt, match="longer than a queue's name can be"):
        prepared(event(lines, failed_queue="q" * 300), Sender("r-1", Names(), b"k" * 32), AS_OF_MS)


@pytest.mark.usefixtures("newest")
def test_letters_that_no_router_wrote_keep_no_others_from_being_sent_once(
    lines: list[dict[str, Any]], way: Way, amqp: Client, vhost: Vhost
) -> None:
    """Before, either nothing of the chunk was ever sent, or what came before the forged letter in every try again."""
    amqp.queue(QUEUE)
    amqp.bind(QUEUE, Names().return_, Names().return_key(QUEUE))
    dead = [row for row in lines if row["kind"] == "dead_lettered" and row["failed_queue"] == QUEUE][: len(FORGED) + 3]
    events = [{**json.loads(json.dumps(row)), "first": None, "vhost": vhost.name} for row in dead]
    for forged, forge in zip(events[1:], FORGED.values(), strict=False):
        forge(forged)
    results = [*_results(events, way, Sender("r-1", Names(), b"k" * 32))]
    spoilt = [row for row in results if row[-1].startswith("spoilt: no router wrote such an event: ")]
    assert (len(spoilt), Counter(row[-1] for row in results)["confirmed"]) == (len(FORGED), 3)
    assert amqp.depth(QUEUE) == 3
    assert Counter(json.loads(line)["kind"] for line in read_journal(vhost, 3).splitlines()) == {"redriven": 3}


def test_the_ledger_says_which_letter_of_a_plan_was_spoilt_and_the_others_go_once(
    spark: SparkSession, plan: Path, way: Way, amqp: Client
) -> None:
    amqp.queue(QUEUE)
    file = next(plan.glob("chunks/chunk=0/*.parquet"))
    rows = pq.ParquetFile(file).read().to_pylist()
    forged = json.loads(rows[30]["event"])
    forged["props"]["priority"] = 300
    rows[30]["event"] = json.dumps(forged)
    pq.write_table(pa.Table.from_pylist(rows), file)
    for _ in range(2):
        done = run(spark, plan, way)
        assert (done.confirmed, [*done.failed.values()]) == (239, [1])
        assert next(iter(done.failed)).startswith("spoilt: no router wrote such an event")
        assert amqp.depth(QUEUE) == 239


def test_letters_that_nobody_signed_are_left_out_where_the_condition_says_so(events: DataFrame, tmp_path: Path) -> None:
    """As docs/pipeline-analyses.md says."""
    dead = events.where(f"kind = 'dead_lettered' and failed_queue = '{QUEUE}'").limit(3)
    forged = dead.limit(1).withColumn("signature", f.lit("none")).withColumn("id", f.lit("f" * 32))
    choice, both = Choice(where="signature = 'ok'"), dead.unionByName(forged)
    assert freeze(both, choice, tmp_path / "p", redrive_id="r-9", as_of_ms=AS_OF_MS).letters == 3


def test_an_event_without_a_failed_queue_is_in_no_plan(events: DataFrame, tmp_path: Path) -> None:
    """Anybody may write one; its queue could not be sorted among the others."""
    dead = events.where(f"kind = 'dead_lettered' and failed_queue = '{QUEUE}'").limit(3)
    forged = dead.limit(1).withColumn("failed_queue", f.lit(None).cast("string"))
    made = freeze(dead.unionByName(forged), Choice(), tmp_path / "p", redrive_id="r-8", as_of_ms=AS_OF_MS)
    assert (made.letters, made.queues) == (3, {QUEUE: 3})


@pytest.mark.parametrize("queue", ["dlx-router.state", "dlx-router.\nstate", "\rdlx-router.journal", "orders.\nnew"])
def test_no_letter_goes_back_to_what_the_broker_reads_as_another_queue_or_the_routers(
    lines: list[dict[str, Any]], queue: str
) -> None:
    with pytest.raises(Spoilt, match=r"which (is the router's own|the broker would read as)"):
        copy_of(event(lines, failed_queue=queue), Sender("r-1", Names(), b"k" * 32))


@pytest.mark.usefixtures("newest")
def test_a_forged_event_binds_no_queue_of_the_router(
    spark: SparkSession, plan: Path, way: Way, amqp: Client, vhost: Vhost
) -> None:
    """Whoever may write to the journal may invent a letter of any queue; the other letters go back."""
    amqp.queue(QUEUE)
    amqp.queue("dlx-router.state", "quorum")
    document = json.loads((plan / "plan.json").read_text())
    document["queues"] |= {"dlx-router.state": 1, "\rdlx-router.state": 1}
    (plan / "plan.json").write_text(json.dumps(document))
    assert run(spark, plan, way).is_done
    bound = vhost.get(f"exchanges/{vhost.quoted}/dlx-router.return/bindings/source")
    assert {binding["destination"] for binding in bound} == {QUEUE}
    assert amqp.depth("dlx-router.state") == 0


def test_a_queue_that_goes_away_in_the_middle_costs_nothing(
    spark: SparkSession, plan: Path, way: Way, amqp: Client
) -> None:
    amqp.queue(QUEUE)

    def gone(so_far: Progress) -> None:
        if so_far.chunks_done == 1:
            amqp.channel.queue_delete(QUEUE)

    done = run(spark, plan, way, on_chunk=gone)
    assert (done.is_done, done.confirmed, done.failed) == (False, 60, {"returned": 180})
    amqp.queue(QUEUE)
    assert run(spark, plan, way).is_done
    assert amqp.depth(QUEUE) == 180
