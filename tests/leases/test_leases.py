"""Leases through the outside: what workers get, what becomes of each letter, and what the queue then holds."""

import json
import time
from typing import Any

import pytest

from tests.journal import stream
from tests.leases.conftest import Bench, body_of
from tests.support.bulk import record
from tests.support.eventually import eventually

TWO_TYPES = pytest.mark.parametrize("kind", ["classic", "quorum"])


def leases_of(bench: Bench, queue: str) -> list[tuple[str, Any]]:
    """Kind and, of ends, how, in order."""
    events = [event for event in stream.events(bench.vhost.amqp_url) if event.get("lease") and event["source"] == queue]
    return [(event["kind"], event["lease"].get("ended")) for event in events]


def test_letters_come_the_oldest_first_whole_and_are_nobody_elses(bench: Bench) -> None:
    queue = bench.failed("whole", [f"letter {number}" for number in range(5)])
    first = bench.receive(queue, max=2)
    assert [body_of(letter) for letter in first] == ["letter 0", "letter 1"]
    whole = first[0]
    facts = (whole["failed_queue"], whole["reason"], whole["headers"]["number"], whole["properties"]["message_id"])
    assert facts == ("whole", "rejected", 0, "whole-0")
    assert (whole["receives"], whole["until_ms"] > 1000 * time.time()) == (1, True)
    rest = bench.receive(queue, max=100, wait=1)
    assert [body_of(letter) for letter in rest] == ["letter 2", "letter 3", "letter 4"]
    assert bench.receive(queue, max=100) == []
    assert bench.router.metric("leases", state="held") >= 5
    for letter in first + rest:
        assert bench.ended(letter, "done") == "done"


def test_what_is_done_is_gone_and_told_and_the_handle_says_so(bench: Bench) -> None:
    queue = bench.failed("done.a", ["hello"])
    (letter,) = bench.receive(queue)
    assert bench.ended(letter, "done") == "done"
    again = bench.change(letter, "done")
    assert (again.status_code, again.json()["ended"], "is done" in again.json()["error"]) == (410, "done", True)
    assert bench.receive(queue, wait=0.5) == []
    assert bench.amqp.depth(queue) == 0
    assert leases_of(bench, queue) == [("leased", None), ("lease_ended", "done")]
    kinds = [event["kind"] for event in stream.events(bench.vhost.amqp_url) if event.get("id") == letter["id"]]
    assert kinds == ["dead_lettered", "leased", "discarded", "lease_ended"]


@TWO_TYPES
def test_a_letter_is_sent_back_parked_or_changed_by_the_way_of_tasks(bench: Bench, kind: str) -> None:
    queue = bench.failed(f"ways.{kind}", ["back", "aside", "other", "there"], kind)
    there = bench.amqp.queue(f"there.{kind}")
    back, aside, other, elsewhere = bench.receive(queue, max=4)
    assert bench.ended(back, "redrive") == "redriven"
    assert bench.ended(aside, "park") == "parked"
    assert bench.ended(other, "edit", text="mended", headers={"by": "me", "number": None}) == "edited"
    assert bench.ended(elsewhere, "redrive", to={"routing_key": there}) == "redriven"
    first, second = bench.amqp.take(f"ways.{kind}"), bench.amqp.take(f"ways.{kind}")
    assert (first.body, record(first)["id"], record(first)["redrives"]) == (b"back", back["id"], 1)
    assert (second.body, second.headers["by"], "number" in second.headers) == (b"mended", "me", False)
    parked = bench.amqp.take("dlx-router.parking")
    assert (parked.body, record(parked)["state"]) == (b"aside", "parked")
    assert bench.amqp.take(there).body == b"there"
    assert bench.receive(queue) == []
    assert bench.amqp.depth(queue) == 0
    ends = sorted(how for kind, how in leases_of(bench, queue) if kind == "lease_ended")
    assert ends == ["edited", "parked", "redriven", "redriven"]


def test_what_cannot_be_sent_stays_leased_and_says_why(bench: Bench) -> None:
    queue = bench.failed("stuck.a", ["hello"])
    bench.amqp.channel.queue_delete("stuck.a")
    (letter,) = bench.receive(queue)
    gone = bench.change(letter, "redrive")
    assert (gone.status_code, "does not exist" in gone.json()["error"]) == (409, True)
    nowhere = bench.change(letter, "redrive", to={"routing_key": "nowhere"})
    assert (nowhere.status_code, "does not exist" in nowhere.json()["error"]) == (409, True)
    own = bench.change(letter, "redrive", to={"routing_key": "dlx-router.inbox"})
    assert (own.status_code, "the router's own" in own.json()["error"]) == (409, True)
    locked = bench.change(letter, "edit", headers={"x-death": "no"})
    assert (locked.status_code, "locked" in locked.json()["error"]) == (409, True)
    assert bench.ended(letter, "done") == "done"


def received(bench: Bench, queue: str, count: int, **asked: Any) -> list[dict[str, Any]]:
    """Leases of so many messages: a request gets those that come together."""
    letters: list[dict[str, Any]] = []
    while len(letters) < count and (more := bench.receive(queue, max=count - len(letters), wait=20, **asked)):
        letters += more
    return letters


@pytest.mark.slow
def test_a_filter_hands_out_what_it_means_and_the_rest_keeps_its_order(bench: Bench) -> None:
    queue = bench.failed("sift.a", [f"letter {number}" for number in range(300)])
    letters = received(bench, queue, 3, filter='int(header("number")) % 100 == 99')
    assert [letter["headers"]["number"] for letter in letters] == [99, 199, 299]
    eventually(lambda: bench.amqp.depth(queue) == 297)
    rest = received(bench, queue, 100)
    assert [letter["headers"]["number"] for letter in rest] == [number for number in range(101) if number != 99]
    none = bench.receive(queue, filter='header("number") == "99"', wait=0)
    assert none == []
    wrong = bench.asked(queue, filter="header(")
    assert (wrong.status_code, "filter, line 1" in wrong.json()["error"]) == (409, True)


def test_what_never_died_stays_where_it_is(bench: Bench) -> None:
    queue = bench.failed("living.a", ["dead"])
    assert bench.ended(bench.receive(queue)[0], "done") == "done"
    for number in range(5):
        bench.amqp.publish(f"living {number}", key=queue)
    assert bench.receive(queue, max=10) == []
    eventually(lambda: bench.amqp.depth(queue) == 5)
    bench.amqp.publish("dead too", key="living.a")
    bench.amqp.fail("living.a")
    eventually(lambda: bench.amqp.depth(queue) == 6)
    (letter,) = bench.receive(queue, max=1, wait=5)
    assert body_of(letter) == "dead too"
    eventually(lambda: bench.amqp.depth(queue) == 5)
    work = bench.amqp.queue("living.work")
    refused = bench.asked(work)
    assert (refused.status_code, "no dead-letter queue" in refused.json()["error"]) == (409, True)


def test_a_task_and_a_lease_do_not_share_a_queue(bench: Bench) -> None:
    queue = bench.failed("task.a", [f"letter {number}" for number in range(5)])
    (letter,) = bench.receive(queue)
    task = {"vhost": bench.vhost.name, "queue": queue, "rate": 0.1, "to": {"routing_key": bench.amqp.queue("task.to")}}
    begun = bench.post("/tasks", task)
    assert begun.status_code == 201, begun.text
    taken = bench.asked(queue)
    assert (taken.status_code, "has task" in taken.json()["error"]) == (409, True)
    assert bench.ended(letter, "done") == "done"
    bench.post(f"/tasks/{begun.json()['id']}/cancel?vhost={bench.vhost.name}", None)


def test_bad_requests_say_what_is_wrong(bench: Bench) -> None:
    queue = bench.failed("bad.a", ["hello"])
    assert bench.asked("DLQ.nobody").status_code == 404
    for odd in ({"max": 101}, {"max": 0}, {"wait": "21s"}, {"visibility": "13h"}, {"visibility": 0}, {"filter": ""}):
        assert bench.asked(queue, **odd).status_code == 422, odd
    assert bench.asked("dlx-router.inbox").status_code == 409
    (letter,) = bench.receive(queue)
    assert bench.change(letter, "burn").status_code == 422
    assert bench.change(letter, "done", to={"routing_key": "x"}).status_code == 409
    assert bench.change(letter, "extend").status_code == 409
    assert bench.post("/leases/nonsense", {"action": "done"}).status_code == 404
    forged = {"handle": letter["handle"][:-1] + ("0" if letter["handle"][-1] != "0" else "1")}
    assert bench.change(forged, "done").status_code == 404
    assert bench.ended(letter, "done") == "done"


def test_the_index_shows_leases_on_a_letters_way_and_nothing_is_gone_while_they_last(bench: Bench) -> None:
    queue = bench.failed("index.a", ["hello"])
    (letter,) = bench.receive(queue)

    def shown() -> dict[str, Any]:
        status, text = bench.router.ask(f"/api/v1/letters/{letter['id']}")
        assert status == 200, text
        return json.loads(text)["letters"][0]  # type: ignore[no-any-return]  # JSON

    def kinds() -> list[str]:
        return [step["kind"] for step in shown()["journey"]]

    eventually(lambda: kinds() == ["dead_lettered", "leased"], 20)
    assert (shown()["state"], shown()["target"]["routing_key"]) == ("dead", queue)
    assert bench.ended(letter, "release") == "released"
    eventually(lambda: kinds() == ["dead_lettered", "leased", "lease_ended"], 20)
    assert (shown()["state"], shown()["journey"][-1]["cause"]) == ("dead", "released")
    (letter,) = bench.receive(queue, wait=5)
    assert bench.ended(letter, "done") == "done"
    eventually(lambda: shown()["state"] == "discarded", 20)
