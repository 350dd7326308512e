"""The router killed in the middle of a task, and replicas: the next leader goes on, nothing is lost."""

import os
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.redrive.conftest import Shop
from tests.support.bulk import INBOX, pour, record, take_many
from tests.support.client import Client, Message
from tests.support.eventually import eventually
from tests.support.policies import POLICY
from tests.support.router import Router
from tests.support.vhost import Vhost

pytestmark = pytest.mark.usefixtures("newest")  # what it shows is the same on every version

Start = Callable[..., Router]
N: Final = int(os.environ.get("DLX_ROUTER_REDRIVE_LETTERS", "3000"))
RATE: Final = max(600, N // 40)
WINDOW: Final = 1000  # unconfirmed at most


@pytest.mark.slow
@pytest.mark.timeout(60 + N // 50)
def test_killed_twice_nothing_is_lost_and_copies_have_one_id_and_number(
    vhost: Vhost, amqp: Client, start_router: Start
) -> None:
    amqp.queue("work", dead_letter_exchange=INBOX)
    shop = Shop(vhost, amqp, start_router(POLICY))
    pour(amqp, "work", [f"letter {number}" for number in range(N)])
    channel = amqp.connection.channel()
    channel.basic_qos(prefetch_count=500)
    for number, (method, _, _) in enumerate(channel.consume("work"), 1):
        channel.basic_reject(method.delivery_tag, requeue=False)
        if number == N:
            break
    channel.cancel()
    channel.close()
    queue = "DLQ.work"
    eventually(lambda: amqp.exists(queue) and amqp.depth(queue) == N, 60 + N // 200)
    name = shop.start(queue, rate=RATE)
    for kill in (1, 2):
        eventually(lambda kill=kill: amqp.depth("work") > kill * N / 4, 30 + N // RATE)  # type: ignore[misc]  # a default binds it
        shop.router.kill()
        shop.router.start()
    done = shop.ends_led(name, 60 + N // RATE)
    assert (amqp.depth(queue), done["spec"]["rate"]) == (0, RATE)
    letters = take_many(amqp, "work", amqp.depth("work"), 60 + N // 500)
    copies = Counter(letter.body for letter in letters)
    assert set(copies) == {f"letter {number}".encode() for number in range(N)}
    assert sum(copies.values()) - N <= 2 * WINDOW
    for body in [body for body, number in copies.items() if number > 1]:
        assert len({_identity(letter) for letter in letters if letter.body == body}) == 1
    assert {record(letter)["redrives"] for letter in letters} == {1}


def _identity(letter: Message) -> tuple[str, int, str]:
    header = record(letter)
    return header["id"], header["redrives"], header["redrive_id"]


@pytest.mark.slow
def test_another_replica_takes_over_and_each_answers_by_the_leader(
    vhost: Vhost, amqp: Client, start_router: Start, tmp_path: Path
) -> None:
    key = tmp_path / "key"
    key.write_text("0123456789abcdef0123456789abcdef")
    first = start_router(POLICY, PROVENANCE_KEY_FILE=str(key), HEARTBEAT="2")
    shop = Shop(vhost, amqp, first)
    queue = shop.failed("work", [f"{number}" for number in range(60)])
    name = shop.start(queue, rate=4)
    second = start_router(POLICY, PROVENANCE_KEY_FILE=str(key), HEARTBEAT="2")
    other = Shop(vhost, amqp, second)
    asked = other.call("GET", f"/{name}")
    assert (asked.status_code, asked.json()["id"]) == (200, name), "it asks the leader"
    eventually(lambda: shop.task(name)["counts"]["sent"] >= 3, every=0.1)
    first.kill()
    eventually(lambda: other.call("GET", f"/{name}").status_code == 200, 15, every=0.1)
    eventually(lambda: amqp.depth("work") > 10, 20)
    assert other.call("POST", f"/{name}/cancel").json()["state"] == "cancelled"
    copies = 5  # of what was confirmed and not yet acked when the first was killed
    eventually(lambda: 60 <= amqp.depth("work") + amqp.depth(queue) <= 60 + copies)


def test_killed_in_the_middle_a_discard_takes_no_more_than_its_limit(
    vhost: Vhost, amqp: Client, start_router: Start
) -> None:
    shop = Shop(vhost, amqp, start_router(POLICY))
    queue = shop.failed("work", [f"{number}" for number in range(90)])
    name = shop.start(queue, kind="discard", limit=50, rate=40)
    eventually(lambda: shop.task(name)["counts"]["sent"] >= 25, every=0.05)
    shop.router.kill()
    shop.router.start()
    done = shop.ends_led(name, 30)
    assert done["counts"]["sent"] == 50
    eventually(lambda: amqp.depth(queue) >= 40, 20)
    assert amqp.depth(queue) < 60, "what was told and not yet taken away stays, and that is little"
    doubted = re.search(r"up to (\d+) of those that were sent may still lie in the queue", done["why"])
    acks = 2  # that were on their way as the task said how far it was
    assert amqp.depth(queue) - 40 <= acks + (int(doubted[1]) if doubted else 0), done["why"]


def test_without_a_journal_there_are_no_tasks(vhost: Vhost, amqp: Client, start_router: Start) -> None:
    shop = Shop(vhost, amqp, start_router(POLICY, JOURNAL="off"))
    answer = shop.call("POST", "", {"vhost": vhost.name, "queue": "dlx-router.parking"})
    assert (answer.status_code, "JOURNAL=off" in answer.text) == (409, True)
