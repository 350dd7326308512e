"""Redrive through the outside: letters in a dead-letter queue, a task, and what consumers and queues then see."""

from typing import Any, Final

import pytest

from tests.journal import stream
from tests.redrive.conftest import Shop
from tests.support.bulk import record, take_many
from tests.support.eventually import eventually

N: Final = 30


def test_letters_go_back_to_their_failed_queue_as_they_first_came(shop: Shop) -> None:
    queue = shop.failed("work.a", [f"letter {number}" for number in range(N)])
    before = {message.body: record(message) for message in [shop.amqp.await_message(queue)]}
    shop.amqp.channel.basic_nack(0, multiple=True, requeue=True)
    name = shop.start(queue)
    done = shop.ends(name)
    assert (done["counts"]["sent"], done["total"], done["why"]) == (N, N, "")
    assert shop.amqp.depth(queue) == 0
    letters = take_many(shop.amqp, "work.a", N)
    assert [one.body.decode() for one in letters] == [f"letter {number}" for number in range(N)]
    for number, one in enumerate(letters):
        said = record(one)
        assert (one.routing_key, one.properties.message_id, one.headers["number"]) == ("work.a", f"m{number}", number)
        assert (said["redrives"], said["attempts"], said["redrive_id"], said["state"]) == (1, 0, name, "retrying")
        assert "BCC" not in one.headers
    first = letters[0]
    assert record(first)["id"] == before[first.body]["id"]
    events = [event for event in stream.events(shop.vhost.amqp_url) if event["kind"] == "redriven"]
    assert {event["redrive_id"] for event in events} == {name}
    assert len({event["event_id"] for event in events}) == len(events) == N


def test_a_letter_that_fails_again_begins_anew_and_is_parked_after_max_redrives(shop: Shop) -> None:
    queue = shop.failed("work.a", ["hello"])
    for redrives in (1, 2, 3):
        shop.ends(shop.start(queue))
        letter = shop.amqp.fail("work.a")
        assert (record(letter)["redrives"], record(letter)["attempts"]) == (redrives, 0)
        if redrives < 3:
            eventually(lambda: shop.amqp.depth(queue) == 1)
    parked = shop.amqp.take("dlx-router.parking")
    assert (record(parked)["cause"], record(parked)["redrives"]) == ("redrive_exhausted", 3)


@pytest.mark.parametrize(
    ("asked", "status", "said"),
    [
        ({"queue": "DLQ.nothing"}, 404, "does not exist"),
        ({"queue": "dlx-router.inbox"}, 400, "the router's own"),
        ({"queue": "dlx-router.parking", "filter": "attempts >"}, 400, "filter, line 1, column"),
        ({"queue": "dlx-router.parking", "filter": "nobody == 1"}, 400, "filter, line 1, column 1"),
        ({"queue": "dlx-router.parking", "vhost": "elsewhere"}, 404, "is not served"),
        ({"queue": "dlx-router.parking", "kind": "park"}, 400, "in parking already"),
        ({"queue": "dlx-router.parking", "kind": "discard", "canary": {"first": 1}}, 400, "only a redrive"),
        ({"queue": "dlx-router.parking", "to": {"routing_key": "dlx-router.parking"}}, 400, "it is taken from"),
        ({"queue": "dlx-router.parking", "rate": -1}, 422, "rate"),
    ],
)
def test_bad_input_is_answered_with_what_is_wrong(shop: Shop, asked: Any, status: int, said: str) -> None:
    def answered() -> Any:
        answer = shop.call("POST", "", {"vhost": shop.vhost.name, **asked})
        assert answer.status_code != 503, answer.text
        return answer

    answer = eventually(answered, 20)
    assert (answer.status_code, said in answer.text) == (status, True), answer.text
