"""Redrive through the outside: letters in a dead-letter queue, a task, and what consumers and queues then see."""

import json
import re
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import pytest

from tests.journal import stream
from tests.redrive.conftest import Shop
from tests.support.bulk import INBOX, record, take_many
from tests.support.client import Client
from tests.support.eventually import eventually

N: Final = 30


@contextmanager
def failing(shop: Shop, queue: str) -> Iterator[list[bytes]]:
    """A consumer that rejects all it gets; what it got."""
    got: list[bytes] = []
    over = threading.Event()

    def consume() -> None:
        with Client(shop.vhost.amqp_url) as client:
            for method, _, body in client.channel.consume(queue, inactivity_timeout=0.05):
                if over.is_set():
                    return
                if method is not None:
                    got.append(body)
                    client.channel.basic_reject(method.delivery_tag, requeue=False)

    thread = threading.Thread(target=consume)
    thread.start()
    try:
        yield got
    finally:
        over.set()
        thread.join(20)


def test_letters_go_back_to_their_failed_queue_as_they_first_came(shop: Shop) -> None:
    queue = shop.failed("work.a", [f"letter {number}" for number in range(N)])
    before = {message.body: record(message) for message in [shop.amqp.await_message(queue)]}
    shop.amqp.channel.basic_nack(0, multiple=True, requeue=True)
    name = shop.start(queue)
    done = shop.ends(name)
    assert (done["counts"]["sent"], done["total"], done["why"]) == (N, N, "")
    assert shop.amqp.depth(queue) == 0
    letters = take_many(shop.amqp, "work.a", N)
    assert [letter.body.decode() for letter in letters] == [f"letter {number}" for number in range(N)]
    for number, letter in enumerate(letters):
        header = record(letter)
        assert (letter.routing_key, letter.properties.message_id, letter.headers["number"]) == (
            "work.a",
            f"m{number}",
            number,
        )
        assert (header["redrives"], header["attempts"], header["redrive_id"], header["state"]) == (
            1,
            0,
            name,
            "retrying",
        )
        assert "BCC" not in letter.headers
    first = letters[0]
    assert record(first)["id"] == before[first.body]["id"]
    events = [event for event in stream.events(shop.vhost.amqp_url) if event["kind"] == "redriven"]
    assert {event["redrive_id"] for event in events} == {name}
    assert len({event["event_id"] for event in events}) == len(events) == N


def test_a_letter_that_fails_again_begins_anew_and_is_parked_after_max_redrives(shop: Shop) -> None:
    queue = shop.failed("again.a", ["hello"])
    for redrives in (1, 2, 3):
        shop.ends(shop.start(queue))
        letter = shop.amqp.fail("again.a")
        assert (record(letter)["redrives"], record(letter)["attempts"]) == (redrives, 0)
        if redrives < 3:
            eventually(lambda: shop.amqp.depth(queue) == 1)
    parked = shop.amqp.take("dlx-router.parking")
    assert (record(parked)["cause"], record(parked)["redrives"]) == ("redrive_exhausted", 3)


def test_a_filter_takes_what_it_means_and_the_rest_stays_in_its_order(shop: Shop) -> None:
    bodies = [f"letter {number}" for number in range(50)]
    queue = shop.failed("filter.a", bodies)
    done = shop.ends(shop.start(queue, filter='header("number").endsWith("7")'))
    assert (done["counts"]["sent"], done["counts"]["left"]) == (5, 45)
    assert [message.body.decode() for message in take_many(shop.amqp, "filter.a", 5)] == [
        f"letter {n}7" for n in ("", 1, 2, 3, 4)
    ]
    rest = take_many(shop.amqp, queue, 45)
    assert [message.body.decode() for message in rest] == [body for body in bodies if not body.endswith("7")]
    assert [message.headers.get("x-delivery-count", 0) for message in rest] in ([0] * 45, [1] * 45)


@pytest.mark.usefixtures("newest")
def test_a_dry_run_counts_no_more_than_its_limit(shop: Shop) -> None:
    queue = shop.failed("dry.limit", [f"letter {number}" for number in range(20)])
    done = shop.ends(shop.start(queue, dry_run=True, limit=7))
    assert (done["counts"]["sent"], sum(group["letters"] for group in done["groups"])) == (7, 7)
    assert done["meant"] == {"letters": 7, "is_exact": True}
    done = shop.ends(shop.start(queue, dry_run=True, limit=7, filter='header("number").endsWith("5")'))
    assert done["counts"]["sent"] == 2


@pytest.mark.usefixtures("newest")
def test_a_task_says_how_many_letters_it_means(shop: Shop) -> None:
    queue = shop.failed("meant.a", [f"letter {number}" for number in range(40)])
    name = shop.start(queue, rate=4, filter='header("number").endsWith("7")')

    def looked() -> Any:
        task = shop.task(name)
        assert task["meant"] == {"letters": 4, "is_exact": True}, task
        return task

    assert eventually(looked, 20)["counts"]["meant"] == 4
    done = shop.ends(name)
    assert (done["meant"], done["counts"]["left"]) == ({"letters": 4, "is_exact": True}, 36)
    assert done["came_back"] is None, "no index tells"


@pytest.mark.usefixtures("newest")
def test_a_consumer_that_still_fails_ends_the_run_at_the_cutoff(shop: Shop) -> None:
    queue = shop.failed("cutoff.a", ["a", "b", "c"])
    with failing(shop, "cutoff.a") as failed:
        done = shop.ends(shop.start(queue))
        eventually(lambda: len(failed) == 3 and shop.amqp.depth(queue) == 3)
    assert done["counts"]["sent"] == 3


def failed_natively(shop: Shop, queue: str, count: int) -> str:
    """As `Shop.failed`, but the work queue's own dead-letter exchange leads there: no router comes between."""
    dead = shop.amqp.queue(f"DLQ.{queue}")
    shop.amqp.queue(queue, dead_letter_exchange="", dead_letter_routing_key=dead)
    for number in range(count):
        shop.amqp.publish(f"letter {number}", key=queue, message_id=f"m{number}", headers={"number": number})
    for _ in range(count):
        shop.amqp.fail(queue)
    eventually(lambda: shop.amqp.depth(dead) == count)
    return dead


def have_died(shop: Shop, queue: str, failed: list[bytes], deaths: int, depth: int) -> bool:
    return len(failed) == deaths and shop.amqp.depth(queue) == depth


@pytest.mark.usefixtures("newest")
def test_letters_that_come_back_without_a_router_between_are_sent_once_by_each_redrive(shop: Shop) -> None:
    """From the second redrive on they have a record, and that tells no death since the first."""
    queue = failed_natively(shop, "native.a", 3)
    with failing(shop, "native.a") as failed:
        for redrives in (1, 2, 3):
            done = shop.ends(shop.start(queue))
            assert done["counts"]["sent"] == 3
            eventually(partial(have_died, shop, queue, failed, 3 * redrives, 3))
    assert sorted(failed) == sorted([b"letter 0", b"letter 1", b"letter 2"] * 3)


@pytest.mark.usefixtures("newest")
def test_a_resumed_redrive_sends_what_it_had_not_sent_and_nothing_that_came_back(shop: Shop) -> None:
    queue = failed_natively(shop, "native.b", 20)
    with failing(shop, "native.b") as failed:
        shop.ends(shop.start(queue))
        eventually(partial(have_died, shop, queue, failed, 20, 20))
        name = shop.start(queue, rate=5)
        eventually(lambda: shop.task(name)["counts"]["sent"] >= 2, every=0.1)
        sent = shop.call("POST", f"/{name}/pause").json()["counts"]["sent"]
        assert 2 <= sent < 20
        eventually(partial(have_died, shop, queue, failed, 20 + sent, 20))
        assert shop.call("POST", f"/{name}/resume").json()["state"] == "running"
        assert shop.ends(name)["counts"]["sent"] == 20
        eventually(partial(have_died, shop, queue, failed, 40, 20))
    assert Counter(failed) == Counter({f"letter {number}".encode(): 2 for number in range(20)})


@pytest.mark.usefixtures("newest")
def test_the_canary_stops_by_itself_and_says_why(shop: Shop) -> None:
    queue = shop.failed("canary.a", [f"letter {number}" for number in range(10)])
    canary = {"first": 4, "watch_s": 30, "max_dead_percent": 20}
    before = shop.router.metric("redrive_letters_total", result="came_back")
    with failing(shop, "canary.a"):
        stopped = shop.ends(shop.start(queue, canary=canary), "stopped")
    assert stopped["counts"]["sent"] == 4
    assert re.search(r"canary: \d of the first 4 letters came back dead", stopped["why"])
    eventually(lambda: shop.amqp.depth(queue) == 10)
    assert shop.router.metric("redrive_letters_total", result="came_back") == before + 4


@pytest.mark.usefixtures("newest")
def test_the_canary_sees_letters_die_at_another_destination_too(shop: Shop) -> None:
    queue = shop.failed("canary.b", [f"letter {number}" for number in range(10)])
    shop.amqp.queue("canary.elsewhere", dead_letter_exchange=INBOX)
    asked = {"canary": {"first": 4, "watch_s": 30}, "to": {"routing_key": "canary.elsewhere"}}
    with failing(shop, "canary.elsewhere"):
        stopped = shop.ends(shop.start(queue, **asked), "stopped")
    assert (stopped["counts"]["sent"], "letters came back dead" in stopped["why"]) == (4, True)


@pytest.mark.usefixtures("newest")
def test_a_canary_that_lives_lets_the_rest_go(shop: Shop) -> None:
    queue = shop.failed("alive.a", [f"letter {number}" for number in range(10)])
    name = shop.start(queue, canary={"first": 3, "watch_s": 2})
    watching = shop.ends(name, "watching")
    assert (watching["counts"]["sent"], shop.amqp.depth("alive.a"), shop.amqp.depth(queue)) == (3, 3, 7)
    assert shop.ends(name)["counts"]["sent"] == 10
    assert shop.amqp.depth("alive.a") == 10


def test_paused_letters_are_back_and_resumed_ones_go_on(shop: Shop) -> None:
    queue = shop.failed("pause.a", [f"letter {number}" for number in range(20)])
    name = shop.start(queue, rate=5)
    eventually(lambda: shop.task(name)["counts"]["sent"] >= 2, every=0.1)
    paused = shop.call("POST", f"/{name}/pause").json()
    sent = paused["counts"]["sent"]
    assert (paused["state"], 2 <= sent < 20) == ("paused", True)
    assert (shop.amqp.depth(queue), shop.amqp.depth("pause.a")) == (20 - sent, sent)
    second = shop.call("POST", "", {"vhost": shop.vhost.name, "queue": queue})
    assert (second.status_code, name in second.text) == (409, True)
    assert shop.call("POST", f"/{name}/resume").json()["state"] == "running"
    assert shop.ends(name)["counts"]["sent"] == 20
    assert [message.body.decode() for message in take_many(shop.amqp, "pause.a", 20)] == [
        f"letter {n}" for n in range(20)
    ]
    assert shop.call("POST", f"/{name}/resume").status_code == 409
    assert shop.call("POST", "/nothing/resume").status_code == 404


@pytest.mark.usefixtures("newest")
def test_a_limit_and_another_destination(shop: Shop) -> None:
    queue = shop.failed("limit.a", ["a", "b", "c"])
    shop.amqp.queue("elsewhere")
    done = shop.ends(shop.start(queue, limit=2, to={"routing_key": "elsewhere"}))
    assert (done["counts"]["sent"], shop.amqp.depth(queue), shop.amqp.depth("limit.a")) == (2, 1, 0)
    assert [message.body for message in take_many(shop.amqp, "elsewhere", 2)] == [b"a", b"b"]


@pytest.mark.parametrize(
    "to", [{"exchange": "gone"}, {"routing_key": "gone"}, {"exchange": "amq.direct", "routing_key": "x"}]
)
def test_without_a_destination_all_letters_stay(shop: Shop, to: Any) -> None:
    queue = shop.failed(f"nowhere.{len(str(to))}", ["a", "b"])
    stopped = shop.ends(shop.start(queue, to=to), "stopped")
    assert re.search(r"does not exist|leads to no queue", stopped["why"])
    eventually(lambda: shop.amqp.depth(queue) == 2)


def test_letters_whose_queue_is_gone_stay_and_are_told(shop: Shop) -> None:
    queue = shop.failed("gone.a", ["a", "b"])
    shop.amqp.channel.queue_delete("gone.a")
    done = shop.ends(shop.start(queue))
    assert (done["counts"]["sent"], done["why"]) == (0, "2 stay: queue 'gone.a' does not exist")
    eventually(lambda: shop.amqp.depth(queue) == 2)


def test_a_queue_that_is_deleted_in_the_middle_stops_the_task(shop: Shop) -> None:
    queue = shop.failed("deleted.a", ["a", "b", "c", "d"])
    name = shop.start(queue, rate=0.5)
    eventually(lambda: shop.task(name)["counts"]["sent"] == 1, every=0.1)
    shop.amqp.channel.queue_delete(queue)
    assert "deleted" in shop.ends(name, "stopped")["why"] or "does not exist" in shop.task(name)["why"]


@pytest.mark.usefixtures("newest")
@pytest.mark.parametrize("rate", [50, 0])
def test_a_full_target_gets_no_letter(shop: Shop, rate: int) -> None:
    work = shop.amqp.queue(f"full.{rate}", max_length=20, dead_letter_exchange=INBOX)
    queue = f"DLQ.{work}"
    for half in (1, 2):
        for number in range(20):
            shop.amqp.publish(f"letter {number}", key=work)
            shop.amqp.fail(work)
        eventually(lambda half=half: shop.amqp.exists(queue) and shop.amqp.depth(queue) == half * 20, 60)  # type: ignore[misc]  # a default binds it
    for number in range(20):
        shop.amqp.publish(f"living {number}", key=work)
    stopped = shop.ends(shop.start(queue, rate=rate), "stopped")
    assert (stopped["counts"]["sent"], stopped["why"][:34]) == (0, f"queue '{work}' holds 20 messages, its"[:34])
    eventually(lambda: shop.amqp.depth(queue) == 40)
    assert [message.body.decode() for message in take_many(shop.amqp, work, 20)] == [f"living {n}" for n in range(20)]


@pytest.mark.usefixtures("newest")
def test_a_target_never_gets_more_than_it_has_room_for(shop: Shop) -> None:
    work = shop.amqp.queue("room.a", max_length=20, dead_letter_exchange=INBOX)
    for number in range(40):
        shop.amqp.publish(f"letter {number}", key=work)
        shop.amqp.fail(work)
    eventually(lambda: shop.amqp.depth(f"DLQ.{work}") == 40, 60)
    stopped = shop.ends(shop.start(f"DLQ.{work}"), "stopped")
    assert (stopped["counts"]["sent"], shop.amqp.depth(work)) == (18, 18)
    eventually(lambda: shop.amqp.depth(f"DLQ.{work}") == 22)


@pytest.mark.usefixtures("newest")
def test_a_dry_run_counts_by_group_and_moves_nothing(shop: Shop) -> None:
    queue = shop.failed("dry.a", ["a", "b", "c"])
    done = shop.ends(shop.start(queue, dry_run=True, filter='header("number") != "1"'))
    assert [(group["failed_queue"], group["reason"], group["letters"]) for group in done["groups"]] == [
        ("dry.a", "rejected", 2)
    ]
    assert (done["counts"]["sent"], done["counts"]["left"]) == (2, 1)
    eventually(lambda: shop.amqp.depth(queue) == 3)
    group = done["groups"][0]["group"]
    assert shop.ends(shop.start(queue, group=f"g1-{0:016x}"))["counts"]["left"] == 3
    assert shop.ends(shop.start(queue, group=group))["counts"]["sent"] == 3


@pytest.mark.usefixtures("newest")
def test_discard_and_park_by_id(shop: Shop) -> None:
    queue = shop.failed("ids.a", ["a", "b", "c"])
    ids = [record(shop.amqp.await_message(queue))["id"] for _ in range(3)]
    shop.amqp.channel.basic_nack(0, multiple=True, requeue=True)
    assert shop.ends(shop.start(queue, kind="discard", ids=[ids[1]]))["counts"]["sent"] == 1
    assert shop.ends(shop.start(queue, kind="park", ids=[ids[2]]))["counts"]["sent"] == 1
    parked = shop.amqp.take("dlx-router.parking")
    assert (parked.body, record(parked)["id"], record(parked)["state"]) == (b"c", ids[2], "parked")
    assert shop.amqp.take(queue).body == b"a"
    kinds = [event["kind"] for event in stream.events(shop.vhost.amqp_url) if event.get("id") in ids[1:]]
    assert sorted(set(kinds)) == ["dead_lettered", "discarded", "parked"]


@pytest.mark.parametrize(
    ("asked", "status", "said"),
    [
        ({"queue": "DLQ.nothing"}, 404, "does not exist"),
        ({"queue": "dlx-router.inbox"}, 409, "the router's own"),
        ({"queue": "dlx-router.parking", "filter": "attempts >"}, 409, "filter, line 1, column"),
        ({"queue": "dlx-router.parking", "filter": "nobody == 1"}, 409, "filter, line 1, column 1"),
        ({"queue": "dlx-router.parking", "vhost": "elsewhere"}, 404, "is not served"),
        ({"queue": "dlx-router.parking", "kind": "park"}, 409, "in parking already"),
        ({"queue": "dlx-router.parking", "kind": "discard", "canary": {"first": 1}}, 409, "only a redrive"),
        ({"queue": "dlx-router.parking", "to": {"routing_key": "dlx-router.parking"}}, 409, "the router's own"),
        ({"queue": "dlx-router.parking", "rate": -1}, 422, "rate"),
    ],
)
@pytest.mark.usefixtures("newest")
def test_bad_input_is_answered_with_what_is_wrong(shop: Shop, asked: Any, status: int, said: str) -> None:
    def answered() -> Any:
        answer = shop.call("POST", "", {"vhost": shop.vhost.name, **asked})
        assert answer.status_code != 503, answer.text
        return answer

    answer = eventually(answered, 20, every=0.1)
    assert (answer.status_code, said in answer.text) == (status, True), answer.text


@pytest.mark.usefixtures("newest")
def test_a_destination_that_no_frame_holds_ends_the_task_and_the_letters_stay(shop: Shop) -> None:
    queue = shop.failed("work.long", ["one"])
    shop.amqp.exchange("elsewhere", "fanout")
    done = shop.ends(shop.start(queue, to={"exchange": "elsewhere", "routing_key": "é" * 200}))
    assert (done["counts"]["sent"], done["counts"]["left"]) == (0, 1)
    assert "cannot be written" in done["why"]
    assert shop.amqp.take(queue).body == b"one"


@pytest.mark.usefixtures("newest")
def test_letters_that_failed_at_a_stream_stay_unless_a_destination_is_given(shop: Shop) -> None:
    stream = shop.amqp.queue("redrive.stream", "stream")
    death = json.dumps({"queue": stream, "exchange": "", "routing_keys": [stream], "reason": "application:boom"})
    shop.amqp.publish("one", key=stream, exchange="dlx-router.declared", headers={"dlx-death": death})
    queue = f"DLQ.{stream}"
    eventually(lambda: shop.amqp.exists(queue) and shop.amqp.depth(queue) == 1, 20)
    done = shop.ends(shop.start(queue))
    assert (done["counts"]["sent"], done["counts"]["left"], "is a stream" in done["why"]) == (0, 1, True)
    shop.amqp.queue("redrive.aside")
    shop.ends(shop.start(queue, to={"exchange": "", "routing_key": "redrive.aside"}))
    assert shop.amqp.take("redrive.aside").body == b"one"
