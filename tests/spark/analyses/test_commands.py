"""The commands as people type them, on an archive of a real stream; and what is said of bad input."""

import json
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from dlx_router.cli.main import main
from dlx_router.config.policy_files.loader import load_policies
from dlx_router.core.names import Names
from dlx_router.spark.archive.ingest import Ingest, ingest
from dlx_router.spark.options import Options
from dlx_router.spark.publishing import CONFIRMED, Publishing
from dlx_router.spark.redrive.letters import Sender, batch_of
from tests.support.client import Client
from tests.support.vhost import Vhost
from tools.pipeline import week

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800, method="thread")]
SINCE: Final = ("--since", "2026-10-01")


@pytest.fixture
def archive(spark: SparkSession, vhost: Vhost, amqp: Client, tmp_path: Path) -> Path:
    """A small week that went through a journal."""
    (tmp_path / "url").write_text(vhost.amqp_url)
    amqp.queue("dlx-router.journal", "stream")
    amqp.exchange("dlx-router.return")
    amqp.queue("mail.send")
    where = f"file:{tmp_path}/url"
    options = Options.read({"connection": where, "streams": "dlx-router.journal"})
    lines = list(week.week(200, 3).journal())
    with Publishing(options.address()) as out:
        batches = (batch_of(lines[at : at + 50], Sender("", Names(), b"")) for at in range(0, len(lines), 50))
        assert {result for _, result in out.publish(batches)} == {CONFIRMED}
    done = ingest(spark, Ingest(tmp_path / "archive", where, "dlx-router.journal"))
    assert (done.events, done.bad) == (len(lines), 0)
    return tmp_path / "archive"


def typed(*args: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["pipeline", *args])
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_report_backtest_and_redrive(  # noqa: PLR0917 - a scene needs many fixtures
    spark: SparkSession,
    archive: Path,
    amqp: Client,
    vhost: Vhost,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = ("--archive", str(archive))
    page, before = tmp_path / "page.html", {path: path.stat().st_mtime_ns for path in archive.rglob("*")}
    assert typed("report", *here, *SINCE, "--policies", str(week.NOW), "--out", str(page)) == 0
    assert "200 letters, 7 groups" in capsys.readouterr().out
    assert "stock.reserve" in page.read_text()
    assert typed("backtest", *here, *SINCE, "--policies", str(week.BETTER), "--json") == 1
    answer = json.loads(capsys.readouterr().out)
    assert {row["failed_queue"]: row["letters"] for row in answer["changes"] if row["letters"]} == {
        "orders.new": 40, "stock.reserve": 40,
    }  # fmt: skip
    out = tmp_path / "advised.yaml"
    assert typed("advise", *here, "--policies", str(week.NOW), *SINCE, "--out", str(out)) == 0
    assert "40 of 40 letters failed first within one hour" in capsys.readouterr().out
    assert not load_policies(out).policies.policies  # a file that can be loaded, and changes nothing
    assert {path: path.stat().st_mtime_ns for path in archive.rglob("*")} == before  # they only read
    plan = str(tmp_path / "plan")
    header = "headers['tenant'] = 'a' or body_values is null"
    assert typed("redrive", plan, *here, "--queue", "mail.send", "--where", header, "--dry-run") == 0
    printed = capsys.readouterr()
    assert "20 letters would be sent back" in printed.out
    assert "headers: not known of 20 letters; body_values: not known of 20 letters" in printed.err
    assert not Path(plan).exists()
    (tmp_path / "key").write_text("k" * 32)
    monkeypatch.setenv("DLX_ROUTER_PROVENANCE_KEY_FILE", str(tmp_path / "key"))
    send = ("redrive", plan, *here, "--connection", f"file:{tmp_path}/url", "--yes", "--rate", "0")
    assert typed(*send, "--queue", "mail.send") == 2
    assert f"not of vhost '{vhost.name}', where the connection leads: 20 (20 of '/')" in capsys.readouterr().err
    assert (Path(plan).exists(), amqp.depth("mail.send")) == (False, 0)
    assert typed(*send, "--queue", "mail.send", "--to-vhost", vhost.name) == 0
    assert "20 of 20 confirmed" in capsys.readouterr().out
    assert typed(*send, "--queue", "mail.send") == 2
    assert "frozen" in capsys.readouterr().err
    assert typed(*send) == 0
    assert "20 of 20 confirmed" in capsys.readouterr().out
    assert amqp.depth("mail.send") == 20
    assert typed("redrive", plan, *here, "--reconcile", "--json") == 1
    assert json.loads(capsys.readouterr().out)["untold"] == 20  # the archive has not come so far
    ingest(spark, Ingest(archive, f"file:{tmp_path}/url", "dlx-router.journal"))
    until = ("--until", "2026-10-13")
    again = ("redrive", str(tmp_path / "again"), *here, "--queue", "mail.send", *until, "--dry-run")
    assert typed(*again, "--to-vhost", vhost.name) == 0
    assert "0 letters would be sent back (of 0)" in capsys.readouterr().out  # they were dead then, and are sent since


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (("report", "--archive", "no/such/folder"), 2, "no/such/folder"),
        (("report", "--since", "tuesday"), 2, "--since 'tuesday'"),
        (("report", "--within", "soon"), 2, "--within 'soon'"),
        (("backtest", "--policies", "no/such/folder"), 2, "cannot be read"),
        (("redrive", "plan"), 2, "PROVENANCE_KEY_FILE: not set"),
        (("advise",), 2, "cannot be read"),
        (("advise", "--policies", str(week.NOW)), 2, "no event yet"),
        (("advise", "--policies", str(week.NOW), "--archive", "no/such/folder"), 2, "no/such/folder"),
        (("advise", "--policies", str(week.NOW), "--out", "no/such/file"), 2, "--out no/such/file: no such folder"),
    ],
)
def test_what_cannot_be_is_said_in_a_line(  # noqa: PLR0917 - a scene needs many fixtures
    args: tuple[str, ...], code: int, said: str, spark: SparkSession, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "archive").mkdir()
    assert typed(*args) == code
    printed = capsys.readouterr()
    assert said in printed.err + printed.out
    assert "Traceback" not in printed.err
    assert printed.err.count("\n") <= 2
