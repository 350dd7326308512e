"""redrive, discard, doctor and support-bundle as people type them."""

import json
import os
import subprocess
import zipfile
from pathlib import Path
from typing import Any, Final

import pytest

from tests.redrive.conftest import Shop
from tests.support.command import run_command
from tests.support.eventually import eventually

SECRET: Final = "hunter2hunter2hunter2"


def command(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    others = {key: value for key, value in os.environ.items() if not key.startswith("DLX_ROUTER_")}
    named = {f"DLX_ROUTER_{key}": value for key, value in env.items()}
    return run_command([*args], {**others, **named})


def redrive(shop: Shop, *args: str) -> subprocess.CompletedProcess[str]:
    return command(*args, "--vhost", shop.vhost.name, API_URL=f"http://127.0.0.1:{shop.router.port}")


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_a_redrive_from_dry_run_to_done(shop: Shop) -> None:
    queue = shop.failed("cli.a", ["a", "b", "c"])
    eventually(lambda: redrive(shop, "redrive", "list").returncode == 0, 20)
    dry = redrive(shop, "redrive", "start", queue, "--dry-run", "--filter", "attempts == 1", "--json")
    assert (dry.returncode, json.loads(dry.stdout)["groups"][0]["letters"]) == (0, 3), dry.stderr
    asked = redrive(shop, "redrive", "start", queue, "--filter", "attempts == 1")
    assert (asked.returncode, "--yes" in asked.stderr, "attempts == 1" in asked.stderr) == (1, True, True)
    done = redrive(shop, "redrive", "start", queue, "--limit", "2", "--rate", "0", "--yes")
    assert (done.returncode, "done" in done.stdout) == (0, True), done.stderr
    assert (shop.amqp.depth(queue), shop.amqp.depth("cli.a")) == (1, 2)
    gone = redrive(shop, "discard", queue, "--yes", "--json")
    assert json.loads(gone.stdout)["counts"]["sent"] == 1
    assert shop.amqp.depth(queue) == 0
    listed = json.loads(redrive(shop, "redrive", "list", "--json").stdout)
    assert [task["spec"]["kind"] for task in listed] == ["discard", "redrive", "redrive"]
    assert redrive(shop, "redrive", "show", listed[0]["id"]).returncode == 0


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_what_is_refused_says_why(shop: Shop) -> None:
    eventually(lambda: redrive(shop, "redrive", "list").returncode == 0, 20)
    for args, words in (
        (("redrive", "start", "nothing", "--yes"), "does not exist"),
        (("redrive", "start", "dlx-router.parking", "--yes", "--filter", "1 +"), "filter, line 1, column"),
        (("redrive", "start", "dlx-router.parking", "--yes", "--rate", "-1"), "rate"),
        (("redrive", "start", "DLQ.\udc80", "--yes"), "body.queue: Input should be a valid string"),
        (("redrive", "show", "nothing"), "no task"),
        (("redrive", "start", "dlx-router.parking", "--yes", "--group", "nope"), "no ID of a group"),
    ):
        done = redrive(shop, *args)
        assert (done.returncode, words in done.stderr) == (2, True), done.stderr
    nobody = command("redrive", "list", API_URL="http://127.0.0.1:1")
    assert (nobody.returncode, "is the router running" in nobody.stderr) == (2, True)


@pytest.mark.usefixtures("newest")
def test_what_matches_nothing_is_no_success(shop: Shop) -> None:
    queue = shop.failed("cli.none", ["a"])
    for narrowed in (("--group", f"g1-{0:016x}"), ("--filter", "reason == 'rejectd'"), ("--id", "0" * 32)):
        for args in (("redrive", "start", queue, "--dry-run"), ("discard", queue, "--yes")):
            done = redrive(shop, *args, *narrowed)
            assert (done.returncode, "No message in queue" in done.stderr) == (1, True), done.stdout + done.stderr
        exported = redrive(shop, "letters", "export", "--from", queue, *narrowed)
        assert (exported.returncode, exported.stdout) == (1, ""), exported.stderr
    assert shop.amqp.depth(queue) == 1


def doctor(shop: Shop, policies: Path, **env: str) -> tuple[int, list[Any]]:
    urls = {"AMQP_URL": shop.vhost.amqp_url, "MANAGEMENT_URL": shop.vhost.management_url}
    done = command("doctor", "--json", "--policies", str(policies), **{**urls, **env})
    return done.returncode, json.loads(done.stdout)


@pytest.mark.slow
def test_doctor_finds_what_costs_letters_and_says_what_mends_it(shop: Shop, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("version: 1\npolicies:\n  - {name: a, queue: lonely, definition: {}}\n")
    shop.amqp.queue("lonely", "quorum")
    shop.amqp.queue("hop", "quorum", dead_letter_exchange="dlx-router.inbox")
    code, findings = doctor(shop, tmp_path)
    by_check = {(finding["check"], finding["level"]): finding for finding in findings}
    assert code == 1
    assert "'lonely'" in by_check["dead-lettering", "warning"]["found"]
    assert any(
        "'hop'" in finding["found"] and "at-least-once" in finding["fix"]
        for finding in findings
        if finding["check"] == "hop"
    )
    for check in ("connection", "version", "clock", "own queues", "policies"):
        assert (check, "ok") in by_check, findings
    assert all(finding["fix"] for finding in findings if finding["level"] != "ok")
    shop.vhost.policy("harm", ".*", {"max-length": 5})
    _, findings = doctor(shop, tmp_path)
    shop.vhost.api.delete(f"policies/{shop.vhost.quoted}/harm")
    assert any(finding["level"] == "error" and "max-length" in finding["found"] for finding in findings)


@pytest.mark.parametrize(
    ("env", "code", "check"),
    [({"AMQP_URL": f"amqp://u:{SECRET}@127.0.0.1:1/"}, 2, "connection"), ({"JOURNAL": "off"}, 1, "journal")],
)
@pytest.mark.usefixtures("newest")
def test_doctor_says_what_is_missing(shop: Shop, tmp_path: Path, env: dict[str, str], code: int, check: str) -> None:
    result = doctor(shop, tmp_path, **env)
    assert (
        result[0],
        check in {finding["check"] for finding in result[1] if finding["level"] in {"warning", "error"}},
    ) == (
        code,
        True,
    )
    assert SECRET not in json.dumps(result[1])


@pytest.mark.usefixtures("newest")
def test_the_bundle_holds_no_secret_and_no_message_data(shop: Shop, tmp_path: Path) -> None:
    shop.failed("bundle.a", ["the body of a letter"])
    policies = tmp_path / "policies"
    policies.mkdir()
    (policies / "a.yaml").write_text("version: 1\npolicies: []\n")
    key, to = tmp_path / "key", tmp_path / "bundle.zip"
    key.write_text(SECRET)
    url = shop.vhost.amqp_url
    env = {"AMQP_URL": url, "MANAGEMENT_URL": shop.vhost.management_url, "PROVENANCE_KEY_FILE": str(key)}
    env |= {"API_URL": f"http://127.0.0.1:{shop.router.port}", "API_TOKEN": SECRET}
    made = command("support-bundle", "--to", str(to), "--policies", str(policies), **env)
    assert made.returncode == 0, made.stderr
    with zipfile.ZipFile(to) as archive:
        names = set(archive.namelist())
        text = "".join(archive.read(name).decode() for name in names)
    assert names == {"about.json", "settings.json", "doctor.json", "readyz.json", "metrics.txt"}
    assert '"ready": true' in text
    assert "dlx_router_settled_total" in text
    for secret in (SECRET, url, "guest:guest", "the body of a letter"):
        assert secret not in text
