"""A session without sockets: real lanes, desk, provision and settling between two ends that a test holds."""

import asyncio
import struct
import time
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any, Final, cast

from dlx_router.core.letter import Arrival
from dlx_router.core.names import Names
from dlx_router.core.policy import Policy, Selector, SelectorKind, Setting, Source, ordered
from dlx_router.journal.batch import Batch
from dlx_router.journal.mode import Mode
from dlx_router.journal.writer import Journal
from dlx_router.service.dispatch.decider import Decider
from dlx_router.service.dispatch.resources import TargetResources
from dlx_router.service.dispatch.settler import Settler
from dlx_router.service.inflight.decoder import Place
from dlx_router.service.inflight.encoder import Encoder
from dlx_router.service.inflight.in_force import InForce, Rules
from dlx_router.service.inflight.job import Job
from dlx_router.service.inflight.runs import Outlets
from dlx_router.telemetry.metrics import Metrics
from dlx_router.telemetry.readiness import Readiness
from dlx_router.wire import frames, properties, table

NAMES: Final = Names("dlx-router")
KEY: Final = b"k" * 32
SOURCE: Final = Source("p", "p.yaml", 1)
OUTLETS: Final = Outlets((1, 1, 131_064), (1, 1, 131_064), b"guest")


class Taken:
    """The consuming end: which deliveries were settled and which were given back."""

    is_open = True

    def __init__(self, queue: str) -> None:
        self.queue = queue
        self.is_cancelled = False
        self.settled: list[int] = []
        self.back: list[int] = []

    def cancel(self) -> None:
        self.is_cancelled = True

    def settle(self, tag: int) -> bool:
        self.settled.append(tag)
        return True

    def give_back(self, tag: int) -> bool:
        self.back.append(tag)
        return True


class Sent:
    """The publishing end: what is unanswered, until the test answers."""

    is_open = True
    next_number = 1

    def __init__(self) -> None:
        self.jobs: list[Job] = []

    def __len__(self) -> int:
        return len(self.jobs)

    def stamp(self) -> bytes:
        return b""

    def unanswered(self, _before: int) -> list[Job]:
        return []

    def publish(self, job: Job, *_: object) -> None:
        self.jobs.append(job)

    def answered(self) -> list[Job]:
        """All that was sent; nothing is unanswered any more."""
        jobs, self.jobs = self.jobs, []
        return jobs


class Broker:
    """What provision asks: each exchange is there, after a moment."""

    async def exchange_exists(self, _name: str) -> bool:
        await asyncio.sleep(0.01)  # a round trip
        return True

    async def ensure_rung(self, _ms: int) -> None:
        await asyncio.sleep(0)

    async def ensure_core(self) -> None:
        await asyncio.sleep(0)


class Session:
    """What a lane asks of its session."""

    vhost = "/"

    def __init__(self, definition: dict[str, Any], *, grace_ms: int = 30_000, mode: Mode = Mode.OFF) -> None:
        policy = Policy(
            "p",
            Selector(SelectorKind.MATCH, "#"),
            SOURCE,
            definition={key: Setting(value, SOURCE) for key, value in definition.items()},
        )
        self.journal = Journal(mode=mode, name="j", vhost="/", router_id="r", readiness=Readiness())
        self.metrics = Metrics()
        rules = Rules(ordered([policy], "abcdef012345"), NAMES, grace_ms)
        self.decider = Decider(InForce.of(rules, "/"), self.metrics, self.journal)
        self.publish_link = cast("Any", SimpleNamespace(blocked=False, is_open=True))
        self.encoder = Encoder(user="guest", last_deaths=True, key=KEY, quarantine=NAMES.quarantine)
        self.provision = TargetResources(cast("Any", Broker()), NAMES, 10, self.spawn)
        self.troubles: list[str] = []
        self.later: list[Batch] = []
        self.bytes = 0
        self._tasks: set[asyncio.Task[None]] = set()

    def settling(self) -> Settler:
        return Settler(self)

    def read_s(self) -> float:
        return time.monotonic()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def leave_alone(self, queue: str, why: str) -> None:
        raise AssertionError(queue, why)

    def trouble(self, why: str) -> None:
        self.troubles.append(why)

    def retire_later(self, batch: Batch) -> None:
        self.later.append(batch)

    def weigh(self, size: int) -> None:
        self.bytes += size


def place(queue: str) -> Place:
    """Where a lane takes from."""
    arrival = Arrival.RETIRED if queue == NAMES.retired else Arrival.INBOX
    return Place("/", queue, arrival, NAMES, KEY, serials=1 << 41)


def message(tag: int, body: bytes = b"x", *, key: str = "k", headers: bytes = b"") -> frames.Delivery:
    """A message that never failed."""
    header = struct.pack(">HHQ", 60, 0, len(body)) + properties.build(headers=headers)
    return frames.Delivery(1, b"c", tag, False, NAMES.inbox.encode(), key.encode(), header, body)  # noqa: FBT003 - AMQP order


def dead(tag: int, queue: str = "orders", body: bytes = b"x") -> frames.Delivery:
    """A letter that was rejected at this queue."""
    death = table.long_(b"count", 1) + table.longstr(b"reason", "rejected") + table.longstr(b"queue", queue)
    death += table.timestamp(b"time", 1_795_239_999) + table.longstr(b"exchange", "")
    death += table.array_of_longstr(b"routing-keys", [queue])
    headers = table.field_array(b"x-death", [death])
    for name, value in (("queue", queue), ("reason", "rejected"), ("exchange", "")):
        headers += table.longstr(f"x-first-death-{name}".encode(), value)
    return message(tag, body, key=queue, headers=headers)
