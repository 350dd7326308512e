"""The wall clock jumps by days, or differs between replicas: a letter still waits as long as was decided."""

import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from dlx_router.service.inflight import clock as clock_module
from tests.support.bulk import INBOX
from tests.support.client import Client
from tests.support.eventually import eventually
from tests.support.router import Router
from tools import brokers

DAY_S: Final = 86_400.0
CLOCK: Final = Path(brokers.__file__).parents[1] / "chaos" / "clock"
POLICIES: Final = """
version: 1
policies:
  - name: work
    queue: work
    definition: {redelivery-delay: 1200ms}
delayed:
  - {exchange: later, to: amq.topic}
"""


class Clocks(NamedTuple):
    """Both clocks of one module, in seconds."""

    wall: list[float]
    steady: list[float]

    def time(self) -> float:
        return self.wall[0]

    def monotonic(self) -> float:
        return self.steady[0]

    def go_on(self, seconds: float, *, jump: float = 0.0) -> None:
        self.wall[0] += seconds + jump
        self.steady[0] += seconds


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    fakes = Clocks([1_700_000_000.0], [5.0])
    monkeypatch.setattr(clock_module, "time", fakes)
    return fakes


@pytest.mark.parametrize("jump", [DAY_S, -DAY_S, 3600.0, -2.0])
def test_a_jump_counts_once_it_has_lasted(clocks: Clocks, jump: float) -> None:
    wall_clock = clock_module.Clock()
    assert wall_clock.now_ms() == 1_700_000_000_000
    clocks.go_on(10, jump=jump)
    assert wall_clock.now_ms() == 1_700_000_010_000
    clocks.go_on(clock_module.LASTS_S - 1)
    assert wall_clock.now_ms() == 1_700_000_069_000
    clocks.go_on(2)
    assert wall_clock.now_ms() == round((1_700_000_071 + jump) * 1000)


def test_a_jump_and_back_was_nothing(clocks: Clocks) -> None:
    wall_clock = clock_module.Clock()
    wall_clock.now_ms()
    clocks.go_on(1, jump=DAY_S)
    wall_clock.now_ms()
    clocks.go_on(1, jump=-DAY_S)
    assert wall_clock.now_ms() == 1_700_000_002_000


class Clock:
    """The wall clock of routers that were started since."""

    def __init__(self, file: Path) -> None:
        self._file = file
        file.write_bytes(struct.pack("d", 0.0))

    def set(self, seconds: float) -> None:
        """So many seconds off."""
        with self._file.open("r+b") as opened:
            opened.write(struct.pack("d", seconds))

    @contextmanager
    def off(self, seconds: float) -> Iterator[None]:
        """So many seconds off for a while."""
        self.set(seconds)
        yield
        self.set(0.0)


@pytest.fixture
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clock:
    fake = Clock(tmp_path / "clock")
    monkeypatch.setenv("PYTHONPATH", str(CLOCK))
    monkeypatch.setenv("CHAOS_CLOCK", str(tmp_path / "clock"))
    return fake


def decided(router: Router, action: str = "retry") -> float:
    return router.metric("settled_total", action=action)


def returned(amqp: Client, queue: str, since: float) -> float:
    """How long it took from then on until the message was there again."""
    amqp.take(queue)
    return time.monotonic() - since


@pytest.mark.parametrize("days", [1, -1])
@pytest.mark.usefixtures("newest")
def test_a_clock_that_is_days_off_when_a_retry_is_decided_does_not_change_its_wait(
    clock: Clock, start_router: Callable[..., Router], amqp: Client, days: int
) -> None:
    router = start_router(POLICIES)
    amqp.queue("work", dead_letter_exchange=INBOX)
    amqp.publish("hello", key="work")
    with clock.off(days * DAY_S):
        amqp.fail("work")
        failed = time.monotonic()
        eventually(lambda: decided(router) == 1)
    assert returned(amqp, "work", failed) >= 1.15


@pytest.mark.parametrize("days", [1, -1])
@pytest.mark.usefixtures("newest")
def test_a_router_that_begins_with_another_clock_keeps_to_the_waits(
    clock: Clock, start_router: Callable[..., Router], amqp: Client, days: int
) -> None:
    """Decided by a clock that is days off, over while no router runs, released by one that is right."""
    clock.set(days * DAY_S)
    router = start_router(POLICIES.replace("1200ms", "1900ms"))
    amqp.queue("work", dead_letter_exchange=INBOX)
    amqp.publish("hello", key="work")
    amqp.fail("work")
    failed = time.monotonic()
    eventually(lambda: decided(router) == 1)
    router.stop()
    clock.set(0.0)
    router.start()
    assert returned(amqp, "work", failed) >= 1.85
    assert router.metric("waits_cut_total") == (1 if days > 0 else 0)


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_replicas_whose_clocks_are_an_hour_apart_keep_to_the_waits(
    clock: Clock, start_router: Callable[..., Router], amqp: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "key").write_text("k" * 32, encoding="utf-8")
    (tmp_path / "other").write_bytes(struct.pack("d", -3600.0))
    both: dict[str, Any] = {"PROVENANCE_KEY_FILE": str(tmp_path / "key")}
    routers = [start_router(POLICIES, **both)]
    monkeypatch.setenv("CHAOS_CLOCK", str(tmp_path / "other"))
    routers.append(start_router(POLICIES, **both))
    amqp.queue("work", dead_letter_exchange=INBOX)
    for number in range(20):
        amqp.publish(str(number), key="work")
        amqp.fail("work")
    failed = time.monotonic()
    eventually(lambda: amqp.depth("work") == 20)
    assert time.monotonic() - failed > 0.9, "the last one waits 1.2 s"
    assert routers[0].metric("waits_cut_total") == 0, "its clock is right"
    assert routers[1].metric("waits_cut_total") > 0


@pytest.mark.parametrize("days", [1, -1])
@pytest.mark.usefixtures("newest")
def test_a_relayed_message_does_not_die_of_a_jump_of_the_clock(
    clock: Clock, start_router: Callable[..., Router], amqp: Client, days: int
) -> None:
    """An hour to live, counted from its arrival; nothing is bound to its target, so it waits."""
    policies = """
version: 1
attachments:
  - {queue: hop, mode: relay, forward-to: {exchange: onward}}
policies:
  - {name: hop, queue: hop, definition: {message-ttl: 1h}}
"""
    amqp.queue("hop")
    amqp.queue("there")
    amqp.exchange("onward", "fanout")
    router = start_router(policies)
    amqp.publish("hello", key="hop")
    eventually(lambda: router.metric("publish_refused_total", cause="returned") >= 1)
    with clock.off(days * DAY_S):
        before = router.metric("publish_refused_total", cause="returned")
        eventually(lambda: router.metric("publish_refused_total", cause="returned") > before)
        amqp.bind("there", "onward")
    assert amqp.take("there", within=15).body == b"hello"
    assert decided(router, "dead_letter") == 0
