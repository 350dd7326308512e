"""A journal that does not answer or says what no router wrote: tasks are told or not begun, and letters go on."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest

from tests.journal import stream
from tests.redrive.conftest import Shop
from tests.support.asleep import asleep
from tests.support.client import Client
from tests.support.eventually import consistently, eventually
from tests.support.policies import POLICY
from tests.support.router import Router
from tests.support.vhost import Vhost

Start = Callable[..., Router]
JOURNAL: Final = "dlx-router.journal"


def _task_actions(vhost: Vhost) -> list[str]:
    """What the journal says of tasks, in order."""
    actions = [event.get("action", "") for event in stream.events(vhost.amqp_url)]
    return [action for action in actions if action.startswith("task.")]


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_a_task_that_the_journal_does_not_confirm_is_not_begun_and_none_later(
    vhost: Vhost, amqp: Client, start_router: Start
) -> None:
    shop = Shop(vhost, amqp, start_router(POLICY))
    queue = shop.failed("work", ["one"])
    eventually(lambda: shop.call("GET", "").status_code == 200, 20)
    asked = {"vhost": vhost.name, "queue": queue, "rate": 0}
    with asleep(vhost, JOURNAL):
        refused = shop.call("POST", "", asked)
        assert (refused.status_code, "did not confirm" in refused.text) == (503, True)
        assert shop.call("GET", "").json()["tasks"] == []
    assert eventually(lambda: _task_actions(vhost), 20) == ["task.running", "task.cancelled"], (
        "whoever reads it later begins nothing either"
    )
    assert (amqp.depth(queue), amqp.depth("work")) == (1, 0)
    assert shop.ends(shop.start(queue))["counts"]["sent"] == 1


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_a_pause_that_the_journal_does_not_confirm_is_told_once_it_is_asked_for_again(
    vhost: Vhost, amqp: Client, start_router: Start
) -> None:
    shop = Shop(vhost, amqp, start_router(POLICY))
    queue = shop.failed("work", [str(number) for number in range(30)])
    task = shop.start(queue, rate=1)
    with asleep(vhost, JOURNAL):
        refused = shop.call("POST", f"/{task}/pause")
        assert (refused.status_code, "did not confirm" in refused.text) == (503, True)
    eventually(lambda: shop.call("POST", f"/{task}/pause").status_code == 200, 20)
    assert _task_actions(vhost)[-1] == "task.paused"
    assert shop.task(task)["state"] == "paused"


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_a_task_that_is_cancelled_while_the_journal_is_told_of_its_resuming_sends_nothing(
    vhost: Vhost, amqp: Client, start_router: Start
) -> None:
    shop = Shop(vhost, amqp, start_router(POLICY))
    queue = shop.failed("work", [str(number) for number in range(30)])
    task = shop.start(queue, rate=1)
    assert shop.call("POST", f"/{task}/pause").status_code == 200
    left = amqp.depth(queue)
    with ThreadPoolExecutor() as people:
        with asleep(vhost, JOURNAL):
            resumed = people.submit(shop.call, "POST", f"/{task}/resume")
            eventually(lambda: shop.task(task)["state"] == "running")
            cancelled = people.submit(shop.call, "POST", f"/{task}/cancel")
            eventually(lambda: shop.task(task)["state"] == "cancelled")
        for answer in (cancelled.result(), resumed.result()):  # what is so, and not what was asked for
            slept_long = "did not confirm" in answer.text  # a busy machine wakes the journal after all patience
            assert slept_long or answer.json()["state"] == "cancelled"
    assert shop.task(task)["state"] == "cancelled"
    assert consistently(lambda: amqp.depth(queue) == left, 3)
    assert shop.ends(shop.start(queue))["counts"]["sent"] == left


@pytest.mark.usefixtures("newest")
def test_of_two_tasks_that_are_asked_for_at_once_the_queue_gets_one(
    vhost: Vhost, amqp: Client, start_router: Start
) -> None:
    shop = Shop(vhost, amqp, start_router(POLICY))
    queue = shop.failed("work", [str(number) for number in range(20)])
    eventually(lambda: shop.call("GET", "").status_code == 200, 20)
    asked = {"vhost": vhost.name, "queue": queue, "rate": 1, "limit": 10}
    with ThreadPoolExecutor() as people:
        answers = [people.submit(shop.call, "POST", "", asked) for _ in range(4)]
        statuses = [answer.result().status_code for answer in answers]
    assert sorted(statuses) == [201, 409, 409, 409]
    assert len(shop.call("GET", "").json()["tasks"]) == 1


@pytest.mark.usefixtures("newest")
def test_a_task_that_somebody_else_wrote_into_the_journal_is_not_begun(
    vhost: Vhost, amqp: Client, start_router: Start
) -> None:
    router = start_router(POLICY)
    shop = Shop(vhost, amqp, router)
    task = shop.start(shop.failed("work", ["one"]))
    shop.ends(task)
    other = shop.failed("other", ["two"])
    router.stop()
    true = next(event for event in stream.events(vhost.amqp_url) if event.get("action") == "task.running")
    document = true["details"]["task"]
    true["details"]["task"] = document | {"id": "forged", "spec": document["spec"] | {"queue": other}}
    amqp.publish(json.dumps(true, separators=(",", ":")), key=JOURNAL)
    router.start()
    assert shop.ends_led(task, 20)["state"] == "done"
    assert [row["id"] for row in shop.call("GET", "").json()["tasks"]] == [task]
    assert (amqp.depth(other), amqp.depth("other")) == (1, 0)


DEEP: Final = '{"kind":"audit","action":"task.running","details":' + "[" * 100_000
STRANGE: Final = {
    "v": 1,
    "id": "t1",
    "spec": {"vhost": "/", "queue": "q"},
    "state": "running",
    "counts": {},
    "term": "x",
}


@pytest.mark.usefixtures("newest")
def test_lines_that_no_router_wrote_end_neither_a_session_nor_the_tasks(
    vhost: Vhost, amqp: Client, start_router: Start
) -> None:
    router = start_router(POLICY)
    shop = Shop(vhost, amqp, router)
    queue = shop.failed("work", ["one"])
    router.stop()
    document = {"kind": "audit", "action": "task.running", "details": {"task": STRANGE}}
    for line in (DEEP, json.dumps(document, separators=(",", ":")), '{"v":1}'):
        amqp.publish(line, key=JOURNAL)
    router.start()
    assert shop.ends(shop.start(queue))["counts"]["sent"] == 1
    assert amqp.take("work").body == b"one"
    assert ("session.ended" in router.output, "not_leading" in router.output) == (False, False)
