"""Lines that lie: half-open, stalled and slow ones between router and broker, and a replica that dies.

Heartbeats find what the network does not tell: with HEARTBEAT=1 a dead line is given up after 2 to 3 s on either side.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.bulk import bodies, dying_queue, every_body, frozen, pour, rests, take_many
from tests.support.client import Client
from tests.support.eventually import consistently, eventually
from tests.support.proxy import Proxy
from tests.support.router import Router
from tests.support.vhost import Vhost

Start = Callable[..., Router]

POLICIES = """
version: 1
policies:
  - {name: work, match: "work.#", definition: {dead-letter-exchange: target}}
"""


@pytest.fixture
def line(vhost: Vhost) -> Iterator[Proxy]:
    port = urlsplit(vhost.amqp_url).port
    assert port
    with Proxy(port) as proxy:
        yield proxy


@pytest.fixture
def target(amqp: Client) -> str:
    amqp.bind(amqp.queue("arrived", "quorum"), amqp.exchange("target", "fanout"))
    return "arrived"


@pytest.fixture
def behind(line: Proxy, vhost: Vhost) -> dict[str, str]:
    """Settings of a router that reaches its broker by the line."""
    place = urlsplit(vhost.amqp_url)
    return {"AMQP_URL": place._replace(netloc=f"guest:guest@127.0.0.1:{line.port}").geturl(), "HEARTBEAT": "1"}


def names(first: int, last: int) -> list[str]:
    return [str(number) for number in range(first, last)]


@pytest.mark.slow
@pytest.mark.parametrize("direction", ["up", "down"])
@pytest.mark.usefixtures("newest")
def test_a_half_open_line_is_given_up_and_its_letters_arrive(
    direction: str, amqp: Client, target: str, line: Proxy, behind: dict[str, str], start_router: Start
) -> None:
    router = start_router(POLICIES, **behind)
    dying_queue(amqp, "work.a")
    with frozen(router):
        pour(amqp, "work.a", names(0, 300))
        line.half_open(direction)  # type: ignore[arg-type]  # parametrised
    pour(amqp, "work.a", names(300, 400))
    eventually(lambda: "session.ended" in router.output, within=10)
    line.heal()
    assert every_body(amqp, target, 400, within=20) == set(names(0, 400))
    router.await_ready()
    rests(router)


def test_a_stalled_line_that_moves_again_in_time_costs_nothing(
    amqp: Client, target: str, line: Proxy, behind: dict[str, str], start_router: Start
) -> None:
    router = start_router(POLICIES, **behind | {"HEARTBEAT": "10"})
    dying_queue(amqp, "work.a")
    line.stall()
    pour(amqp, "work.a", names(0, 200))
    consistently(lambda: amqp.depth(target) == 0, 1)
    line.heal()
    assert bodies(take_many(amqp, target, 200)) == sorted(names(0, 200))
    rests(router)
    assert amqp.depth(target) == 0
    assert "session.ended" not in router.output


@pytest.mark.slow
def test_a_slow_line_is_slow_and_nothing_else(
    amqp: Client, target: str, line: Proxy, behind: dict[str, str], start_router: Start
) -> None:
    router = start_router(POLICIES, **behind | {"HEARTBEAT": "10"})
    dying_queue(amqp, "work.a")
    line.slow(100_000)
    pour(amqp, "work.a", [f"{number} {'x' * 1000}" for number in range(200)])
    eventually(lambda: 0 < amqp.depth(target) < 200)
    assert len(take_many(amqp, target, 200, within=30)) == 200
    rests(router)
    assert "session.ended" not in router.output


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [2, 3])
def test_a_replica_that_dies_leaves_its_letters_to_the_others(
    replicas: int, amqp: Client, target: str, start_router: Start, tmp_path: Path
) -> None:
    key = tmp_path / "key"
    key.write_text("k" * 32, encoding="utf-8")
    routers = [start_router(POLICIES, HEARTBEAT="2", PROVENANCE_KEY_FILE=str(key)) for _ in range(replicas)]
    dying_queue(amqp, "work.a")
    with frozen(routers[0]):  # it holds its share, and settles none of it
        pour(amqp, "work.a", names(0, 600))
        eventually(lambda: sum(router.metric("settled_total") for router in routers[1:]) > 0)
        assert amqp.depth(target) < 600
        routers[0].kill()
    arrived = every_body(amqp, target, 600)
    assert arrived == set(names(0, 600))


@pytest.mark.slow
def test_a_replica_that_falls_silent_is_replaced(
    amqp: Client, target: str, line: Proxy, behind: dict[str, str], start_router: Start, tmp_path: Path
) -> None:
    key = tmp_path / "key"
    key.write_text("k" * 32, encoding="utf-8")
    start_router(POLICIES, HEARTBEAT="1", PROVENANCE_KEY_FILE=str(key))
    silent = start_router(POLICIES, **behind, PROVENANCE_KEY_FILE=str(key))
    dying_queue(amqp, "work.a")
    with frozen(silent):
        pour(amqp, "work.a", names(0, 600))
        line.half_open("up")
    arrived = every_body(amqp, target, 600)
    assert arrived == set(names(0, 600))
