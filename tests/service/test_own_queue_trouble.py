"""A queue of the router's own refuses: what that keeps from going on costs no letter of an attached queue a return."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import pytest

from tests.support.bulk import INBOX, PARKING, bodies, law_holds, pour, rests, take_many
from tests.support.client import Client, Refused
from tests.support.eventually import consistently, eventually
from tests.support.router import Router
from tests.support.vhost import Vhost, cut

Start = Callable[..., Router]

POLICIES: Final = """
version: 1
attachments: [{queue: source, accept-delivery-limit: true}]
policies:
  - {name: work, match: "work.#", definition: {max-delivery-attempts: 3, redelivery-delay: 1s}}
"""
SLOW: Final = """
version: 1
attachments: [{queue: source, accept-delivery-limit: true, dead-letter-exchanges: ""}]
policies:
  - {name: slow, match: "slow.#", definition: {max-delivery-attempts: 3, redelivery-delay: 60s}}
"""
LETTERS: Final = [f"{number:02}" for number in range(60)]
DEATH: Final = {"queue": "work.a", "reason": "rejected", "count": 1, "exchange": "", "routing-keys": ["work.a"]}


@contextmanager
def refusing(vhost: Vhost, amqp: Client, queue: str) -> Iterator[None]:
    """Inside the block the queue takes no letter."""
    pattern = "^" + queue.replace(".", "[.]") + "$"
    vhost.policy("small", pattern, {"max-length": 1, "overflow": "reject-publish"})
    eventually(lambda: is_full(amqp, queue))
    yield
    amqp.channel.queue_purge(queue)
    vhost.api.delete(f"policies/{vhost.quoted}/small").raise_for_status()


def is_full(amqp: Client, queue: str) -> bool:
    """A quorum queue takes one or two letters more than its length."""
    try:
        amqp.publish("filling", key=queue)
    except Refused:
        return True
    return False


def source(amqp: Client, **arguments: int) -> None:
    """A quorum queue that deletes what is returned too often."""
    amqp.queue("source", "quorum", **arguments)


def says(router: Router, *words: str) -> bool:
    status, text = router.ask("/readyz")
    return status == 503 and all(word in text for word in words)


def nothing_returned(router: Router) -> bool:
    """Of any queue: no session ended either."""
    assert "session.ended" not in router.output
    return router.metric("given_back_total", cause="connection") == 0


def drained(router: Router, amqp: Client, place: str, expected: list[str]) -> None:
    """Each letter is there, once; the router is well."""
    router.await_ready(within=30)
    assert bodies(take_many(amqp, place, len(expected))) == expected
    rests(router)
    assert amqp.depth(place) == amqp.depth("source") == 0
    eventually(lambda: law_holds(router))


@pytest.mark.slow
@pytest.mark.parametrize("settings", [{}, {"MANAGEMENT_URL": ""}], ids=["verified", "unverified"])
def test_letters_that_parking_refuses_are_kept_and_none_is_returned(
    settings: dict[str, str], amqp: Client, vhost: Vhost, start_router: Start
) -> None:
    source(amqp)
    router = start_router(POLICIES, **settings)
    with refusing(vhost, amqp, PARKING):
        pour(amqp, "source", LETTERS)
        eventually(lambda: says(router, f"own queue {PARKING} refused a letter", "attached queues are not consumed"))
        assert consistently(lambda: nothing_returned(router), for_s=3)
    drained(router, amqp, PARKING, LETTERS)
    assert nothing_returned(router)


@pytest.mark.slow
def test_nothing_more_is_taken_from_attached_queues_until_the_very_queue_confirms(
    amqp: Client, vhost: Vhost, start_router: Start
) -> None:
    source(amqp)
    router = start_router(POLICIES)
    with refusing(vhost, amqp, PARKING):
        pour(amqp, "source", LETTERS[:1])
        eventually(lambda: says(router, "queue 'source'", f"not consumed until {PARKING} confirms"))
        pour(amqp, "source", LETTERS[1:])
        assert consistently(lambda: amqp.depth("source") == len(LETTERS) - 1, for_s=2)
    drained(router, amqp, PARKING, LETTERS)


@pytest.mark.usefixtures("newest")
def test_attached_queues_whose_letters_never_wait_go_on_while_a_rung_refuses(
    amqp: Client, vhost: Vhost, start_router: Start
) -> None:
    """A cluster made a rung unavailable for half a minute, and with it every attached queue."""
    rung, waiting = "dlx-router.delay.60000", {"x-death": [{**DEATH, "queue": "slow.a"}]}
    source(amqp)
    amqp.queue("slow.a")
    router = start_router(SLOW)
    pour(amqp, INBOX, ["first"], waiting)
    eventually(lambda: amqp.exists(rung) and amqp.depth(rung) == 1, within=20)
    with refusing(vhost, amqp, rung):
        pour(amqp, INBOX, ["inbox"], waiting)
        eventually(lambda: says(router, f"own queue {rung} refused a letter", "whose letters it refused"))
        pour(amqp, "source", LETTERS)
        assert bodies(take_many(amqp, PARKING, len(LETTERS))) == LETTERS
        pour(amqp, "source", ["source"], waiting)
        eventually(lambda: says(router, "queue 'source'", f"not consumed until {rung} confirms"))
        pour(amqp, "source", LETTERS)
        assert consistently(lambda: amqp.depth("source") == len(LETTERS), for_s=1)
    assert bodies(take_many(amqp, PARKING, len(LETTERS))) == LETTERS
    eventually(lambda: amqp.depth(rung) == 2, within=20)
    router.await_ready(within=30)


@pytest.mark.slow
def test_a_router_that_lost_its_connections_meanwhile_takes_one_letter_at_a_time(
    amqp: Client, vhost: Vhost, start_router: Start
) -> None:
    """The first costs a return when the connection goes, all others none; which letter proves that there is room."""
    source(amqp)
    router = start_router(POLICIES, MANAGEMENT_URL="")
    with refusing(vhost, amqp, PARKING):
        pour(amqp, "source", LETTERS[:1])
        eventually(lambda: says(router, "queue 'source'", f"not consumed until {PARKING} confirms"))
        pour(amqp, "source", LETTERS[1:])
        cut(vhost, "consume")
        eventually(lambda: "session.ended" in router.output)
        eventually(lambda: router.metric("deliveries_total", source="source") == 2, within=20)
        assert consistently(lambda: amqp.depth("source") == len(LETTERS) - 1, for_s=2)
    drained(router, amqp, PARKING, LETTERS)


@pytest.mark.slow
def test_what_a_small_limit_would_delete_is_there_in_the_end(amqp: Client, vhost: Vhost, start_router: Start) -> None:
    source(amqp, delivery_limit=4)
    router = start_router(POLICIES, MANAGEMENT_URL="")
    with refusing(vhost, amqp, PARKING):
        pour(amqp, "source", LETTERS)
        eventually(lambda: says(router, PARKING))
        consistently(lambda: True, for_s=25, every=1)
    drained(router, amqp, PARKING, LETTERS)


@pytest.mark.slow
def test_what_is_near_its_limit_and_cannot_be_parked_is_left_alone(
    amqp: Client, vhost: Vhost, start_router: Start
) -> None:
    """Without the management API, where the limit is taken for the broker's default, and the connection goes."""
    if int(vhost.get("overview")["rabbitmq_version"].split(".")[0]) < 4:
        pytest.skip("RabbitMQ 3 has no limit unless somebody sets one")
    source(amqp)
    router = start_router(POLICIES, MANAGEMENT_URL="")
    with refusing(vhost, amqp, PARKING):
        router.stop()
        amqp.publish("near", key="source")
        for _ in range(17):
            amqp.await_message("source").put_back()
        router.start(wait=False)
        eventually(lambda: says(router, PARKING), within=20)
        cut(vhost, "consume")
        eventually(lambda: says(router, "'source'", "left alone"), within=20)
        eventually(lambda: amqp.depth("source") == 1)  # the broker puts it back when it has seen the connection go
        assert consistently(lambda: amqp.depth("source") == 1, for_s=2)
        pour(amqp, INBOX, ["proof"])
    drained(router, amqp, PARKING, ["near", "proof"])
