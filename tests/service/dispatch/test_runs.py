"""The law of runs: letters that are written, confirmed and acked together are treated as each would be by itself.

Two routers are given the same reads and the same answers of the broker, one with runs and one without: what they
publish, ack, tell and count is equal, byte for byte, after each step.
"""

import asyncio
import re
import struct
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlx_router.journal.mode import Mode
from dlx_router.service.dispatch import cooldown, own_queue_waits, refusal_facts, resources, settler, worker
from dlx_router.service.inflight import clock
from dlx_router.service.inflight.runs import Run
from dlx_router.wire import properties, table
from tests.support.ends import INBOX, Ends, Published, StillLoop, resources_are_there

DEFINITIONS: Final[tuple[dict[str, Any], ...]] = (
    {"dead-letter-exchange": "dlx", "max-delivery-attempts": 1},
    {"max-delivery-attempts": 5, "redelivery-delay": 5000},
    {"dead-letter-exchange": "dlx", "max-delivery-attempts": 1, "journal": {"events": "final"}},
    {"max-delivery-attempts": 5, "redelivery-delay": 5000, "journal": {"events": "final"}},
    {"dead-letter-exchange": "dlx", "max-delivery-attempts": 1, "journal": {"body": "hash"}},
)
SECOND: Final = 1_795_239_999
_NUMBER: Final = re.compile(rb"#(\d{6})#")


@dataclass(frozen=True)
class Kind:
    """What a letter is like; `body`: how long beside its number."""

    queue: str = "orders"
    reason: str = "rejected"
    tenant: str = "a"
    body: int = 10
    second: int = SECOND
    exchange: bytes = INBOX.encode()
    returned: int = 0
    acquired: int = 0
    broken: bool = False
    says: tuple[tuple[str, Any], ...] = ()

    def letter(self, number: int) -> tuple[bytes, bytes, bytes, bytes]:
        """Exchange, routing key, content header and body."""
        mark = b"#%06d#" % number
        death = table.long_(b"count", 1) + table.longstr(b"reason", self.reason) + table.longstr(b"queue", self.queue)
        death += table.timestamp(b"time", self.second) + table.longstr(b"exchange", "")
        death += table.array_of_longstr(b"routing-keys", [self.queue])
        headers = table.longstr(b"x-number", mark)
        if self.acquired:
            headers += table.long_(b"x-acquired-count", self.acquired)
        headers += table.field_array(b"x-death", [death])
        for name, value in (("queue", self.queue), ("reason", self.reason), ("exchange", "")):
            headers += table.longstr(f"x-first-death-{name}".encode(), value)
        headers += table.longstr(b"tenant", self.tenant) + table.boolean(b"gift", bool(number % 2))
        if self.returned:
            headers += table.long_(b"x-delivery-count", self.returned)
        if self.broken:
            headers += b"\x03abcZ"
        body = (mark + b"b" * self.body) if self.body else b""
        header = struct.pack(">HHQ", 60, 0, len(body)) + properties.build(headers=headers, **self._properties(number))
        return self.exchange, self.queue.encode(), header, body

    def _properties(self, number: int) -> dict[str, Any]:
        fields: dict[str, Any] = dict(self.says)
        return {name: b"%s%06d" % (value, number) if value == b"id-" else value for name, value in fields.items()}


PLAIN: Final = Kind(says=(("message_id", b"id-"), ("delivery_mode", 2), ("timestamp", 1_795_000_000)))
KINDS: Final = (
    PLAIN,
    Kind(),
    Kind(queue="billing"),
    Kind(reason="delivery_limit"),
    Kind(second=SECOND - 60),
    Kind(tenant="longer", body=300),
    Kind(body=0),
    Kind(body=140_000),
    Kind(exchange=b"somebody's"),
    Kind(returned=1),
    Kind(returned=2, acquired=1, says=(("message_id", b"id-"),)),
    Kind(returned=1, acquired=3, says=(("message_id", b"id-"),)),
    Kind(broken=True),
    Kind(says=(("correlation_id", b"id-"), ("user_id", b"guest"), ("content_type", b"application/json"))),
    Kind(says=(("expiration", b"1000"), ("priority", 7), ("message_id", b""), ("app_id", b"shop"))),
    Kind(says=(("user_id", b"shop"), ("message_id", b'\xff"id'), ("reply_to", b"me"), ("type", b"t"))),
    Kind(says=(("reply_to", b"amq.rabbitmq.reply-to"),)),
)


@dataclass
class World:
    """One router, and a broker that answers as it is told."""

    ends: Ends
    pending: list[Published] = field(default_factory=list)
    sent: dict[int, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    returned: set[tuple[int, int]] = field(default_factory=set)
    confirmed: set[int] = field(default_factory=set)
    acks: bytes = b""
    read: int = 0

    def look(self) -> None:
        """Take what was published and acked. Nothing is acked whose copy was not confirmed."""
        self.sent.clear()
        for copy in self.ends.published():
            self.pending.append(copy)
            self.sent[copy.channel].append(copy.frames)
        data = self.acks = self.ends.acked()
        for at in range(0, len(data), 21):
            kind, _, size, method, tag, multiple, _ = struct.unpack_from(">BHIIQBB", data, at)
            if (kind, size, method) == (1, 13, 0x003C_0050):
                acked = {unacked for unacked in self._unacked if unacked == tag or (multiple and unacked < tag)}
                assert acked <= self.confirmed, f"acked before it was confirmed: {acked - self.confirmed}"
                self._unacked -= acked

    def __post_init__(self) -> None:
        self._unacked: set[int] = set()

    def brings(self, kinds: Sequence[Kind]) -> None:
        letters = []
        for kind in kinds:
            self.read += 1
            self._unacked.add(self.read)
            letters.append(kind.letter(self.read))
        self.ends.read(letters)

    def answer(self, at: int, *, multiple: bool, ok: bool) -> None:
        copy = self.pending[at % len(self.pending)]
        gone = [
            other
            for other in self.pending
            if other.channel == copy.channel
            and (other.number == copy.number or (multiple and other.number < copy.number))
        ]
        self.pending = [other for other in self.pending if other not in gone]
        if ok:
            self.confirmed |= {number_of(other) for other in gone if (other.channel, other.number) not in self.returned}
        self.ends.answer(copy.channel, copy.number, multiple=multiple, ok=ok)

    def give_back(self, at: int) -> None:
        copy = self.pending[at % len(self.pending)]
        if (copy.channel, copy.number) not in self.returned and number_of(copy):
            self.returned.add((copy.channel, copy.number))
            self.ends.give_back(copy)

    def close_channel(self, at: int) -> None:
        channel = self.pending[at % len(self.pending)].channel
        self.pending = [other for other in self.pending if other.channel != channel]
        self.returned = {entry for entry in self.returned if entry[0] != channel}
        self.ends.close_channel(channel)

    def state(self) -> dict[str, Any]:
        """All that the two must have in common."""
        session = self.ends.session
        metrics, taken = session.metrics, self.ends.consumer
        return {
            "sent": dict(self.sent),
            "pending": [(copy.channel, copy.number) for copy in self.pending],
            "acks": self.acks,
            "deliveries": dict(metrics.deliveries),
            "settled": {key: count for key, count in metrics.settled.items() if count},
            "decisions": dict(metrics.decisions),
            "refused": dict(metrics.publish_refused),
            "given back": dict(metrics.given_back),
            "confirmed": metrics.confirm_seconds.count,
            "bytes": session.bytes,
            "in flight": len(taken),
            "events": session.journal._number,
            "unanswered": len(self.ends.worker._publisher),
        }


def number_of(copy: Published) -> int:
    """Which letter it is a copy of; 0: it is of the journal."""
    match = _NUMBER.search(copy.header) or _NUMBER.search(copy.body)
    return int(match[1]) if match else 0


Step = tuple[Any, ...]


async def _driven(definition: dict[str, Any], mode: Mode, steps: Sequence[Step], loop: StillLoop) -> tuple[int, int]:
    """Both worlds through the same steps; → letters that were published in runs, and letters."""
    together, alone = (World(Ends(definition, mode=mode, in_runs=in_runs)) for in_runs in (True, False))
    worlds = together, alone
    for world in worlds:
        await world.ends.begin()
        resources_are_there(world.ends)
    in_runs = Counter[str]()
    publisher = together.ends.worker._publisher
    taken = publisher.publish_run

    def counted(run: Any, count: int) -> None:
        assert isinstance(run, Run)
        in_runs["letters"] += count
        taken(run, count)

    publisher.publish_run = counted  # type: ignore[method-assign]  # counts, and does as ever
    for step in [*steps, ("time", 0.004)]:
        await _step(worlds, step, loop)
    for at in range(1000):
        if not together.ends.consumer.is_open or not (together.pending or len(together.ends.consumer)):
            break
        if together.pending:
            await _step(worlds, ("answer", at, True, True), loop)
        else:
            await _step(worlds, ("time", 0.3), loop)
    left = [(copy.channel, copy.number, number_of(copy)) for copy in together.pending], len(together.ends.consumer)
    assert together.state()["bytes"] == 0 or not together.ends.consumer.is_open, left
    return in_runs["letters"], together.read


async def _step(worlds: tuple[World, World], step: Step, loop: StillLoop) -> None:
    what, *arguments = step
    if what == "time":
        loop.now += arguments[0]
    for world in worlds:
        if what == "read":
            world.brings(arguments[0])
        elif what == "answer" and world.pending:
            world.answer(arguments[0], multiple=arguments[1], ok=arguments[2])
        elif what == "return" and world.pending:
            world.give_back(arguments[0])
        elif what == "close" and world.pending:
            world.close_channel(arguments[0])
        elif what == "time":
            world.ends.worker.check(30.0)
        elif what == "lose":
            world.ends.lose()
    await worlds[0].ends.turn(12)
    for world in worlds:
        world.look()
    assert worlds[0].state() == worlds[1].state(), step


def _drive(definition: dict[str, Any], mode: Mode, steps: Sequence[Step]) -> tuple[int, int]:
    with asyncio.Runner(loop_factory=StillLoop) as runner:
        return runner.run(_driven(definition, mode, steps, cast("StillLoop", runner.get_loop())))


class Clock:
    """The monotonic clock of what waits for targets: that of the loop."""

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()


@pytest.fixture(autouse=True)
def _clocks_that_stand(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (own_queue_waits, cooldown, refusal_facts, resources, settler, worker):
        monkeypatch.setattr(module, "time", Clock())
    monkeypatch.setattr(time, "time", lambda: 1_795_240_000.5)
    monkeypatch.setattr(clock.Clock, "now_ms", lambda _self: 1_795_240_000_500)


KNOWN: Final[Step] = ("read", [kind for kind in KINDS for _ in range(3)])  # each kind has its mould then, if it can


def _many(kind: Kind, count: int) -> list[Kind]:
    return [kind] * count


places = st.integers(-40, 40)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("read"), st.lists(st.sampled_from(KINDS), min_size=1, max_size=12)),
        st.tuples(st.just("read"), st.builds(_many, st.sampled_from(KINDS), st.integers(2, 12))),
        st.tuples(st.just("answer"), places, st.booleans(), st.sampled_from([True, True, True, False])),
        st.tuples(st.just("return"), places),
        st.tuples(st.just("close"), places),
        st.tuples(st.just("time"), st.sampled_from([0.004, 0.3, 2.0])),
    ),
    max_size=14,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(
    definition=st.sampled_from(DEFINITIONS),
    mode=st.sampled_from([Mode.BEST_EFFORT, Mode.REQUIRED, Mode.OFF]),
    steps=steps,
    lost=st.booleans(),
)
def test_letters_in_runs_are_treated_as_each_by_itself(
    definition: dict[str, Any],
    mode: Mode,
    steps: list[Step],
    lost: bool,  # noqa: FBT001 - a law is given it
) -> None:
    _drive(definition, mode, [KNOWN, *steps, *([("lose",)] if lost else [])])


@pytest.mark.parametrize("plain", [PLAIN, Kind(returned=1), Kind(returned=2, acquired=3)])
def test_letters_that_are_alike_do_go_in_runs(plain: Kind) -> None:
    """Else the law would say nothing. 4.x counts deliveries in letters that consumers of quorum queues refuse."""
    steps: list[Step] = [("read", [plain] * 4), ("read", [plain] * 40), ("read", [plain, Kind()] * 10)]
    in_runs, letters = _drive(DEFINITIONS[0], Mode.BEST_EFFORT, steps)
    assert letters == 64
    assert in_runs >= 56
