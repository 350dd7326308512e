"""Whichever replica is asked, the leader leases: workers behind a load balancer notice nothing of who leads."""

from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.leases.conftest import Bench, body_of
from tests.support.client import Client
from tests.support.plain_http import NO_TLS
from tests.support.policies import POLICY
from tests.support.router import Router
from tests.support.vhost import Vhost

pytestmark = pytest.mark.usefixtures("newest")  # what it shows is the same on every version


@pytest.fixture
def pair(vhost: Vhost, amqp: Client, start_router: Callable[..., Router], tmp_path: Path) -> tuple[Bench, Bench, str]:
    """The leader, another replica, and a dead-letter queue in which nothing lies."""
    (tmp_path / "key").write_text("0123456789abcdef0123456789abcdef", encoding="utf-8")
    shared = {"PROVENANCE_KEY_FILE": str(tmp_path / "key"), "HEARTBEAT": "2"}
    first = Bench(vhost, amqp, start_router(POLICY, **shared))
    queue = first.failed("work", ["nothing"])
    assert first.ended(first.receive(queue)[0], "done") == "done"
    return first, Bench(vhost, amqp, start_router(POLICY, **shared)), queue


def died(bench: Bench, body: str) -> None:
    bench.amqp.publish(body, key="work", message_id=body)
    bench.amqp.fail("work")


@pytest.mark.slow
def test_letters_are_received_and_worked_off_at_a_replica_that_does_not_lead(pair: tuple[Bench, Bench, str]) -> None:
    first, second, queue = pair
    for body in ("done", "back", "aside"):
        died(first, body)
    letters = second.receive(queue, max=3, wait=10, visibility="10m")
    letters += second.receive(queue, max=3, wait=1, visibility="10m")
    assert first.receive(queue) == [], "they are leased, wherever somebody asks"
    aside, back, done = sorted(letters, key=body_of)  # two routers brought them there
    assert [body_of(letter) for letter in (aside, back, done)] == ["aside", "back", "done"]
    assert second.ended(done, "done") == "done"
    assert first.ended(back, "redrive") == "redriven"
    assert second.ended(aside, "park") == "parked"
    again = second.change(done, "done")
    assert (again.status_code, again.json()["ended"]) == (410, "done")
    assert second.asked(queue, filter="header(").status_code == 409
    assert first.amqp.take("work").body == b"back"


@pytest.mark.slow
def test_who_hangs_up_at_a_replica_is_given_no_letter(pair: tuple[Bench, Bench, str]) -> None:
    """It would be leased to nobody until that lease is over: here for ten minutes."""
    first, second, queue = pair
    url = f"http://127.0.0.1:{second.router.port}/api/v1/queues/{queue}/receive"
    asked = {"vhost": first.vhost.name, "wait": 15, "visibility": "10m"}
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(url, json=asked, timeout=1.5, trust_env=False, verify=NO_TLS)
    died(first, "hello")
    (letter,) = first.receive(queue, wait=20)
    assert body_of(letter) == "hello"


@pytest.mark.slow
def test_a_wait_at_a_replica_is_as_long_as_at_the_leader(pair: tuple[Bench, Bench, str]) -> None:
    """A connection of the port ends after 10 s, and so does a question to another router."""
    _, second, queue = pair
    began = httpx.post(
        f"http://127.0.0.1:{second.router.port}/api/v1/queues/{queue}/receive",
        json={"vhost": second.vhost.name, "wait": 13},
        timeout=30,
        trust_env=False,
        verify=NO_TLS,
    )
    assert (began.status_code, began.json()) == (200, {"letters": []})
    assert began.elapsed.total_seconds() > 12
