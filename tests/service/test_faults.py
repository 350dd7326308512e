"""What goes wrong, one scene for each row of the failure table: nothing is lost, and neighbours pay nothing."""

import itertools
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, Final
from urllib.parse import quote, urlsplit

import pytest
from pamqp import commands, header

from tests.conftest import ROUTERS
from tests.journal.stream import events
from tests.support.alone import alone, refuse_over
from tests.support.asleep import asleep
from tests.support.bulk import (
    INBOX,
    PARKING,
    QUARANTINE,
    bodies,
    dying_queue,
    every_body,
    frozen,
    law_holds,
    pour,
    record,
    rests,
    take_many,
)
from tests.support.client import Client
from tests.support.eventually import eventually
from tests.support.router import Router
from tests.support.vhost import Vhost
from tools import brokers
from tools.bench.wire import Wire
from tools.chaos.audit import Plan, audit

Start = Callable[..., Router]

TWO_TARGETS: Final = """
version: 1
policies:
  - name: one
    match: "one.#"
    definition: {dead-letter-exchange: first}
  - name: other
    match: "other.#"
    definition: {dead-letter-exchange: second}
"""
WAITS: Final = """
version: 1
policies:
  - name: waits
    match: "work.#"
    definition: {max-delivery-attempts: 3, redelivery-delay: 1s}
"""


@pytest.fixture(autouse=True)
def _the_law_of_the_metrics(start_router: Start, request: pytest.FixtureRequest) -> Iterator[None]:
    """After each scene: deliveries = settled + given back + in flight."""
    yield
    for router in request.node.stash[ROUTERS]:
        if router.running:
            eventually(partial(law_holds, router), within=5)


def _target(amqp: Client, exchange: str, queue: str, **arguments: Any) -> None:
    amqp.bind(amqp.queue(queue, **arguments), amqp.exchange(exchange, "fanout"))


# -- targets that are not there ---------------------------------------------------------------------------------------


def test_a_missing_exchange_among_a_thousand_in_flight_costs_its_neighbours_nothing(
    amqp: Client, start_router: Start
) -> None:
    _target(amqp, "first", "arrived")
    _target(amqp, "second", "gone")
    router = start_router(TWO_TARGETS, UNROUTABLE_GRACE="1s", PREFETCH="2000")
    dying_queue(amqp, "one.a")
    dying_queue(amqp, "other.a")
    pour(amqp, "other.a", ["known"])
    take_many(amqp, "gone", 1)
    with frozen(router):
        for start in range(0, 1000, 100):
            pour(amqp, "one.a", [str(number) for number in range(start, start + 99)])
            pour(amqp, "other.a", [str(start + 99)])
        amqp.channel.exchange_delete("second")
    astray = {str(number) for number in range(99, 1000, 100)}
    arrived = every_body(amqp, "arrived", 990)
    assert arrived == {str(number) for number in range(1000)} - astray
    parked = take_many(amqp, PARKING, 10)
    assert set(bodies(parked)) == astray
    assert {(record(letter)["cause"], record(letter)["target"]) for letter in parked} == {
        ("missing_exchange", "second")
    }
    rests(router)
    assert router.metric("publish_refused_total", cause="closed") >= 1, "the broker did close the channel"
    assert amqp.depth("arrived") <= 990, "each neighbour is sent once more at most"
    assert amqp.depth(QUARANTINE) == 0
    assert router.ask("/readyz")[0] == 200


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_an_exchange_that_appears_within_the_grace_gets_its_letters(amqp: Client, start_router: Start) -> None:
    router = start_router(TWO_TARGETS)
    pour(amqp, dying_queue(amqp, "one.a"), ["early"])
    eventually(lambda: router.metric("settled_total", action="hold") >= 1)
    _target(amqp, "first", "arrived")
    assert amqp.take("arrived", within=20).body == b"early"


def test_a_target_without_write_right_parks_its_letters_as_forbidden(
    amqp: Client, vhost: Vhost, start_router: Start
) -> None:
    _target(amqp, "first", "arrived")
    _target(amqp, "second", "secret")
    with _least_privileged(vhost, write=r"^(dlx-router\..*|amq\.default|first)$") as url:
        router = start_router(TWO_TARGETS, UNROUTABLE_GRACE="1s", AMQP_URL=url)
        dying_queue(amqp, "one.a")
        dying_queue(amqp, "other.a")
        with frozen(router):
            for number in range(100):
                pour(amqp, "one.a", [f"free-{number}"])
            pour(amqp, "other.a", ["forbidden-1", "forbidden-2", "forbidden-3"])
            for number in range(100, 200):
                pour(amqp, "one.a", [f"free-{number}"])
        assert every_body(amqp, "arrived", 200) == {f"free-{number}" for number in range(200)}
        parked = take_many(amqp, PARKING, 3)
        assert bodies(parked) == ["forbidden-1", "forbidden-2", "forbidden-3"]
        assert {(record(letter)["cause"], record(letter)["target"]) for letter in parked} == {("forbidden", "second")}
        assert amqp.depth("secret") == 0
        rests(router)
        router.close()


class _least_privileged:  # noqa: N801 - reads as a sentence
    """A user that owns the router's names, reads everything, and writes only what is said; gone afterwards."""

    def __init__(self, vhost: Vhost, *, write: str) -> None:
        self._vhost, self._user = vhost, f"{vhost.name}-user"
        path = quote(self._user, safe="")
        vhost.put(f"users/{path}", {"password": "s3cret", "tags": ""})
        rights = {"configure": r"^dlx-router\..*", "write": write, "read": ".*"}
        vhost.put(f"permissions/{vhost.quoted}/{path}", rights)

    def __enter__(self) -> str:
        place = urlsplit(self._vhost.amqp_url)
        return f"amqp://{quote(self._user)}:s3cret@{place.hostname}:{place.port}{place.path}"

    def __exit__(self, *_: object) -> None:
        self._vhost.api.delete(f"users/{quote(self._user, safe='')}").raise_for_status()


# -- targets that are full --------------------------------------------------------------------------------------------


@pytest.mark.measure
def test_a_target_full_with_5000_letters_leaves_the_others_four_fifths_of_their_rate(
    amqp: Client, vhost: Vhost, start_router: Start
) -> None:
    _target(amqp, "first", "full", max_length=100, overflow="reject-publish")
    _target(amqp, "second", "arrived")
    router = start_router(TWO_TARGETS)
    dying_queue(amqp, "one.a")
    dying_queue(amqp, "other.a")
    _rate(amqp, vhost, router)  # warm
    without = fmean(_rate(amqp, vhost, router) for _ in range(4))
    pour(amqp, "one.a", [f"full-{number}" for number in range(5000)])
    eventually(lambda: _waiting(vhost, amqp) >= 4500, within=60)
    since, beside = time.monotonic(), []
    while time.monotonic() - since < 60:  # they come back after 1, 2, 4, ... seconds, so the first minute is the worst
        beside.append(_rate(amqp, vhost, router))
    ratio = fmean(beside) / without
    print(  # noqa: T201 - the number that is asked for
        f"\nfree letters: {without:.0f}/s alone; beside a full target {fmean(beside):.0f}/s over its first minute, "
        f"at worst {min(beside):.0f}/s; ratio {ratio:.2f}"
    )
    assert ratio >= 0.8
    eventually(lambda: _waiting(vhost, amqp) + amqp.depth("full") == 5000, within=60)


def _waiting(vhost: Vhost, amqp: Client) -> int:
    """Letters in the rungs at this moment."""
    return sum(amqp.depth(queue) for queue in vhost.queues() if queue.startswith("dlx-router.delay."))


_DIED: Final[dict[str, Any]] = {
    "queue": "other.a",
    "reason": "expired",
    "exchange": "",
    "routing-keys": ["other.a"],
    "count": 1,
}
_FIRST: Final = {"x-first-death-queue": "other.a", "x-first-death-reason": "expired", "x-first-death-exchange": ""}


def _rate(amqp: Client, vhost: Vhost, router: Router, letters: int = 50_000) -> float:
    """Letters of the free policy a second, from the router's first read to the last arrival.

    They are filled in fast: what comes due while the router stands still is done in the time that is measured.
    """
    properties = commands.Basic.Properties(headers={"x-death": [_DIED], **_FIRST}, delivery_mode=2)
    head = header.ContentHeader(0, 8, properties).marshal()
    with frozen(router), Wire(vhost.amqp_url) as wire:
        wire.fill("", INBOX, letters, lambda number: (head, b"%08d" % number))
    started = time.monotonic()
    eventually(lambda: amqp.depth("arrived") >= letters, within=60)
    took = time.monotonic() - started
    amqp.channel.queue_purge("arrived")
    return letters / took


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_a_target_that_does_not_confirm_in_time_has_refused_and_is_asked_again(
    amqp: Client, vhost: Vhost, start_router: Start
) -> None:
    """It is no missing route: its letters are held, as those of a full target, and never parked for that."""
    _target(amqp, "first", "slow")
    _target(amqp, "second", "fine")
    router = start_router(TWO_TARGETS, CONFIRM_TIMEOUT="1s", UNROUTABLE_GRACE="0s")
    dying_queue(amqp, "one.a")
    dying_queue(amqp, "other.a")
    numbers, others = [str(number) for number in range(20)], itertools.count()
    with asleep(vhost, "slow"):
        pour(amqp, "one.a", numbers)

        def held_in_the_midst_of_others() -> bool:
            pour(amqp, "other.a", [str(next(others))])
            return router.metric("settled_total", action="hold") >= len(numbers)

        eventually(held_in_the_midst_of_others, 20)
        count = next(others)
        assert every_body(amqp, "fine", count) == set(map(str, range(count)))
        held = [event for event in events(vhost.amqp_url) if event["kind"] == "held"]
        assert {(event["cause"], event["refused"]) for event in held} == {("target_refused", "first")}
        assert router.metric("publish_refused_total", cause="timeout") >= 1
    assert every_body(amqp, "slow", len(numbers)) == {*numbers}
    assert amqp.depth(PARKING) == 0
    assert "session.ended" not in router.output


# -- queues that were deleted -----------------------------------------------------------------------------------------


def test_a_deleted_failed_queue_parks_its_waiting_letters_and_delays_no_others(
    amqp: Client, start_router: Start
) -> None:
    start_router(WAITS.replace("1s", "3s"), UNROUTABLE_GRACE="15s")
    for name in ("work.gone", "work.stays"):
        pour(amqp, amqp.queue(name, dead_letter_exchange=INBOX), [f"{name}-{number}" for number in range(50)])
    letters = [amqp.await_message(name) for name in ("work.gone", "work.stays") for _ in range(50)]
    for letter in letters:  # all at once: one that is back already would be deleted with its queue
        letter.reject()
    failed_at = time.monotonic()
    amqp.channel.queue_delete("work.gone")
    back = take_many(amqp, "work.stays", 50)
    assert time.monotonic() - failed_at < 15, "they do not wait for the grace of the others"
    assert bodies(back) == sorted(f"work.stays-{number}" for number in range(50))
    parked = take_many(amqp, PARKING, 50)
    assert bodies(parked) == sorted(f"work.gone-{number}" for number in range(50))
    assert {(record(letter)["cause"], record(letter)["target"]) for letter in parked} == {("unroutable", "work.gone")}


@pytest.mark.usefixtures("newest")
def test_a_deleted_source_is_named_by_readiness_and_attended_again_once_it_is_back(
    amqp: Client, start_router: Start
) -> None:
    policies = TWO_TARGETS + "attachments: [{queue: legacy.failed, dead-letter-exchanges: ''}]\n"
    _target(amqp, "first", "arrived")
    amqp.queue("legacy.failed")
    router = start_router(policies)
    amqp.queue("one.a", message_ttl=0, dead_letter_exchange="", dead_letter_routing_key="legacy.failed")
    amqp.publish("before", key="one.a")
    assert amqp.take("arrived").body == b"before"
    amqp.channel.queue_delete("legacy.failed")
    eventually(lambda: "legacy.failed" in router.ask("/readyz")[1])
    assert router.ask("/livez")[0] == 200
    pour(amqp, dying_queue(amqp, "one.b"), ["meanwhile"])
    assert amqp.take("arrived").body == b"meanwhile"
    amqp.queue("legacy.failed")
    router.await_ready()
    amqp.publish("after", key="one.a")
    assert amqp.take("arrived").body == b"after"


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_a_parking_that_refuses_is_named_and_its_letters_wait_in_the_inbox(
    amqp: Client, vhost: Vhost, start_router: Start
) -> None:
    router = start_router(TWO_TARGETS, UNROUTABLE_GRACE="0s", MANAGEMENT_URL="")  # else the policy is seen beforehand
    vhost.policy("small", "^dlx-router[.]parking$", {"max-length": 1, "overflow": "reject-publish"})
    for number in range(20):
        amqp.publish(str(number), key=INBOX)
    eventually(lambda: "dlx-router.parking refused a letter" in router.ask("/readyz")[1], within=20)
    assert router.ask("/readyz")[0] == 503
    vhost.api.delete(f"policies/{vhost.quoted}/small").raise_for_status()
    router.await_ready(within=40)
    assert every_body(amqp, PARKING, 20, within=40) == {str(number) for number in range(20)}
    eventually(lambda: law_holds(router))


@pytest.mark.slow
def test_a_letter_of_the_inbox_that_is_over_the_size_that_may_be_published_is_quarantined(
    own_broker: brokers.Node, tmp_path: Path
) -> None:
    with alone(own_broker, tmp_path, TWO_TARGETS) as (router, amqp):
        router.start()
        router.stop()  # 3.10 tells a channel the limit as it opens
        amqp.publish("x" * 20_000, key=INBOX)
        refuse_over(own_broker, 10_000)
        router.start(wait=False)
        assert amqp.take(QUARANTINE, within=30).body == b"x" * 20_000
        amqp.publish("next", key=INBOX)
        assert amqp.take(PARKING).body == b"next"
        eventually(lambda: law_holds(router))


# -- waits ------------------------------------------------------------------------------------------------------------


# -- what cannot be read or carried -----------------------------------------------------------------------------------


def test_a_header_near_a_frame_is_kept_and_stops_nobody(amqp: Client, start_router: Start) -> None:
    _target(amqp, "first", "arrived")
    router = start_router(TWO_TARGETS)
    dying_queue(amqp, "one.a")
    # Content header: 14 bytes of class, weight, size and flags; the frame adds 8. The rest is ours to fill.
    spares = (1500, 900, 500, 250, 60, 0)
    for spare in spares:
        pour(amqp, "one.a", [f"large-{spare}"], {"x": "y" * (131_072 - 8 - 14 - 4 - 1 - 7 - spare)})
        pour(amqp, "one.a", [f"{spare}-{number}" for number in range(50)])
    total = 51 * len(spares)
    eventually(lambda: router.metric("settled_total") >= total, within=60)
    rests(router)
    arrived = bodies(take_many(amqp, "arrived", amqp.depth("arrived")))
    kept = bodies(take_many(amqp, QUARANTINE, total - len(arrived)))  # the broker moves it there, a moment later
    large = [f"large-{spare}" for spare in spares]
    assert sorted(arrived + kept) == sorted(
        [*large, *(f"{spare}-{number}" for spare in spares for number in range(50))]
    )
    assert {*kept} <= {*large}
    assert router.ask("/readyz")[0] == 200
    assert "session.ended" not in router.output


# -- the router is killed ---------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_letters_survive_a_router_killed_twice_in_the_middle_of_its_work(vhost: Vhost) -> None:
    report = audit(vhost.amqp_url, vhost.management_url, Plan(letters=5000, kills=2, seed=7, wait_ms=1500, least=0.02))
    assert report.violations == [], str(report)
    assert len(report.kills) == 2
