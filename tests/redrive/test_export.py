"""Export through the outside: a file of whole letters, and a queue that nobody touched."""

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from tests.journal import stream
from tests.redrive.conftest import Shop
from tests.redrive.test_commands import redrive
from tests.support.bulk import DEAD, pour, take_many
from tests.support.client import Client
from tests.support.eventually import eventually
from tests.support.plain_http import NO_TLS
from tests.support.policies import POLICY
from tests.support.router import Router
from tests.support.vhost import Vhost

Start = Callable[..., Router]
SECRET: Final = "hunter2hunter2"
LARGE: Final = 200_000  # bytes a body; a hundred of them are more than the router keeps for who asks


def read(file: Path) -> list[Any]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def bodies(letters: list[Any]) -> list[str]:
    return [base64.b64decode(letter["body"]).decode() for letter in letters]


def page(shop: Shop, task: str, after: int) -> httpx.Response:
    """One answer of /letters."""
    url = f"http://127.0.0.1:{shop.router.port}/api/v1/tasks/{task}/letters"
    return httpx.get(url, params={"vhost": shop.vhost.name, "after": after}, timeout=60, trust_env=False, verify=NO_TLS)


def large(shop: Shop, queue: str, number: int) -> str:
    """A dead-letter queue with so many large letters."""
    name = shop.failed(queue, ["0"])
    shop.amqp.take(name)
    pour(shop.amqp, name, [f"{at} ".ljust(LARGE, ".") for at in range(number)], DEAD)
    eventually(lambda: shop.amqp.depth(name) == number)
    return name


@pytest.mark.usefixtures("newest")
def test_a_file_of_whole_letters_and_the_queue_as_it_was(shop: Shop, tmp_path: Path) -> None:
    texts, file = [f"letter {number}" for number in range(30)], tmp_path / "letters.jsonl"
    queue = shop.failed("export.a", texts)
    eventually(lambda: redrive(shop, "redrive", "list").returncode == 0, 20)
    done = redrive(shop, "letters", "export", "--from", queue, "-o", str(file))
    assert (done.returncode, "30 letters" in done.stderr) == (0, True), done.stderr
    letters = read(file)
    assert bodies(letters) == texts
    for number, letter in enumerate(letters):
        assert (letter["failed_queue"], letter["reason"], letter["state"]) == ("export.a", "rejected", "dead")
        assert (letter["properties"]["message_id"], letter["headers"]["number"]) == (f"m{number}", number)
        assert (letter["deaths"][0]["queue"], letter["deaths"][0]["routing_keys"]) == ("export.a", ["export.a"])
        assert not [name for name in letter["headers"] if name.startswith("dlx-router")]
    rest = take_many(shop.amqp, queue, 30)
    assert [message.body.decode() for message in rest] == texts
    assert {message.headers.get("x-delivery-count", 0) for message in rest} <= {0, 1}  # before 4.3 each look counts


@pytest.mark.usefixtures("newest")
def test_a_filter_ids_and_a_limit(shop: Shop) -> None:
    queue = shop.failed("export.b", [str(number) for number in range(20)])
    eventually(lambda: redrive(shop, "redrive", "list").returncode == 0, 20)
    out = redrive(shop, "letters", "export", "--from", queue, "--filter", 'body("") >= 15', "--limit", "3").stdout
    some = [json.loads(line) for line in out.splitlines()]
    assert bodies(some) == ["15", "16", "17"]
    asked = [part for letter in (some[2], some[0]) for part in ("--id", letter["id"])]
    out = redrive(shop, "letters", "export", "--from", queue, *asked).stdout
    assert bodies([json.loads(line) for line in out.splitlines()]) == ["15", "17"]
    dry = shop.ends(shop.start(queue, kind="export", dry_run=True))
    assert (dry["counts"]["sent"], dry["groups"][0]["letters"], shop.amqp.depth(queue)) == (20, 20, 20)
    tasks = [event for event in stream.events(shop.vhost.amqp_url) if event.get("action") == "task.done"]
    kinds = [(task["actor"], task["details"]["task"]["spec"]["kind"]) for task in tasks]
    assert kinds.count(("local", "export")) >= 3  # who took letters out is in the journal


@pytest.mark.usefixtures("newest")
def test_more_than_the_router_keeps_waits_until_somebody_asks(shop: Shop, tmp_path: Path) -> None:
    queue, file = large(shop, "export.c", 100), tmp_path / "letters.jsonl"
    task = shop.start(queue, kind="export")
    first = eventually(lambda: page(shop, task, 0).json()["letters"], 20)
    again = page(shop, task, 0).json()["letters"]  # an answer that was lost is asked for again
    assert again[: len(first)] == first, "there may be more by now"
    assert shop.task(task)["counts"]["sent"] < 100
    refused = page(shop, task, 5000)
    assert (refused.status_code, "after 5000" in refused.text) == (409, True)
    assert shop.call("POST", f"/{task}/pause").status_code == 409
    assert shop.call("POST", f"/{task}/cancel").json()["state"] == "cancelled"
    eventually(lambda: shop.amqp.depth(queue) == 100)
    assert shop.call("POST", f"/{task}/resume").status_code == 409
    done = redrive(shop, "letters", "export", "--from", queue, "-o", str(file))
    assert done.returncode == 0, done.stderr
    letters = read(file)
    assert [int(text.split()[0]) for text in bodies(letters)] == [*range(100)]
    assert (shop.amqp.depth(queue), [*tmp_path.iterdir()]) == (100, [file])


@pytest.mark.usefixtures("newest")
def test_what_a_policy_redacts_leaves_by_no_export(vhost: Vhost, amqp: Client, start_router: Start) -> None:
    rule = 'journal: {body: none, redact: ["X-Token", "/card/number"]}'
    shop = Shop(vhost, amqp, start_router(POLICY.replace("{max", f"{{{rule}, max")))
    queue = amqp.queue("work", dead_letter_exchange="dlx-router.inbox")
    paid = json.dumps({"card": {"number": SECRET}, "order": 7})
    for body in (paid, f"no JSON {SECRET}"):
        amqp.publish(body, key=queue, headers={"x-token": SECRET, "tenant": "blue"})
        amqp.fail(queue)
    eventually(lambda: amqp.exists("DLQ.work") and amqp.depth("DLQ.work") == 2, 20)
    eventually(lambda: redrive(shop, "redrive", "list").returncode == 0, 20)
    done = redrive(shop, "letters", "export", "--from", "DLQ.work")
    first, other = map(json.loads, done.stdout.splitlines())
    assert SECRET not in done.stdout
    assert json.loads(base64.b64decode(first["body"])) == {"card": {"number": "***"}, "order": 7}
    assert (first["redacted"], first["headers"]["tenant"]) == (["/card/number", "x-token"], "blue")
    assert ("body" in other, other["redacted"]) == (False, ["/card/number", "x-token"])


@pytest.mark.usefixtures("newest")
def test_a_router_that_is_killed_leaves_all_in_the_queue_and_says_so(
    vhost: Vhost, amqp: Client, start_router: Start
) -> None:
    shop = Shop(vhost, amqp, start_router(POLICY))
    queue = large(shop, "work", 60)
    task = shop.start(queue, kind="export")
    eventually(lambda: page(shop, task, 0).json()["letters"], 20)
    shop.router.kill()
    shop.router.start()
    eventually(lambda: shop.call("GET", f"/{task}").status_code == 200, 20, every=0.1)
    stopped = shop.ends(task, "stopped")
    assert "export again" in stopped["why"]
    gone = page(shop, task, 0)
    assert (gone.status_code, "export again" in gone.text) == (409, True)
    assert len({message.body for message in take_many(amqp, queue, 60)}) == 60


@pytest.mark.usefixtures("newest")
def test_what_cannot_be_exported_says_why_and_leaves_files_alone(shop: Shop, tmp_path: Path) -> None:
    file = tmp_path / "letters.jsonl"
    file.write_text("of yesterday\n")
    eventually(lambda: redrive(shop, "redrive", "list").returncode == 0, 20)
    for args, words in (
        (("--from", "nothing"), "does not exist"),
        (("--from", "dlx-router.inbox"), "the router's own"),
        (("--from", "dlx-router.parking", "--filter", "1 +"), "filter, line 1, column"),
        (("--from", "dlx-router.parking", "--state", "dead"), "not with --state"),
        (("--filter", "1 == 1"), "--from"),
        (("--from", "dlx-router.parking", "-o", "/nowhere/x"), "/nowhere/x"),
    ):  # fmt: skip
        done = redrive(shop, "letters", "export", "-o", str(file), *args)
        assert (done.returncode, words in " ".join(done.stderr.split())) == (2, True), done.stderr
    assert file.read_text() == "of yesterday\n"
