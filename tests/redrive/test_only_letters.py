"""Tasks take letters only: what never died stays where it is, whatever queue it lies in, and whoever asks is told."""

import os
import pty
import subprocess
import sys
from typing import Any, Final

import pytest

from tests.journal import stream
from tests.redrive.conftest import Shop
from tests.redrive.test_commands import redrive
from tests.support.bulk import DEAD, INBOX, pour, record, take_many
from tests.support.client import Client
from tests.support.command import ROOT
from tests.support.eventually import consistently, eventually
from tests.support.plain_http import NO_TLS

KNOWN: Final = {"not_a_dead_letter_queue": True}
LIVING: Final = [f"living {number}" for number in range(10)]


def bodies(shop: Shop, queue: str, count: int) -> list[str]:
    """What lies in the queue, in its order; it is empty then."""
    return [message.body.decode() for message in take_many(shop.amqp, queue, count)]


def refused(shop: Shop, queue: str, **asked: Any) -> tuple[int, str]:
    """Status and text of the answer to a task that should not begin."""

    def led() -> tuple[int, str]:
        answer = shop.call("POST", "", {"vhost": shop.vhost.name, "queue": queue, "rate": 0, **asked})
        assert answer.status_code != 503, answer.text
        return answer.status_code, answer.text

    return eventually(led, 30, every=0.1)


@pytest.mark.parametrize("kind", ["discard", "park", "redrive"])
@pytest.mark.parametrize("type_", ["classic", "quorum"])
def test_living_messages_of_a_work_queue_stay_beside_its_consumer(shop: Shop, kind: str, type_: str) -> None:
    work = shop.amqp.queue(f"living.{kind}.{type_}", type_, dead_letter_exchange=INBOX)
    pour(shop.amqp, work, LIVING)
    with Client(shop.vhost.amqp_url) as consumer:
        consumer.channel.basic_qos(prefetch_count=1)
        got: list[bytes] = []
        consumer.channel.basic_consume(work, lambda _channel, _method, _props, body: got.append(body))
        consumer.connection.process_data_events(time_limit=0.2)
        status, text = refused(shop, work, kind=kind)
        assert (status, "no dead-letter queue" in text, "1 consumer" in text) == (409, True, True), text
    assert len(got) == 1
    eventually(lambda: shop.amqp.depth(work) == len(LIVING))
    assert bodies(shop, work, len(LIVING)) == LIVING


@pytest.mark.parametrize("kind", ["discard", "park", "redrive"])
def test_who_insists_takes_the_letters_of_a_work_queue_only(shop: Shop, kind: str) -> None:
    work = shop.amqp.queue(f"mixed.{kind}", dead_letter_exchange=INBOX)
    shop.amqp.queue("mixed.elsewhere")
    for body in LIVING[:5]:
        shop.amqp.publish(body, key=work)
    shop.amqp.publish("dead", key=work, headers=DEAD)
    for body in LIVING[5:]:
        shop.amqp.publish(body, key=work)
    to = {"to": {"routing_key": "mixed.elsewhere"}} if kind == "redrive" else {}
    done = shop.ends(shop.start(work, kind=kind, **KNOWN, **to))
    assert (done["counts"]["sent"], done["counts"]["not_letters"], done["why"]) == (1, 10, "not letters: 10, left")
    eventually(lambda: shop.amqp.depth(work) == len(LIVING))
    assert bodies(shop, work, len(LIVING)) == LIVING


@pytest.mark.parametrize("kind", ["discard", "park"])
def test_what_never_died_stays_in_a_dead_letter_queue_too(shop: Shop, kind: str) -> None:
    queue = shop.failed(f"laid.{kind}", ["a", "b"])
    shop.amqp.publish("laid by hand", key=queue)
    done = shop.ends(shop.start(queue, kind=kind))
    assert (done["counts"]["sent"], done["why"]) == (2, "not letters: 1, left")
    eventually(lambda: shop.amqp.depth(queue) == 1)
    assert bodies(shop, queue, 1) == ["laid by hand"]


@pytest.mark.usefixtures("newest")
def test_a_record_about_another_message_makes_no_letter(shop: Shop) -> None:
    queue = shop.failed("copied.a", ["a"])
    letter = shop.amqp.take(queue)
    headers = {name: value for name, value in letter.headers.items() if not name.startswith("x-")}
    shop.amqp.publish("a consumer copied the headers", key=queue, headers=headers)
    done = shop.ends(shop.start(queue, kind="discard"))
    assert (done["counts"]["sent"], done["why"]) == (0, "not letters: 1, left")
    assert bodies(shop, queue, 1) == ["a consumer copied the headers"]


@pytest.mark.usefixtures("newest")
def test_an_edit_of_a_living_message_changes_nothing(shop: Shop) -> None:
    work = shop.amqp.queue("edit.living", dead_letter_exchange=INBOX)
    shop.amqp.publish("living", key=work)
    url = f"http://127.0.0.1:{shop.router.port}/api/v1/edits"
    import httpx  # noqa: PLC0415 - the fixture's `call` is about tasks

    asked = {"vhost": shop.vhost.name, "queue": work, "id": "a" * 32, "text": "changed"}

    def answered() -> httpx.Response:
        answer = httpx.post(url, json=asked, timeout=60, trust_env=False, verify=NO_TLS)
        assert answer.status_code != 503, answer.text
        return answer

    answer = eventually(answered, 30, every=0.1)
    assert (answer.status_code, "no dead-letter queue" in answer.text) == (409, True), answer.text
    assert bodies(shop, work, 1) == ["living"]


@pytest.mark.usefixtures("newest")
def test_a_dry_run_and_an_export_do_not_hold_what_a_consumer_waits_for(shop: Shop) -> None:
    work = shop.amqp.queue("held.a", dead_letter_exchange=INBOX)
    assert shop.ends(shop.start(work, dry_run=True))["counts"]["sent"] == 0
    with Client(shop.vhost.amqp_url) as consumer:
        consumer.channel.basic_consume(work, lambda *_args: None)
        for asked in ({"dry_run": True}, {"kind": "export"}):
            status, text = refused(shop, work, **asked)
            assert (status, "has 1 consumer" in text) == (409, True), text


@pytest.mark.usefixtures("newest")
@pytest.mark.parametrize(
    "own", ["inbox", "inbox.fifo", "release", "delay.1000", "state", "journal", "retired", "quarantine", "observe"]
)
def test_no_task_takes_from_the_routers_own_queues(shop: Shop, own: str) -> None:
    status, text = refused(shop, f"dlx-router.{own}", kind="discard", **KNOWN)
    assert (status, "the router's own" in text) == (409, True), text


@pytest.mark.usefixtures("newest")
def test_a_cutoff_that_is_yet_to_come_does_not_mean_what_the_task_itself_sends(shop: Shop) -> None:
    queue = shop.failed("future.a", ["a"])
    name = shop.start(queue, cutoff_ms=9_000_000_000_000)
    task = shop.ends(name)
    assert task["spec"]["cutoff_ms"] <= task["changed_ms"]


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_the_command_refuses_with_yes_and_says_what_would_do_it(shop: Shop) -> None:
    work = shop.amqp.queue("cli.living", dead_letter_exchange=INBOX)
    pour(shop.amqp, work, LIVING)
    eventually(lambda: redrive(shop, "redrive", "list").returncode == 0, 20)
    for args in (("discard", work), ("redrive", "park", work), ("redrive", "start", work)):
        result = redrive(shop, *args, "--yes")
        assert (result.returncode, "--not-a-dead-letter-queue" in result.stderr) == (2, True), result.stderr
    done = redrive(shop, "discard", work, "--yes", "--not-a-dead-letter-queue")
    assert (done.returncode, "not letters: 10, left" in done.stdout) == (0, True), done.stderr
    eventually(lambda: shop.amqp.depth(work) == len(LIVING))
    for args in (("--filter", ""), ("--group", " "), ("--id", ""), ("--limit", "0"), ("--limit", "-1")):
        result = redrive(shop, "discard", work, "--yes", *args)
        assert result.returncode == 2, (args, result.stdout, result.stderr)
    assert bodies(shop, work, len(LIVING)) == LIVING


def typed(shop: Shop, answer: bytes, *args: str) -> tuple[int, str]:
    """Exit code and standard error of a command whose question a person answers."""
    ours, theirs = pty.openpty()
    url = {"DLX_ROUTER_API_URL": f"http://127.0.0.1:{shop.router.port}"}
    env = {key: value for key, value in os.environ.items() if not key.startswith("DLX_ROUTER_")} | url
    argv = [sys.executable, "-m", "dlx_router", *args, "--vhost", shop.vhost.name]
    os.write(ours, answer)
    try:
        done = subprocess.run(argv, cwd=ROOT, env=env, stdin=theirs, capture_output=True, text=True, check=False)
    finally:
        os.close(ours)
        os.close(theirs)
    return done.returncode, done.stderr


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_the_prompt_tells_what_lies_there_before_it_asks(shop: Shop) -> None:
    work = shop.amqp.queue("prompt.a", dead_letter_exchange=INBOX)
    for number in range(4):
        shop.amqp.publish(f"{number}", key=work, headers=DEAD if number == 3 else None)
    eventually(lambda: redrive(shop, "redrive", "list").returncode == 0, 20)
    code, printed = typed(shop, b"n\n", "discard", work)
    assert (code, "4 messages" in printed, "0 consumers" in printed) == (1, True, True), printed
    assert "is no dead-letter queue" in printed, printed
    code, printed = typed(shop, b"y\n", "discard", work)
    assert code == 0, printed
    eventually(lambda: shop.amqp.depth(work) == 3)
    queue = shop.failed("prompt.b", ["a"])
    code, printed = typed(shop, b"n\n", "discard", queue)
    assert (code, "1 message" in printed, "WARNING" in printed) == (1, True, False), printed


@pytest.mark.usefixtures("newest")
def test_a_target_of_a_policy_is_a_dead_letter_queue(shop: Shop) -> None:
    added = """
  - name: elsewhere
    queue: aimed
    priority: 5
    definition: {max-delivery-attempts: 1, dead-letter-exchange: aimed.dlx, dead-letter-routing-key: aimed.dead}
  - name: by name
    queue: named
    priority: 5
    definition: {max-delivery-attempts: 1, dead-letter-exchange: "", dead-letter-routing-key: named.dead}
"""
    shop.amqp.exchange("aimed.dlx")
    shop.amqp.bind(shop.amqp.queue("aimed.dead"), "aimed.dlx", "aimed.dead")
    shop.amqp.bind(shop.amqp.queue("aimed.other"), "aimed.dlx", "other")
    shop.amqp.queue("named.dead")
    policies = shop.router.policies / "policies.yaml"
    before = policies.read_text(encoding="utf-8")
    policies.write_text(before + added, encoding="utf-8")
    try:
        for queue in ("aimed.dead", "named.dead"):
            eventually(lambda queue=queue: shop.ends(shop.start(queue, kind="discard")), 20)  # type: ignore[misc]  # a default binds it
        assert refused(shop, "aimed.other", kind="discard")[0] == 409
    finally:
        policies.write_text(before, encoding="utf-8")


@pytest.mark.usefixtures("newest")
def test_what_a_task_left_is_not_told_as_taken(shop: Shop) -> None:
    work = shop.amqp.queue("told.a", dead_letter_exchange=INBOX)
    shop.amqp.publish("living", key=work)
    name = shop.start(work, kind="discard", **KNOWN)
    shop.ends(name)
    assert consistently(lambda: shop.amqp.depth(work) == 1, for_s=0.5)
    assert not [event for event in stream.events(shop.vhost.amqp_url) if event.get("redrive_id") == name]
    queue = shop.failed("told.b", ["a"])
    assert record(shop.amqp.await_message(queue))["state"] == "dead"
