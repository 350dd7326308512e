"""A task that its canary stopped, and that is resumed, sends another canary first, and stops again where that dies."""

import re
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.redrive.canary import CANARY, Flock
from dlx_router.redrive.task import Canary, Counts, Spec, Task
from tests.redrive.conftest import Shop
from tests.redrive.test_redrive import failing
from tests.support.eventually import eventually

FIRST: Final = 3


@pytest.mark.usefixtures("newest")
def test_a_resumed_task_keeps_its_canary_and_is_stopped_by_it_again(shop: Shop) -> None:
    queue = shop.failed("twice.a", [f"letter {number}" for number in range(20)])
    name = shop.start(queue, canary={"first": FIRST, "watch_s": 30})
    with failing(shop, "twice.a") as got:
        stopped = shop.ends(name, "stopped")
        assert (stopped["counts"]["sent"], stopped["why"].startswith(CANARY)) == (FIRST, True)
        eventually(lambda: shop.amqp.depth(queue) == 20)
        assert shop.call("POST", f"/{name}/resume").json()["state"] == "running"
        again = shop.ends(name, "stopped")
        assert again["counts"]["sent"] == 2 * FIRST, "the rest was sent without a canary"
        assert re.search(rf"canary: \d of the first {FIRST} letters came back dead", again["why"])
        assert len(got) == 2 * FIRST
    assert not again["canary_passed"]
    eventually(lambda: shop.amqp.depth(queue) == 20)


@pytest.mark.usefixtures("newest")
def test_a_resumed_task_whose_second_canary_lives_sends_the_rest(shop: Shop) -> None:
    queue = shop.failed("once.a", [f"letter {number}" for number in range(10)])
    name = shop.start(queue, canary={"first": FIRST, "watch_s": 2})
    with failing(shop, "once.a"):
        shop.ends(name, "stopped")
    eventually(lambda: shop.amqp.depth(queue) == 10)
    shop.call("POST", f"/{name}/resume")
    watching = shop.ends(name, "watching")
    assert (watching["counts"]["sent"], shop.amqp.depth("once.a")) == (2 * FIRST, FIRST)
    assert shop.ends(name)["counts"]["sent"] == 10
    assert (shop.amqp.depth("once.a"), shop.amqp.depth(queue)) == (10 - FIRST, FIRST)


@given(st.integers(1, 50), st.integers(0, 200), st.integers(0, 50))
def test_a_canary_lacks_what_was_not_sent_since_it_began(first: int, before: int, sent: int) -> None:
    task = Task("t", Spec("/", "q", canary=Canary(first)), counts=Counts(sent=before + sent), canary_from=before)
    assert task.canary_left == max(first - sent, 0)


@pytest.mark.parametrize("before", [0, 2, 5])
def test_only_deaths_of_the_canary_that_is_judged_count(before: int) -> None:
    flock = Flock("t", before=before)
    for number in range(5):
        sent = {"kind": "redriven", "redrive_id": "t", "id": f"{number}", "failed_queue": "q"}
        for event in (sent, sent, {"kind": "dead_lettered", "id": f"{number}", "failed_queue": "q"}):
            flock.hear(event)
    assert (flock.sent, flock.dead) == (5, 5 - before)
