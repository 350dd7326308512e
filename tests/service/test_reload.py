"""Policies change while letters are on their way: nothing is lost, nothing reconnects, nothing broken is in force."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from tests.support.bulk import INBOX, dying_queue, law_holds, pour, record, rests, take_many
from tests.support.client import Client
from tests.support.eventually import eventually
from tests.support.router import Router
from tests.support.vhost import Vhost

Start = Callable[..., Router]
pytestmark = pytest.mark.usefixtures("newest")

POLICY: Final = """
version: 1
policies:
  - {{name: work, match: "work.#", definition: {{max-delivery-attempts: 1, dead-letter-queue-prefix: "{prefix}."}}}}
"""
BROKEN: Final = "version: 1\npolicies: [{name: work, match: 'work.#', definition: {max-delivery-attempt: 1}}]\n"
NOT_SERVED: Final = "version: 1\npolicies: [{name: w, match: '#', vhost: other}]\n"


def _policy(prefix: str, attached: str = "") -> str:
    text = POLICY.format(prefix=prefix)
    source = f"{{queue: {attached}, accept-delivery-limit: true, dead-letter-exchanges: [amq.fanout, '']}}"
    return text + (f"attachments: [{source}]\n" if attached else "")


def _write(router: Router, text: str) -> None:
    (router.policies / "policies.yaml").write_text(text, encoding="utf-8")


def _reload(router: Router, text: str, result: str) -> None:
    before = router.metric("reloads_total", result=result)
    _write(router, text)
    router.signal(signal.SIGHUP)
    eventually(lambda: router.metric("reloads_total", result=result) > before, within=30)


def _revision(router: Router) -> str:
    return next(dict(labels)["revision"] for (name, labels) in router.metrics() if name == "dlx_router_policy_info")


CONNECTIONS: Final = 3  # one that consumes, one that publishes, one that declares


def _connections(vhost: Vhost) -> set[str]:
    rows = vhost.get("connections?columns=name,vhost,client_properties")
    return {row["name"] for row in rows if row.get("vhost") == vhost.name and "dlx-router" in str(row)}


def _all_connections(vhost: Vhost) -> set[str]:
    """None before the management API knows all three: it learns of each some seconds late."""
    names = _connections(vhost)
    return names if len(names) >= CONNECTIONS else set()


def test_a_changed_file_is_noticed_and_judges_the_next_letter(amqp: Client, start_router: Start) -> None:
    router = start_router(_policy("OLD"))
    dying_queue(amqp, "work.a")
    amqp.publish("one", key="work.a")
    old = _revision(router)
    assert record(amqp.take("OLD.work.a"))["revision"] == old
    _write(router, _policy("NEW"))
    eventually(lambda: _revision(router) != old, within=30)
    amqp.publish("two", key="work.a")
    fields = record(amqp.take("NEW.work.a"))
    assert fields["revision"] == _revision(router)
    assert "policies.reloaded" in router.output


def test_a_mount_whose_link_is_turned_is_noticed(tmp_path: Path, amqp: Client, start_router: Start) -> None:
    """As Kubernetes updates a ConfigMap: files are links into ..data, and ..data is a link that is replaced."""
    mount = tmp_path / "mount"
    for version in ("OLD", "NEW"):
        (mount / f"..{version}").mkdir(parents=True)
        (mount / f"..{version}" / "policies.yaml").write_text(_policy(version), encoding="utf-8")
    (mount / "..data").symlink_to("..OLD")
    (mount / "policies.yaml").symlink_to("..data/policies.yaml")
    router = start_router(mount)
    old = _revision(router)
    (mount / "..data_tmp").symlink_to("..NEW")
    (mount / "..data_tmp").replace(mount / "..data")
    eventually(lambda: _revision(router) != old, within=30)
    dying_queue(amqp, "work.a")
    amqp.publish("one", key="work.a")
    assert amqp.take("NEW.work.a").body == b"one"


def test_a_broken_revision_is_refused_whole(amqp: Client, start_router: Start) -> None:
    router = start_router(_policy("OLD"))
    old = _revision(router)
    dying_queue(amqp, "work.a")
    for broken in (BROKEN, "", "a: [", NOT_SERVED):
        _reload(router, broken, "failure")
        assert _revision(router) == old
        status, text = router.ask("/readyz")
        assert status == 200, "the old revision does its work"
        assert f"revision {old} stays in force" in text
        assert router.metric("policies_refused") == 1
        amqp.publish("one", key="work.a")
        assert record(amqp.take("OLD.work.a"))["revision"] == old
    assert "policies.refused" in router.output
    assert 'did you mean \\"max-delivery-attempts\\"' in router.output, "the log says where, what, what now"
    _reload(router, _policy("NEW"), "success")
    assert "stays in force" not in router.ask("/readyz")[1]
    assert router.metric("policies_refused") == 0


def test_what_exact_policies_need_is_there_before_the_first_letter(
    vhost: Vhost, amqp: Client, start_router: Start
) -> None:
    router = start_router(_policy("OLD"))
    amqp.queue("orders", dead_letter_exchange=INBOX)
    exact = "version: 1\npolicies: [{name: orders, queue: orders, definition: {dead-letter-queue-prefix: 'made.'}}]\n"
    _reload(router, exact, "success")
    assert "made.orders" in vhost.queues()


def _holds_more(amqp: Client, queue: str, moved: int) -> bool:
    return amqp.exists(queue) and amqp.depth(queue) > moved


def test_attachments_that_go_under_load_give_nothing_back(vhost: Vhost, amqp: Client, start_router: Start) -> None:
    amqp.queue("legacy", "quorum")  # counts each delivery
    amqp.queue("work.a", message_ttl=0, dead_letter_exchange="", dead_letter_routing_key="legacy")
    router = start_router(_policy("OLD"))
    before = eventually(partial(_all_connections, vhost), 20)
    with _flood(vhost, "work.a", 400) as batches:
        for number in range(3):
            _reload(router, _policy("OLD", attached="legacy") + f"# {number}\n", "success")
            moved = amqp.depth("OLD.work.a") if number else 0
            eventually(partial(_holds_more, amqp, "OLD.work.a", moved), within=20)
            _reload(router, _policy("OLD") + f"# {number}\n", "success")
    eventually(lambda: router.output.count("source.left") == 3, within=30)
    rests(router)
    eventually(lambda: amqp.depth("legacy") + amqp.depth("OLD.work.a") == sum(batches), within=30)
    waiting = take_many(amqp, "legacy", amqp.depth("legacy"))
    assert not [message for message in waiting if message.headers.get("x-acquired-count", 0) > 1], "never given back"
    seen = [message.body for message in (*waiting, *take_many(amqp, "OLD.work.a", amqp.depth("OLD.work.a")))]
    assert sorted(map(int, seen)) == [*range(sum(batches))]
    assert (router.metric("given_back_total"), _connections(vhost)) == (0, before)


def test_waiting_letters_keep_their_decision(amqp: Client, start_router: Start) -> None:
    slow = "version: 1\npolicies: [{name: w, match: 'work.#', definition: {redelivery-delay: 2s}}]\n"
    router = start_router(slow)
    old = _revision(router)
    amqp.queue("work.a", dead_letter_exchange=INBOX)
    amqp.publish("one", key="work.a")
    amqp.fail("work.a")
    eventually(lambda: router.metric("settled_total", action="retry") == 1)
    _reload(router, _policy("NEW"), "success")
    back = amqp.await_message("work.a")
    assert record(back)["revision"] == old
    back.reject()
    assert record(amqp.take("NEW.work.a"))["revision"] == _revision(router), "the next death is judged by the new set"


@contextmanager
def _flood(vhost: Vhost, queue: str, rate: int) -> Iterator[list[int]]:
    """`rate` numbered letters a second while the block lasts; the list grows by the size of each batch."""
    batches: list[int] = []
    ended = threading.Event()

    def publish() -> None:
        with Client(vhost.amqp_url) as client:
            started = time.monotonic()
            while not ended.is_set():
                done, due = sum(batches), int((time.monotonic() - started) * rate) + 1
                pour(client, queue, map(str, range(done, due)))
                batches.append(max(due - done, 0))
                ended.wait(0.02)

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        yield batches
    finally:
        ended.set()
        thread.join()


def _many_reloads(vhost: Vhost, router: Router, *, rounds: int, rate: int, every_s: float) -> None:
    """`rounds` reloads, every second broken, while letters die; each letter is in one of the two dead-letter queues."""
    with Client(vhost.amqp_url) as amqp:
        dying_queue(amqp, "work.a")
        before = eventually(partial(_all_connections, vhost), 20)
        with _flood(vhost, "work.a", rate) as batches:
            started = time.monotonic()
            for number in range(rounds):
                _reload_one_of_many(router, number)
                time.sleep(max(started + (number + 1) * every_s - time.monotonic(), 0))  # the rate of reloads
            took_s = time.monotonic() - started
        sent = sum(batches)
        print(f"{rounds} reloads and {sent} letters in {took_s:.1f} s")  # noqa: T201 - with -s, for whoever measures
        eventually(lambda: router.metric("settled_total", action="dead_letter") >= sent, within=120)
        rests(router)
        queues = ("OLD.work.a", "NEW.work.a")
        seen = [message.body for queue in queues for message in take_many(amqp, queue, amqp.depth(queue), within=120)]
    assert sorted(map(int, seen)) == [*range(sent)], "each once, none lost"
    assert _connections(vhost) == before, "no reconnect"
    assert (router.metric("given_back_total"), router.metric("publish_refused_total")) == (0, 0)
    assert router.metric("reloads_total", result="failure") == rounds // 2
    eventually(partial(law_holds, router))


def _reload_one_of_many(router: Router, number: int) -> None:
    text = BROKEN if number % 2 else _policy("OLD" if number % 4 else "NEW")
    _reload(router, f"{text}# {number}\n", "failure" if number % 2 else "success")


def test_many_reloads_under_load_lose_nothing_and_reconnect_never(vhost: Vhost, start_router: Start) -> None:
    _many_reloads(vhost, start_router(_policy("OLD")), rounds=20, rate=500, every_s=0)
