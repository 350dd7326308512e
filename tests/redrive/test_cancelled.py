"""A cancelled task stays cancelled, whatever old event of the journal is read last."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import pika
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.redrive.task import (
    ABANDONED_S,
    AT_WORK,
    Canary,
    Kind,
    Spec,
    State,
    Task,
    changed,
    newest,
    unless_abandoned,
)
from dlx_router.redrive.task_events import line, tasks
from tests.redrive.conftest import Shop
from tests.support.bulk import frozen
from tests.support.client import Client
from tests.support.eventually import consistently, eventually
from tests.support.policies import POLICY
from tests.support.router import Router
from tests.support.vhost import Vhost

Start = Callable[..., Router]
JOURNAL: Final = "dlx-router.journal"
LETTERS: Final = 400
RATE: Final = 3
MINUTE_S: Final = 62.0  # a leader once believed the last 60 s of the journal alone
READ_S: Final = 5.0
OLD_MESSAGE = tuple[pika.BasicProperties, bytes]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_paused_leader_that_wakes_after_the_cancel_does_not_revive_the_task(
    vhost: Vhost, amqp: Client, start_router: Start, tmp_path: Path
) -> None:
    key = tmp_path / "key"
    key.write_text("0123456789abcdef0123456789abcdef")
    settings = {"PROVENANCE_KEY_FILE": str(key), "HEARTBEAT": "2"}
    former = Shop(vhost, amqp, start_router(POLICY, **settings))
    queue = former.failed("work", [str(number) for number in range(LETTERS)])
    name = former.start(queue, kind="discard", rate=RATE)
    other = Shop(vhost, amqp, start_router(POLICY, **settings))
    eventually(lambda: former.task(name)["counts"]["sent"] >= RATE, 30)
    with frozen(former.router):
        eventually(lambda: other.call("GET", f"/{name}").status_code == 200, 60)
        assert other.call("POST", f"/{name}/cancel").json()["state"] == "cancelled"
        cancelled_s = time.monotonic()
        eventually(lambda: time.monotonic() > cancelled_s + MINUTE_S, 2 * MINUTE_S)
        left = amqp.depth(queue)
    eventually(lambda: former.call("GET", f"/{name}").status_code == 200, 60)
    other.router.stop()
    assert former.ends_led(name, 30, state="cancelled")
    assert consistently(lambda: amqp.depth(queue) == left, 5)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_journal_messages_that_are_published_again_do_not_revive_a_cancelled_task(
    vhost: Vhost, amqp: Client, start_router: Start
) -> None:
    shop = Shop(vhost, amqp, start_router(POLICY))
    queue = shop.failed("work", [str(number) for number in range(LETTERS)])
    name = shop.start(queue, kind="discard", rate=RATE)
    eventually(lambda: shop.task(name)["counts"]["sent"] >= 3 * RATE, 30)
    old = _messages(vhost)
    assert any(b'"action":"task.running"' in body for _, body in old)
    assert shop.call("POST", f"/{name}/cancel").json()["state"] == "cancelled"
    cancelled_s = time.monotonic()
    left = amqp.depth(queue)
    eventually(lambda: time.monotonic() > cancelled_s + MINUTE_S, 2 * MINUTE_S)
    shop.router.stop()
    channel = amqp.connection.channel()
    for properties, body in old:
        channel.basic_publish("", JOURNAL, body, properties)
    shop.router.start()
    assert shop.ends_led(name, 30, state="cancelled")
    assert consistently(lambda: amqp.depth(queue) == left, 5)


def _messages(vhost: Vhost) -> list[OLD_MESSAGE]:
    """All messages of the journal as somebody who may read it sees them."""
    connection = pika.BlockingConnection(pika.URLParameters(vhost.amqp_url))
    channel = connection.channel()
    channel.basic_qos(prefetch_count=100)
    found: list[OLD_MESSAGE] = []
    until_s = time.monotonic() + READ_S  # more of them come all the time
    for method, properties, body in channel.consume(
        JOURNAL, arguments={"x-stream-offset": "first"}, inactivity_timeout=1
    ):
        if method is not None:
            channel.basic_ack(method.delivery_tag)
            properties.headers.pop("x-stream-offset", None)
            found.append((properties, body))
        if time.monotonic() > until_s:
            break
    connection.close()
    return found


KEY: Final = b"k" * 32
SPEC: Final = Spec("/", "DLQ.work", Kind.DISCARD)


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[bytes], Task]:
    """What leaders, one after the other, wrote of one task, and what holds at last.

    A former leader may go on writing progress in its own term, and the clock of a leader may be behind.
    """
    task = Task("t1", SPEC, term=draw(st.integers(1, 3)))
    events, former = [task], [task]
    for _ in range(draw(st.integers(0, 12))):
        step = draw(st.sampled_from(["progress", "leader", "change", "former"]))
        if step == "leader":
            former.append(task)
            task = Task(
                **{**_members(task), "term": max(draw(st.integers(1, 9)), task.term + 1), "change": task.change + 1}
            )
        elif step == "change" and (possible := [state for state in State if _may_become(task, state)]):
            task = changed(task, draw(st.sampled_from(possible)), 0)
        elif step == "progress" and task.state in AT_WORK:
            task = Task(**{**_members(task), "change": task.change + 1})
        elif step == "former" and (old := draw(st.sampled_from(former))).term < task.term:
            events.append(Task(**{**_members(old), "change": old.change + draw(st.integers(0, 9))}))
            continue
        events.append(task)
    return [line(event, "router", KEY) for event in events], task


def _members(task: Task) -> dict[str, Any]:
    return {name: getattr(task, name) for name in Task.__dataclass_fields__}


def _may_become(task: Task, state: State) -> bool:
    try:
        changed(task, state, 0)
    except ValueError:
        return False
    return True


@given(histories(), st.data())
def test_a_task_is_as_its_newest_signed_event_says_wherever_old_events_appear_again(
    history: tuple[list[bytes], Task], data: st.DataObject
) -> None:
    events, last = history
    again = data.draw(st.lists(st.sampled_from(events), max_size=20))
    forged = [line(Task("t1", SPEC, term=99, change=99), "stranger", b"x" * 32)]
    journal = data.draw(st.permutations([*events, *again, *forged]))
    assert _read(journal) == {"t1": last}


def _read(journal: Sequence[bytes]) -> dict[str, Task]:
    known: dict[str, Task] = {}
    for message in journal:
        newest(tasks(message, KEY), known)
    return known


DAY_MS: Final = int(ABANDONED_S * 1000)


@pytest.mark.parametrize(("task", "age_ms", "state"), [
    (Task("t", SPEC), DAY_MS, State.RUNNING),
    (Task("t", SPEC), DAY_MS + 1, State.STOPPED),
    (Task("t", SPEC, State.PAUSED), 9 * DAY_MS, State.PAUSED),
    (Task("t", SPEC, State.CANCELLED), 9 * DAY_MS, State.CANCELLED),
    (Task("t", Spec("/", "DLQ", canary=Canary(1, watch_s=DAY_MS / 1000)), State.WATCHING), 2 * DAY_MS, State.WATCHING),
])  # fmt: skip
def test_a_task_on_which_no_router_has_worked_for_a_day_is_stopped(task: Task, age_ms: int, state: State) -> None:
    """The newer events may be gone from the journal, and the one that is read published again."""
    assert unless_abandoned(task, age_ms).state is state
