"""Edit and redrive of one letter: what its consumer gets, what is locked, what the journal keeps."""

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
from tests.support.bulk import record
from tests.support.client import Client
from tests.support.eventually import eventually
from tests.support.plain_http import NO_TLS
from tests.support.policies import POLICY
from tests.support.router import Router
from tests.support.vhost import Vhost

pytestmark = pytest.mark.usefixtures("newest")
Start = Callable[..., Router]
BODY: Final = b'{"amount": 10}'


def edit(shop: Shop, queue: str, letter: str, **asked: Any) -> httpx.Response:
    url = f"http://127.0.0.1:{shop.router.port}/api/v1/edits"
    body = {"vhost": shop.vhost.name, "queue": queue, "id": letter, **asked}

    def answered() -> httpx.Response:
        answer = httpx.post(url, json=body, timeout=60, trust_env=False, verify=NO_TLS)
        assert answer.status_code not in (429, 503), answer.text
        return answer

    return eventually(answered, 20, every=0.1)


def ids_in(shop: Shop, queue: str, number: int) -> list[str]:
    ids = [record(shop.amqp.await_message(queue))["id"] for _ in range(number)]
    shop.amqp.channel.basic_nack(0, multiple=True, requeue=True)
    return ids


def test_one_letter_is_changed_and_sent_back_and_the_journal_has_before_and_after(
    vhost: Vhost, amqp: Client, start_router: Start
) -> None:
    keeping = POLICY.replace("{max-delivery-attempts: 1}", "{max-delivery-attempts: 1, journal: {body: final}}")
    shop = Shop(vhost, amqp, start_router(keeping))
    queue = shop.failed("work", ["a", "b", "c"])
    letter = ids_in(shop, queue, 3)[1]
    answer = edit(shop, queue, letter, body=base64.b64encode(BODY).decode(), headers={"number": None, "why": "mended"})
    assert answer.status_code == 201, answer.text
    assert answer.json()["spec"]["edit"] == {"headers": ["number", "why"], "body_bytes": len(BODY)}
    assert shop.ends(answer.json()["id"])["counts"]["sent"] == 1
    got = amqp.take("work")
    header = record(got)
    assert (got.body, got.headers["why"], "number" in got.headers) == (BODY, "mended", False)
    assert (got.properties.message_id, got.routing_key, header["id"], header["redrives"]) == ("m1", "work", letter, 1)
    assert (got.headers["x-death"][0]["queue"], header["digest"]["size"]) == ("work", len(BODY))
    assert [amqp.take(queue).body for _ in range(2)] == [b"a", b"c"]
    events = {
        event["kind"]: event
        for event in stream.events(vhost.amqp_url)
        if event.get("redrive_id") == answer.json()["id"]
    }
    bodies = [base64.b64decode(events[kind]["body"]) for kind in ("edited", "redriven")]
    assert (bodies, events["edited"]["id"]) == ([b"b", BODY], letter)


def test_an_edited_letter_that_dies_again_is_the_same_letter(shop: Shop) -> None:
    queue = shop.failed("edit.again", ["a"])
    letter = ids_in(shop, queue, 1)[0]
    shop.ends(edit(shop, queue, letter, text="b").json()["id"])
    shop.amqp.fail("edit.again")
    eventually(lambda: shop.amqp.depth(queue) == 1)
    dead = shop.amqp.take(queue)
    assert (dead.body, record(dead)["id"], record(dead)["redrives"]) == (b"b", letter, 1)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({}, "nothing is changed"),
        ({"headers": {"x-death": "no"}}, "'x-death' is locked"),
        ({"headers": {"Dlx-Router": None}}, "'Dlx-Router' is locked"),
        ({"headers": {"CC": "elsewhere"}}, "'CC' is locked"),
        ({"headers": {"n": 1 << 70}}, "64 bits"),
        ({"body": "%%%"}, "body"),
        ({"body": "", "text": ""}, "one of them"),
        ({"text": "x" * 600_000}, "at most 524288"),
    ],
)
def test_what_is_locked_or_wrong_is_refused(shop: Shop, asked: Any, said: str) -> None:
    answer = edit(shop, "dlx-router.parking", "any", **asked)
    assert (answer.status_code, said in answer.text) == (409, True), answer.text


@pytest.mark.slow
def test_edit_as_people_type_it(shop: Shop, tmp_path: Path) -> None:
    queue = shop.failed("edit.cli", ["a", "b"])
    letter = ids_in(shop, queue, 2)[0]
    file = tmp_path / "body"
    file.write_bytes(BODY)
    args = ("edit", letter, "--queue", queue, "--body", str(file), "--header", "why=mended", "--no-header", "number")
    asked = redrive(shop, *args)
    assert (asked.returncode, "14 bytes" in asked.stderr, shop.amqp.depth(queue)) == (1, True, 2)
    done = redrive(shop, *args, "--yes", "--json")
    assert (done.returncode, json.loads(done.stdout)["counts"]["sent"]) == (0, 1), done.stderr
    got = shop.amqp.take("edit.cli")
    assert (got.body, got.headers["why"], "number" in got.headers) == (BODY, "mended", False)
    nobody = redrive(shop, "edit", letter, "--queue", queue, "--header", "a=b", "--yes")
    assert (nobody.returncode, "does not lie in queue" in nobody.stderr) == (1, True), nobody.stderr
    parked = redrive(shop, "redrive", "park", queue, "--yes", "--json")
    assert json.loads(parked.stdout)["counts"]["sent"] == 1
    assert shop.amqp.take("dlx-router.parking").body == b"b"
