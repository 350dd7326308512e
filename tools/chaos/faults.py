"""The faults of a chaos run: each kind is a function that breaks something, waits a little and mends it."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from signal import SIGCONT, SIGSTOP
from typing import Final

from tests.support.proxy import Proxy
from tests.support.router import Router
from tools.chaos.accounting import FAN, SINGLE
from tools.chaos.hostile_clients import HOSTILE_GENTLE, HOSTILE_KINDS
from tools.chaos.load import Load
from tools.chaos.testbed import EVERYTHING, FAN_OUT, IDLE, Scene, bind_fan, soon

TAKEOVER_S: Final = 50.0  # some 0.2 s on a machine without other load
TIMEOUT_MS: Final = 1000
READY: Final = 200
READY_S: Final = 200.0
SLOW_BYTES_PER_S: Final = 30_000
MOST_DAYS: Final = 3.0  # that the wall clock is off
NOT_SINGLE: Final = r"^(?!chaos\.single$).*"


@dataclass(frozen=True)
class Fault:
    """What was done, when, for how long, and how long letters took to flow again."""

    at_s: float
    kind: str
    replica: int
    lasted_s: float
    recovered_s: float | None
    takeover_s: float | None
    note: str

    def __str__(self) -> str:
        back = "never" if self.recovered_s is None else f"{self.recovered_s:.2f} s"
        taken = f", taken over in {self.takeover_s:.2f} s" if self.takeover_s is not None else ""
        which = f"replica {self.replica}"
        note = f"  ({self.note})" if self.note else ""
        return (
            f"{self.at_s:8.1f}  {self.kind:24} {which}  lasted {self.lasted_s:.2f} s, flows after {back}{taken}{note}"
        )


@dataclass
class Arena:
    """What a fault may touch. `note` is for the log."""

    scene: Scene
    load: Load
    chance: random.Random
    replica: int = 0
    note: str = ""
    takeovers: list[float | None] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)

    @property
    def router(self) -> Router:
        """The replica whose turn it is."""
        return self.scene.routers[self.replica]

    @property
    def proxy(self) -> Proxy:
        """The line of that replica."""
        return self.scene.proxies[self.replica]

    def await_ready(self) -> None:
        """Wait until the replica is ready; a fault before that disturbs nothing."""
        soon(lambda: self.router.ask("/readyz")[0] == READY, READY_S)

    def wait(self, low: float, high: float) -> None:
        """A moment, drawn."""
        time.sleep(self.chance.uniform(low, high))


def kill_router(arena: Arena) -> None:
    """SIGKILL, and started again."""
    arena.router.kill()
    arena.wait(0.0, 1.0)
    arena.router.start(wait=False)


def restart_router(arena: Arena) -> None:
    """SIGTERM: it drains, and is started again."""
    if code := arena.router.stop(READY_S):
        arena.note = f"exit {code}"
    arena.router.start(wait=False)


def kill_replica(arena: Arena) -> None:
    """SIGKILL of one of several; the others have its letters within seconds."""
    books = arena.load.books
    soon(lambda: len(books.outstanding) < 2 * arena.load.per_second, READY_S)
    last = books.numbers
    arena.router.kill()
    died = time.monotonic()
    left = soon(
        lambda: books.newest >= last and min(books.outstanding.copy(), default=last) >= last,
        TAKEOVER_S,
        every=0.02,
    )
    arena.takeovers.append(time.monotonic() - died if left else None)
    arena.router.start(wait=False)


def pause_leader(arena: Arena) -> None:
    """The leader stands still until another leads, and goes on."""
    led = [at for at, router in enumerate(arena.scene.routers) if _leads(router)]
    arena.replica = led[-1] if led else arena.replica
    arena.await_ready()
    arena.router.signal(SIGSTOP)
    try:
        arena.wait(8.0, 16.0)
    finally:
        arena.router.signal(SIGCONT)


def _leads(router: Router) -> bool:
    """As it last wrote into its log."""
    changes = [line for line in router.output.splitlines() if '"leader.changed"' in line]
    return bool(changes) and '"leads": true' in changes[-1]


def kill_broker(arena: Arena) -> None:
    """SIGKILL of the node, started on its data."""
    arena.scene.node.kill()
    arena.scene.node.start()


def stop_broker(arena: Arena) -> None:
    """Stopped in order, started again."""
    arena.scene.node.stop()
    arena.scene.node.start()


def cut(arena: Arena) -> None:
    """The router's connections are reset, a few times."""
    for _ in range(arena.chance.randint(1, 3)):
        arena.proxy.cut()
        arena.wait(0.0, 0.4)


def half_open_up(arena: Arena) -> None:
    """What the router says is swallowed, without a word."""
    arena.proxy.half_open("up")
    arena.wait(2.0, 6.0)
    arena.proxy.heal()


def half_open_down(arena: Arena) -> None:
    """What the broker says is swallowed, without a word."""
    arena.proxy.half_open("down")
    arena.wait(2.0, 6.0)
    arena.proxy.heal()


def stall(arena: Arena) -> None:
    """Nothing moves, then all of it."""
    arena.proxy.stall()
    arena.wait(1.0, 4.0)
    arena.proxy.heal()


def slow(arena: Arena) -> None:
    """A line that is far too thin."""
    arena.proxy.slow(SLOW_BYTES_PER_S)
    arena.wait(1.0, 3.0)
    arena.proxy.heal()


def refuse(arena: Arena) -> None:
    """Reset, and refused for a while."""
    arena.proxy.refuse()
    arena.wait(0.5, 3.0)
    arena.proxy.heal()


def close_connections(arena: Arena) -> None:
    """Closed by the broker, for all replicas."""
    arena.note = f"{arena.scene.close_connections()} connections"


def delete_exchange(arena: Arena) -> None:
    """A target exchange is gone (404), and comes back."""
    arena.scene.channel(lambda channel: channel.exchange_delete(FAN.source))
    arena.wait(0.5, 3.0)
    arena.scene.channel(lambda channel: channel.exchange_declare(FAN.source, "fanout", durable=True))
    arena.scene.channel(bind_fan)


def unbind(arena: Arena) -> None:
    """A target exchange leads nowhere (returns)."""
    arena.scene.channel(lambda channel: channel.exchange_unbind(FAN_OUT, FAN.source))
    arena.wait(0.5, 3.0)
    arena.scene.channel(bind_fan)


def forbid(arena: Arena) -> None:
    """The right to write to one target is taken (403), and given back."""
    arena.scene.rights({**EVERYTHING, "write": NOT_SINGLE})
    arena.note = f"{arena.scene.close_connections()} connections"  # rights are looked up once a channel
    arena.wait(0.5, 3.0)
    arena.scene.rights(EVERYTHING)


def fill(arena: Arena) -> None:
    """A target refuses what is too much (nack)."""
    place = SINGLE.places[0]
    arena.load.hold(place)
    arena.scene.policy("full", f"^{place}$", {"max-length": 20, "overflow": "reject-publish"})
    arena.wait(1.0, 3.0)
    arena.scene.drop_policy("full")
    arena.load.release(place)


def memory_alarm(arena: Arena) -> None:
    """Publishers are blocked for want of memory."""
    arena.scene.node.rabbitmqctl("set_vm_memory_high_watermark", "0.000001")
    arena.wait(0.5, 2.0)
    arena.scene.node.rabbitmqctl("set_vm_memory_high_watermark", "absolute", "1GB")


def disk_alarm(arena: Arena) -> None:
    """Publishers are blocked for want of disk."""
    arena.scene.node.rabbitmqctl("set_disk_free_limit", "900000GB")
    arena.wait(0.5, 2.0)
    arena.scene.node.rabbitmqctl("set_disk_free_limit", "64MB")


def delete_attended(arena: Arena) -> None:
    """An attended, empty queue is deleted (the server cancels), and comes back."""
    quorum = {"x-queue-type": "quorum"}
    arena.scene.channel(lambda channel: channel.queue_delete(IDLE))
    arena.wait(0.2, 1.5)
    arena.scene.channel(lambda channel: channel.queue_declare(IDLE, durable=True, arguments=quorum))


def consumer_timeout(arena: Arena) -> None:
    """A router that stands still over the consumer timeout."""
    arena.scene.consumer_timeout(TIMEOUT_MS)
    arena.await_ready()
    arena.router.signal(SIGSTOP)
    try:
        arena.wait(2.0, 3.5)
    finally:
        arena.router.signal(SIGCONT)
        arena.scene.consumer_timeout(None)


def catch_all(arena: Arena) -> None:
    """Somebody's policy falls on every queue; a router that connects meanwhile consumes nothing."""
    arena.scene.policy("catch-all", ".*", {"expires": 3_600_000})
    arena.note = f"{arena.scene.close_connections()} connections"
    arena.wait(1.0, 2.5)
    arena.scene.drop_policy("catch-all")


def jump(arena: Arena) -> None:
    """The routers' wall clock is wrong by up to 20 s or by days, either way."""
    most = arena.chance.choice((20.0, MOST_DAYS * 86_400.0))
    arena.scene.set_clock(offset := arena.chance.uniform(-most, most))
    arena.note = f"{offset:+.1f} s"
    arena.wait(0.5, 3.0)
    arena.scene.set_clock(0.0)


Act = Callable[[Arena], None]
KINDS: Final[dict[str, Act]] = {
    "router killed": kill_router,
    "router restarted": restart_router,
    "broker killed": kill_broker,
    "broker restarted": stop_broker,
    "connections cut": cut,
    "half-open, router's side": half_open_up,
    "half-open, broker's side": half_open_down,
    "line stalled": stall,
    "line slow": slow,
    "line refused": refuse,
    "closed by the broker": close_connections,
    "exchange missing (404)": delete_exchange,
    "right taken (403)": forbid,
    "target unbound (return)": unbind,
    "target full (nack)": fill,
    "memory alarm": memory_alarm,
    "disk alarm": disk_alarm,
    "server cancel": delete_attended,
    "consumer timeout": consumer_timeout,
    "catch-all policy": catch_all,
    "clock jump": jump,
    "replica killed": kill_replica,
    "leader paused": pause_leader,
    **HOSTILE_KINDS,
}
GENTLE: Final = {
    "target unbound (return)",
    "target full (nack)",
    "memory alarm",
    "disk alarm",
    "clock jump",
    *HOSTILE_GENTLE,
}
"""Kinds that leave every delivery and every confirm alone: they allow no copies."""
