"""Quorum queues that end what is returned too often: no task brings a letter there, however often it is interrupted."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.core.attending import NO_LIMIT, QueueFacts, remedy
from dlx_router.redrive.task import Counts, Edited, Spec, State, Task
from dlx_router.service.redrive.bindings import UNKNOWN, Returns, returns_of
from dlx_router.service.redrive.runner import _lost
from dlx_router.service.redrive.sender import LONGEST_UNCONFIRMED_S, Attempt, left_behind
from tests.conftest import ROUTERS
from tests.redrive.conftest import Shop
from tests.support.asleep import asleep
from tests.support.bulk import DIED, pour, take_many
from tests.support.client import Client
from tests.support.eventually import eventually
from tests.support.scene import begun
from tools import brokers

LIMIT: Final = 8
N: Final = 20
BOUND: Final = remedy(QueueFacts("quorum", {"x-delivery-limit": 1}), (4, 0))
NAMES: Final = ("bind", "late", "near", "gone", "moved")  # a queue of each scene
POLICIES: Final = "version: 1\npolicies:\n" + "".join(
    f"  - {{name: {name}, queue: {name}, definition: {{max-delivery-attempts: 1, dead-letter-exchange: '', "
    f"dead-letter-routing-key: {name}.dead}}}}\n"
    for name in NAMES
)


@pytest.fixture(scope="module")
def _shared(broker: brokers.Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with begun(broker, tmp_path_factory.mktemp("returns"), POLICIES, env={"CONFIRM_TIMEOUT": "1s"}) as both:
        yield both


@pytest.fixture
def shop(_shared: Any, request: pytest.FixtureRequest) -> Iterator[Shop]:
    """A router that knows the dead-letter queues of NAMES, and waits a second for a confirm."""
    vhost, router = _shared
    request.node.stash[ROUTERS] = [router]
    with Client(vhost.amqp_url) as client:
        yield Shop(vhost, client, router)


@pytest.fixture
def unknowing(broker: brokers.Broker, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Shop]:
    """As `shop`, and nobody tells the router what limits queues have."""
    with begun(broker, tmp_path, POLICIES, env={"MANAGEMENT_URL": ""}) as (vhost, router):
        request.node.stash[ROUTERS] = [router]
        with Client(vhost.amqp_url) as client:
            yield Shop(vhost, client, router)


def is_free(shop: Shop) -> bool:
    """Whether a nack is no return on this broker."""
    return tuple(map(int, shop.vhost.broker.version.split(".")[:2])) >= (4, 3)


def poured(shop: Shop, name: str, count: int, failed_at: str, **arguments: Any) -> str:
    """A dead-letter queue that counts returns, and letters in it that failed at this queue."""
    queue = f"{name}.dead"
    if not shop.amqp.exists(queue):
        shop.amqp.queue(queue, "quorum", **arguments)
    before = shop.amqp.depth(queue)
    pour(shop.amqp, queue, [f"{failed_at} {n}" for n in range(count)], {"x-death": [dict(DIED, queue=failed_at)]})
    eventually(lambda: shop.amqp.depth(queue) == before + count)
    return queue


def crash(shop: Shop, queue: str) -> None:
    """The queue exists, and the broker lets nobody look at it."""
    where = f'rabbit_misc:r(<<"{shop.vhost.name}">>, queue, <<"{queue}">>)'
    change = f"F = fun() -> rabbit_amqqueue:update({where}, fun(Q) -> amqqueue:set_state(Q, crashed) end) end"
    before_4 = "catch exit:{aborted, no_transaction} -> rabbit_misc:execute_mnesia_transaction(F)"
    shop.vhost.broker.rabbitmqctl("eval", f"{change}, try F() {before_4} end.")


def test_a_failed_queue_that_cannot_be_bound_keeps_its_own_letters_only(shop: Shop) -> None:
    """The task was tried again without end, and at the 21st run the broker ended all letters of the queue."""
    shop.amqp.queue("bind")
    shop.amqp.queue("broken")
    crash(shop, "broken")
    poured(shop, "bind", 1, "broken")
    queue = poured(shop, "bind", N, "bind")
    done = shop.ends(shop.start(queue))
    assert (done["counts"]["sent"], shop.amqp.depth("bind")) == (N, N)
    assert "1 stay: queue 'broken' cannot be bound: " in done["why"]
    assert "it is tried again" not in done["why"]
    eventually(lambda: shop.amqp.depth(queue) == 1)


def test_a_task_that_is_interrupted_again_and_again_stops_before_the_limit(shop: Shop) -> None:
    shop.amqp.bind(shop.amqp.queue("late"), shop.amqp.exchange("to.late"), "late")
    queue = poured(shop, "late", N, "late", delivery_limit=LIMIT)
    with asleep(shop.vhost, "late"):
        task = shop.start(queue, to={"exchange": "to.late", "routing_key": "late"})
        eventually(lambda: shop.task(task)["why"].startswith("interrupted: the broker confirmed nothing for 1 s"), 20)
        if not is_free(shop):
            stopped = shop.ends(task, "stopped", 90)
            assert f"returned {LIMIT - 3} times" in stopped["why"]
            assert f"more than {LIMIT} times: {BOUND}, and resume" in stopped["why"]
            eventually(lambda: shop.amqp.depth(queue) == N)
            return
    assert shop.ends(task, within=90)["why"] == ""
    eventually(lambda: shop.amqp.depth(queue) == 0)
    bodies = {shop.amqp.take("late").body for _ in range(shop.amqp.depth("late"))}
    assert len(bodies) == N


def test_a_queue_with_a_letter_near_its_limit_is_refused(shop: Shop) -> None:
    """Each start returns what it cannot send: so the second one takes nothing."""
    queue = poured(shop, "near", 2, "nowhere", delivery_limit=4)
    letter = shop.amqp.get(queue)
    assert letter is not None
    letter.requeue()
    eventually(lambda: shop.amqp.depth(queue) == 2)
    if is_free(shop):
        assert "2 stay: queue 'nowhere' does not exist" in shop.ends(shop.start(queue))["why"]
        return
    assert "returned 1 times" in shop.ends(shop.start(queue), "stopped")["why"]
    for _ in range(5):
        assert "near its delivery limit of 4" in shop.ends(shop.start(queue), "stopped")["why"]
    eventually(lambda: shop.amqp.depth(queue) == 2)
    counts = [message.headers.get("x-delivery-count", 0) for message in take_many(shop.amqp, queue, 2)]
    assert max(counts) <= 2, "what was returned before, and by the first start"


def crashed(shop: Shop, queue: str) -> None:
    """A consumer took a message of this queue, and its channel ended."""
    channel = shop.amqp.connection.channel()
    eventually(lambda: channel.basic_get(queue)[0])
    channel.close()


def test_returns_in_another_queue_are_none_here(shop: Shop) -> None:
    """On 4.0 they are shown until the first return here: where a limit ended a task, harmless letters were parked."""
    if is_free(shop):
        return  # there they count in this queue too
    queue = poured(shop, "moved", 0, "moved", delivery_limit=8)
    arguments = {"dead_letter_exchange": "", "dead_letter_routing_key": queue, "delivery_limit": 12}
    shop.amqp.queue("moved", "quorum", **arguments)
    for number in range(3):
        shop.amqp.publish(f"m{number}", key="moved")
        for _ in range(13):
            crashed(shop, "moved")
    eventually(lambda: shop.amqp.depth(queue) == 3)
    done = shop.ends(shop.start(queue, limit=1))
    assert (done["counts"]["sent"], done["why"]) == (1, "")
    eventually(lambda: shop.amqp.depth(queue) == 2)
    assert [shop.amqp.take(queue).headers.get("x-delivery-count") for _ in range(2)] == [1, 1]


def test_a_queue_whose_limit_nobody_tells_is_refused_where_a_look_counts(unknowing: Shop) -> None:
    """Of a queue with a limit of 3 the fourth task ended all letters that could not be sent."""
    queue = poured(unknowing, "gone", 2, "nowhere", delivery_limit=3)
    ended = unknowing.ends(unknowing.start(queue), "done" if is_free(unknowing) else "stopped")
    assert ("'nowhere' does not exist" if is_free(unknowing) else "set MANAGEMENT_URL") in ended["why"]
    eventually(lambda: unknowing.amqp.depth(queue) == 2)


@pytest.mark.parametrize(("facts", "version", "expected"), [
    ({"type": "classic"}, (4, 0), Returns()),
    ({"type": "quorum"}, (3, 13), Returns()),
    ({"type": "quorum"}, (4, 0), Returns(20, is_free=False)),
    ({"type": "quorum"}, (4, 3), Returns(20, is_free=True)),
    ({"type": "quorum", "arguments": {"x-delivery-limit": -1}}, (4, 0), Returns()),
    ({"type": "quorum", "arguments": {"x-delivery-limit": NO_LIMIT}}, (3, 13), Returns()),
    ({"type": "quorum", "effective_policy_definition": {"delivery-limit": 5}}, (3, 13), Returns(5, is_free=False)),
    ({"type": "quorum", "arguments": {"x-delivery-limit": 1}}, (4, 0), Returns(1, is_free=False, remedy=BOUND)),
    ({"type": "quorum", "arguments": {"x-delivery-limit": 5}, "effective_policy_definition": {"delivery-limit": -1}},
     (4, 0), Returns(5, is_free=False, remedy=BOUND)),
    ({"type": "quorum", "arguments": {"x-delivery-limit": -1}}, (3, 10),
     Returns(0, is_free=False, remedy=BOUND)),
    ({"node": "it is down"}, (4, 0), Returns(20, is_free=False, remedy=UNKNOWN)),
    ({}, (3, 13), Returns(None, is_free=False, remedy=UNKNOWN)),
    ({}, (4, 0), Returns(20, is_free=False, remedy=UNKNOWN)),
    ({}, (4, 3), Returns(20, is_free=True, remedy=UNKNOWN)),
])  # fmt: skip
def test_how_often_letters_of_a_queue_may_be_returned(
    facts: dict[str, Any], version: tuple[int, int], expected: Returns
) -> None:
    assert returns_of(facts, version) == expected


@given(st.integers(4, 60), st.integers(0, 60))
def test_no_task_lets_the_broker_end_a_letter_by_its_limit(limit: int, count: int) -> None:
    """Each run fails, and returns the letter once more; a run that finds it near its limit is the last."""
    returns = returns_of({"type": "quorum", "arguments": {"x-delivery-limit": limit}}, (4, 0))
    count = min(count, limit - 2)
    while not returns.is_near(count):
        count += 1
    assert count + 1 < limit, "the next lost connection would end it"


@pytest.mark.parametrize(("facts", "version", "shown", "here"), [
    ({"type": "quorum"}, (4, 0), 20, 20),
    ({"type": "quorum"}, (4, 0), 21, 0),
    ({"type": "quorum"}, (4, 2), 100, 0),
    ({"type": "quorum"}, (4, 3), 21, 21),  # the next lost connection ends it
    ({"type": "quorum", "arguments": {"x-delivery-limit": 5}}, (3, 13), 6, 0),
    ({"type": "quorum"}, (3, 13), 6, 6),
])  # fmt: skip
def test_more_returns_than_the_limit_were_in_another_queue(
    facts: dict[str, Any], version: tuple[int, int], shown: int, here: int
) -> None:
    assert returns_of(facts, version).here(shown) == here


@pytest.mark.parametrize(("fails", "pauses", "careful"), [
    ([(False, False)] * 7, [0.25, 0.5, 1, 2, 4, 5, 5], [False] * 7),
    ([(False, True)] * 3, [0.25, 0.5, 1], [True] * 3),
    ([(False, True)] * 100, [], [True]),
    ([(False, True), (False, False)], [0.25, 0.5], [True, True]),
    ([(False, True), (True, False)], [0.25, 0.25], [True, False]),
])  # fmt: skip
def test_who_was_interrupted_waits_and_is_careful_until_it_sends_again(
    fails: list[tuple[bool, bool]], pauses: list[float], careful: list[bool]
) -> None:
    attempt, seen = Attempt(), list[Attempt]()
    for moved, unconfirmed in fails:
        attempt = attempt.after(moved=moved, unconfirmed=unconfirmed)
        seen.append(attempt)
    assert [each.pause_s for each in seen][: len(pauses)] == pauses
    assert [each.is_careful for each in seen][: len(careful)] == careful
    assert max(each.pause_s for each in seen) <= LONGEST_UNCONFIRMED_S
    assert all(each.follows for each in seen)


@pytest.mark.parametrize(("sent", "limit", "left"), [(9, 10, 0), (10, 10, 10), (9, 0, 0), (5000, 5000, 1000)])
def test_what_a_lost_connection_left_behind_a_limit_is_said(sent: int, limit: int, left: int) -> None:
    """The task was `done` and said nothing, while letters that it had sent lay in their queue."""
    assert left_behind(sent, limit).startswith(f"up to {left} of those" if left else "")
    assert bool(left_behind(sent, limit)) is bool(left)


@pytest.mark.parametrize(("sent", "state"), [(0, State.STOPPED), (1, State.DONE)])
def test_an_edit_that_the_journal_has_is_done_whoever_had_what_it_changes(sent: int, state: State) -> None:
    """The next leader said that its router had ended before the edit was done."""
    task = Task("t", Spec("/", "DLQ", limit=1, edit=Edited(("a",))), counts=Counts(sent=sent))
    assert _lost(task)[0] is state
