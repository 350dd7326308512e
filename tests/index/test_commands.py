"""The commands on the API, as processes: what they print, write and ask, and how they end."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dlx_router.client import sync
from tests.index.conftest import Desk, as_json
from tests.journal.stream import events
from tests.support.command import run_command
from tests.support.eventually import eventually

pytestmark = pytest.mark.usefixtures("newest")  # what it shows is the same on every version

SECRET = "hunter2hunter2"


def run(desk: Desk | None, *argv: str, **env: str) -> subprocess.CompletedProcess[str]:
    """`dlx-router ARGV` against the desk's router."""
    plain = {key: value for key, value in os.environ.items() if not key.startswith("DLX_ROUTER_")}
    url = {} if desk is None else {"DLX_ROUTER_API_URL": f"http://127.0.0.1:{desk.router.port}"}
    return run_command([*argv], {**plain, **url, **env})


@pytest.fixture
def letter(desk: Desk) -> str:
    """A letter that was tried twice, with a body."""
    if not desk.amqp.exists("twice.told"):
        queue = desk.work("twice.told")
        desk.kill(queue, as_json(order=12), content_type="application/json", message_id="told-12")
        desk.amqp.fail(queue, within=20)
    return str(desk.letters(1, queue="twice.told", state="dead")[0]["id"])


@pytest.mark.slow
def test_letters_are_listed_searched_and_exported(desk: Desk, letter: str, tmp_path: Path) -> None:
    listed = run(desk, "letters", "list", "--queue", "twice.told")
    assert (listed.returncode, letter in listed.stdout, "DLQ.twice.told" in listed.stdout) == (0, True, True)
    letters = json.loads(run(desk, "letters", "search", "told-12", "--json").stdout)
    assert [row["id"] for row in letters] == [letter]
    assert run(desk, "letters", "search", "nobody-has-this").stdout == "No letters.\n"
    file = tmp_path / "letters.jsonl"
    done = run(desk, "letters", "export", "--queue", "twice.told", "--full", "-o", str(file))
    assert done.returncode == 0, done.stderr
    (whole,) = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    assert (whole["id"], len(whole["journey"])) == (letter, 3)
    assert run(desk, "letters", "list", "--since", "1h", "--queue", "twice.told", "--json").stdout != "[]\n"
    assert run(desk, "letters", "list", "--until", "2020-01-01T00:00Z", "--json").stdout == "[]\n"


def test_show_draws_the_journey(desk: Desk, letter: str) -> None:
    shown = run(desk, "letters", "show", letter).stdout
    drawn = [line for line in shown.splitlines() if line[:4] in {"  ↻ ", "  → ", "  ✝ "}]
    kinds = [line.split("  ")[2].partition(":")[0] for line in drawn]
    assert kinds[-3:] == ["retried", "released", "dead-lettered"]
    assert "delivery 1 in twice.told failed, rejected, waits 100ms" in shown
    assert "Deaths" in shown
    assert "attempts_spent" in shown


def test_a_redriven_letter_that_dies_again_is_the_same_letter_redriven_once(desk: Desk) -> None:
    queue = desk.work("redriven.once")
    desk.kill(queue, "again")
    (before,) = desk.letters(1, queue=queue, state="dead")
    assert before["redrives"] == 0
    asked = {"vhost": desk.vhost.name, "queue": f"DLQ.{queue}", "rate": 0}
    assert eventually(lambda: desk.ask("POST", "/tasks", json=asked)[0] == 201, 20)
    desk.amqp.fail(queue, within=20)
    eventually(lambda: desk.letters(1, queue=queue, state="dead")[0]["redrives"] == 1, 20)
    (after,) = desk.letters(1, queue=queue)
    assert (after["id"], after["attempts"]) == (before["id"], 1)
    shown = run(desk, "letters", "show", after["id"]).stdout
    assert "redriven: time 1 → dlx-router.return → redriven.once, by " in shown
    (whole,) = json.loads(run(desk, "letters", "show", after["id"], "--json").stdout)
    steps = [(step["kind"], step["redrives"]) for step in whole["journey"]]
    assert steps == [("dead_lettered", 0), ("redriven", 1), ("dead_lettered", 1)]


def test_a_task_says_how_many_of_its_letters_came_back(desk: Desk) -> None:
    queue = desk.work("came.back")
    desk.kill(queue, "one", "two", "three")
    desk.letters(3, queue=queue, state="dead")
    asked = {"vhost": desk.vhost.name, "queue": f"DLQ.{queue}", "rate": 0}
    created: list[Any] = []

    def started() -> bool:
        status, document = desk.ask("POST", "/tasks", json=asked)
        created.append(document)
        return status == 201

    eventually(started, 20)
    task = created[-1]
    vhost = ("--vhost", desk.vhost.name)

    def shown(came_back: int) -> Any:
        (row,) = (
            row for row in json.loads(run(desk, "redrive", "list", *vhost, "--json").stdout) if row["id"] == task["id"]
        )
        assert (row["state"], row["came_back"]) == ("done", came_back)
        return row

    eventually(lambda: shown(0), 20)  # what comes back while it still looks is one that stays
    desk.amqp.fail(queue, within=20)
    assert eventually(lambda: shown(1), 20)["meant"] == {"letters": 3, "is_exact": True}
    text = run(desk, "redrive", "show", task["id"], *vhost).stdout
    facts = dict(line.split(None, 1) for line in text.replace("came back", "came-back").splitlines()[1:])
    assert (facts["sent"], facts["stays"], facts["came-back"]) == ("3", "0", "1")


def test_deaths_that_consumers_declare_are_grouped_by_their_error(desk: Desk) -> None:
    queue = desk.work("stock.taken")
    for number, error in enumerate((ValueError("item 12 is 7 short"), ValueError("item 13 is 2 short"), KeyError("x"))):
        desk.amqp.publish(f"{number}", key=queue)
        desk.amqp.await_message(queue).requeue()
        delivered = next(desk.amqp.channel.consume(queue, inactivity_timeout=60))
        sync.dead(sync.Message(desk.amqp.channel, *delivered), "no-stock", error=error, retry="never")
        desk.amqp.channel.cancel()
    desk.letters(3, queue=queue, state="dead")
    groups = {(group["error_type"], group["message"]): group for group in desk.groups(queue)}
    assert {key: group["deaths"] for key, group in groups.items()} == {
        ("ValueError", "item <n> is <n> short"): 2,
        ("KeyError", "'x'"): 1,
    }
    assert {group["reason"] for group in groups.values()} == {"application:no-stock"}
    shown = run(desk, "groups", "--queue", queue).stdout
    assert ("ValueError" in shown, "KeyError" in shown) == (True, True)
    (group,) = [group["id"] for key, group in groups.items() if key[0] == "KeyError"]
    assert [row["group"] for row in desk.letters(1, group=group)] == [group]


def test_what_an_error_says_of_redacted_headers_is_told_by_nothing(desk: Desk) -> None:
    """Not by journal, index, API, export, dry run or log; and all of them mean the same group by the letter."""
    trace = f"shop.{SECRET}: no\n\tat shop.{SECRET}(Shop.java:7)\n"
    spring = {"x-exception-message": f"card {SECRET}", "x-exception-stacktrace": trace}
    ours = {"x-error-message": f"card {SECRET}", "x-error-type": "CardError"}
    queue = desk.work("hidden.cards")
    desk.kill(queue, "spring", headers=spring)
    desk.kill(queue, "ours", headers=ours)
    desk.kill(queue, "masstransit", headers={"MT-Fault-Message": f"card {SECRET}"})
    letters = desk.letters(3, queue=queue, state="dead")
    whole = [desk.get(f"/letters/{row['id']}") for row in letters]
    lines = [line for line in events(desk.vhost.amqp_url) if line.get("failed_queue") == queue]
    groups = desk.groups(queue)
    exported = run(desk, "letters", "export", "--from", f"DLQ.{queue}", "--vhost", desk.vhost.name)
    dry = run(desk, "redrive", "start", f"DLQ.{queue}", "--vhost", desk.vhost.name, "--dry-run", "--json")
    assert (exported.returncode, dry.returncode) == (0, 0), exported.stderr + dry.stderr
    kept = b"".join(file.read_bytes() for file in desk.index.parent.glob("index.sqlite*"))
    for output in (letters, whole, lines, groups, exported.stdout, dry.stdout, kept, desk.router.log.read_text()):
        assert SECRET not in str(output)
    hidden = ["MT-Fault-Message", "x-error-message", "x-exception-message", "x-exception-stacktrace"]
    assert [(line.get("error"), {*line["redacted"]} <= {*hidden}) for line in lines] == [(None, True)] * 3
    (group,) = {group["id"] for group in groups}
    assert {json.loads(line)["group"] for line in exported.stdout.splitlines()} == {group}
    assert [(group["group"], group["letters"]) for group in json.loads(dry.stdout)["groups"]] == [(group, 3)]


def test_groups_are_shown_and_changed_only_when_somebody_says_yes(desk: Desk, letter: str) -> None:
    (group,) = json.loads(run(desk, "groups", "--queue", "twice.told", "--json").stdout)
    refused = run(desk, "groups", "resolve", group["id"])
    assert (refused.returncode, "--yes" in refused.stderr) == (1, True)
    assert run(desk, "groups", "ignore", group["id"], "--until", "2d", "--note", "soon", "--yes").returncode == 0
    shown = json.loads(run(desk, "groups", "show", group["id"], "--json").stdout)
    assert (shown["state"], shown["note"], shown["until_ms"] > shown["last_ms"]) == ("ignored", "soon", True)
    assert run(desk, "groups", "open", group["id"], "-y").stdout == f"{group['id']}: open\n"


def test_a_letter_says_whether_sending_it_back_helped(desk: Desk) -> None:
    queue, lies = desk.work("sent.home"), desk.work("lies.there")
    desk.kill(queue, "one")
    desk.kill(lies, "other")
    desk.letters(1, queue=queue, state="dead")
    asked = {"vhost": desk.vhost.name, "queue": f"DLQ.{queue}", "rate": 0}
    assert eventually(lambda: desk.ask("POST", "/tasks", json=asked)[0] == 201, 20)
    (back,) = desk.letters(1, queue=queue, state="redriven")
    (dead,) = desk.letters(1, queue=lies, state="dead")
    assert (back["outcome"], dead["outcome"]) == ("open", "dead_lettered"), "an hour of silence is not over"
    assert "not known yet" in run(desk, "letters", "show", back["id"]).stdout
