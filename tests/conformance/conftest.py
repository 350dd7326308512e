"""`run`: every scenario played once natively and once through one router, all at the same time, and read at the end."""

import os
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from tests.conformance.differences import Outcome, comparable
from tests.conformance.scenario import Scenario, policy_file
from tests.conformance.scenarios import SCENARIOS
from tests.conformance.world import WITHIN_S, Parked, World
from tests.conftest import ROUTERS
from tests.support.raw import RawClient
from tests.support.router import Router
from tests.support.vhost import Vhost
from tools import brokers

AT_ONCE: Final = 24
# What is not confirmed for so long RabbitMQ sends again, and it is there twice: 500 ms are too few on a busy machine.
RESEND_MS: Final = 4000
# Rungs of a held letter end after 1, 3 and 7 s; an absent exchange is looked for again after 5 s.
GRACE: Final = "7s"
_RESEND: Final = "dead_letter_worker_publisher_confirm_timeout"


@dataclass
class Played:
    """What came of a scenario: its outcome, or the error that ended it."""

    error: BaseException | None = None
    outcome: Outcome = field(default_factory=dict)


@dataclass
class Run:
    """Both worlds of one broker. `version` is 3.10, 4.0, 4.3, or another one's first two numbers."""

    version: str
    native: dict[str, Played]
    routed: dict[str, Played]
    resends: bool
    router: Router


@pytest.fixture(scope="module")
def run(broker: brokers.Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Played when the first test asks; some 20 s."""
    version = ".".join(broker.version.split(".")[:2])
    folder = tmp_path_factory.mktemp("conformance")
    with ExitStack() as stack:
        resends = stack.enter_context(resending(broker))
        native, routed = (stack.enter_context(vhost_of(broker, kind)) for kind in ("native", "routed"))
        scenarios = [scenario for scenario in SCENARIOS if resends or not scenario.needs_resend]
        router = stack.enter_context(routing(routed, policy_file(SCENARIOS), folder))
        parked = stack.enter_context(Parked(routed))
        span_from = time.time()
        results = _played(scenarios, {"native": (native, None), "routed": (routed, parked)}, span_from, version)
        yield Run(version, results["native"], results["routed"], resends, router)


@pytest.fixture(autouse=True)
def _shows_the_router(request: pytest.FixtureRequest) -> None:
    if "run" in request.fixturenames:
        request.node.stash[ROUTERS] = [request.getfixturevalue("run").router]


@contextmanager
def vhost_of(broker: brokers.Broker, kind: str) -> Iterator[Vhost]:
    """One end of the comparison, removed afterwards."""
    vhost = Vhost.make(broker, f"conformance-{kind}-{os.getpid()}")
    try:
        yield vhost
    finally:
        vhost.close()


@contextmanager
def routing(vhost: Vhost, policies: str, folder: Path) -> Iterator[Router]:
    """A router with these policies, ready."""
    (folder / "policies.yaml").write_text(policies, encoding="utf-8")
    env = {"UNROUTABLE_GRACE": GRACE}
    urls = {"amqp_url": vhost.amqp_url, "management_url": vhost.management_url}
    router = Router(**urls, policies=folder, log=folder / "router.log", env=env)
    try:
        yield router.start(within=WITHIN_S)
    finally:
        router.close()


@contextmanager
def resending(broker: brokers.Broker) -> Iterator[bool]:
    """RabbitMQ tries undeliverable at-least-once letters again soon, and not after 180 s; False: not ours to say."""
    if not broker.managed:
        yield False
        return
    broker.rabbitmqctl("eval", f"application:set_env(rabbit, {_RESEND}, {RESEND_MS}).")
    try:
        yield True
    finally:
        broker.rabbitmqctl("eval", f"application:set_env(rabbit, {_RESEND}, 180000).")


def _played(
    scenarios: list[Scenario], worlds: dict[str, tuple[Vhost, Parked | None]], span_from: float, version: str
) -> dict[str, dict[str, Played]]:
    with ThreadPoolExecutor(AT_ONCE) as pool:
        futures = {
            (kind, scenario): pool.submit(
                _play, World(vhost, scenario.prefix, scenario.dies, parked, scenario.drops(version)), scenario
            )
            for scenario in sorted(
                scenarios, key=lambda scenario: not scenario.needs_resend
            )  # what takes long begins first
            for kind, (vhost, parked) in worlds.items()
        }
    results: dict[str, dict[str, Played]] = {kind: {} for kind in worlds}
    for kind, (vhost, _) in worlds.items():
        with RawClient(vhost.amqp_url) as raw:
            for scenario in scenarios:
                results[kind][scenario.prefix] = _read(futures[kind, scenario], raw, (span_from, time.time()))
    return results


def _play(world: World, scenario: Scenario, *, tries: int = 2) -> World:
    """Played once more where a letter never left its own at-least-once queue.

    That hop is the broker's: in some one of a hundred plays its dead-letter worker does not start to send.
    """
    with world:
        try:
            scenario.play(world)
        except AssertionError as error:
            left = world.depths()
            if tries == 1 or not scenario.needs_resend or f"{scenario.prefix}.s " not in left:
                raise AssertionError(f"{error}; there are {left}") from error
            return _play(world.cleared(), scenario, tries=tries - 1)
    return world


def _read(future: Future[World], raw: RawClient, span: tuple[float, float]) -> Played:
    try:
        return Played(outcome=comparable(future.result().read(raw), span))
    except Exception as error:  # noqa: BLE001 - the scenario's own test raises it
        return Played(error)
