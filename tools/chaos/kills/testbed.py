"""What an audit by kills happens in: queues, consumers that fail, and the router as a process."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import httpx
import pika

from tools.brokers import free_port
from tools.polling import ready, until

T = TypeVar("T")

ROOT: Final = Path(__file__).parents[3]
POLICIES: Final = """
version: 1
policies:
  - name: audit-expired
    queue: audit.expired
    definition: {{dead-letter-exchange: audit.dead}}
  - name: audit-waits
    match: "audit.#"
    definition: {{max-delivery-attempts: 2, redelivery-delay: {wait_ms}ms}}
"""
INBOX: Final = "dlx-router.inbox"
DEAD: Final = "audit.dead"
BROKEN_DEAD: Final = "DLQ.audit.broken"
CONSUMED: Final = "the consumer"
PLACES: Final = {"expired": DEAD, "broken": BROKEN_DEAD, "flaky": CONSUMED}
ATTENDED: Final = {INBOX, "dlx-router.release"}
NO_LETTERS: Final = {"dlx-router.state", "dlx-router.journal"}
SHARES: Final = {"expired": 6, "broken": 2, "flaky": 2}
SLICE: Final = 500
RESTING: Final = 8  # looks, a quarter of a second apart
LOOK_S: Final = 0.01
PATIENCE_S: Final = 120.0

Copies = dict[str, list[tuple[str, str]]]  # body → (place, letter id) of each copy


class AuditError(Exception):
    """The audit could not be made; says why."""


class Scene:
    """One vhost: queues, the flaky and the broken consumer, and what they saw."""

    def __init__(self, amqp_url: str, management_url: str) -> None:
        self._parameters = pika.URLParameters(amqp_url)
        self._parameters.heartbeat = 0
        self._vhost = httpx.URL(amqp_url).raw_path.decode().removeprefix("/")
        self._api = httpx.Client(base_url=f"{management_url}/api/", timeout=60, trust_env=False)
        self._link = pika.BlockingConnection(self._parameters)
        self.channel = self._link.channel()
        self.consumed: list[tuple[str, str]] = []  # (body, letter id)
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self._failure: BaseException | None = None

    @property
    def version(self) -> str:
        """What the broker says."""
        return str(self.api("overview")["rabbitmq_version"])

    def api(self, path: str) -> Any:  # noqa: ANN401 - JSON
        """A GET of the management API."""
        return self._api.get(path).raise_for_status().json()

    def declare(self) -> None:
        """Sources that die into the inbox, and the target of the expired."""
        declare = self.channel.queue_declare
        dies = {"x-dead-letter-exchange": INBOX}
        declare("audit.expired", durable=True, arguments={**dies, "x-message-ttl": 0})
        declare("audit.broken", durable=True, arguments=dies)
        declare("audit.flaky", durable=True, arguments=dies)
        declare(DEAD, durable=True, arguments={"x-queue-type": "quorum"})
        self.channel.exchange_declare(DEAD, "fanout", durable=True)
        self.channel.queue_bind(DEAD, DEAD)

    def publish(self, letters: int) -> dict[str, list[str]]:
        """Publish the bodies, each of them once; → those of each way. Afterwards each has died and is in the inbox."""
        bodies: dict[str, list[str]] = {way: [] for way in PLACES}
        ways = [way for way, share in SHARES.items() for _ in range(share)]
        properties = pika.BasicProperties(delivery_mode=2, headers={"tenant": "audit", "number": 7})
        for number in range(letters):
            way = ways[number % len(ways)]
            bodies[way].append(f"{way}-{number}")
            self.channel.basic_publish("", f"audit.{way}", bodies[way][-1], properties)
            if number % SLICE == SLICE - 1 or number == letters - 1:  # else the ways would not be mixed in the inbox
                patiently(partial(self._arrived, number + 1), "the letters do not reach the inbox")
        return bodies

    def _arrived(self, letters: int) -> bool:
        return self.depth(INBOX) >= letters

    def depth(self, queue: str) -> int:
        """Ready messages now; 0 where there is no such queue."""
        return ready(self._link, queue)

    def queues(self) -> list[str]:
        """All names in the vhost."""
        return [queue["name"] for queue in self.api(f"queues/{self._vhost}?columns=name")]

    def waiting(self) -> int:
        """Letters in all rungs."""
        return sum(self.depth(queue) for queue in self.queues() if ".delay." in queue)

    def places(self) -> tuple[int, int, int]:
        """How many copies lie in their last places, and how many in queues that are none: two counts and the rest."""
        last = self.depth(DEAD) + self.depth(BROKEN_DEAD)
        way = sum(self.depth(queue) for queue in self.queues() if queue not in {DEAD, BROKEN_DEAD, *NO_LETTERS})
        return last, len(self.consumed), way

    def window(self) -> int:
        """What the router's consumers together may hold unacknowledged; waits for the statistics."""

        def look() -> int:
            prefetch = {
                consumer["queue"]["name"]: consumer["prefetch_count"]
                for consumer in self.api(f"consumers/{self._vhost}")
            }
            return sum(prefetch[queue] for queue in ATTENDED) if prefetch.keys() >= ATTENDED else 0

        return int(patiently(look, "the router's consumers are not in the management API", within=15))

    def start_consumers(self) -> None:
        """The flaky and the broken application, each with a connection of its own."""
        for queue, consumes in (("audit.flaky", True), ("audit.broken", False)):
            thread = threading.Thread(target=self._consume, args=(queue,), kwargs={"consumes": consumes}, daemon=True)
            thread.start()
            self._threads.append(thread)

    def _consume(self, queue: str, *, consumes: bool) -> None:
        try:
            with pika.BlockingConnection(self._parameters) as link:
                channel = link.channel()
                channel.basic_qos(prefetch_count=500)
                for method, properties, body in channel.consume(queue, inactivity_timeout=0.1):
                    if self._stopping.is_set():
                        break
                    if method is None:
                        continue
                    headers = properties.headers or {}
                    if consumes and "x-death" in headers:
                        self.consumed.append((body.decode(), headers.get("dlx-router-id", "")))
                        channel.basic_ack(method.delivery_tag)
                    else:
                        channel.basic_reject(method.delivery_tag, requeue=False)
        except BaseException as error:
            self._failure = error
            raise

    def check(self) -> None:
        """AuditError if a consumer of ours died: then the audit says nothing about the router."""
        if self._failure is not None:
            raise AuditError(f"a consumer of the audit failed: {self._failure!r}")

    def empty(self, queue: str) -> Iterator[tuple[str, str]]:
        """All that lies in a queue: (body, letter id)."""
        if not self.depth(queue):
            return
        channel = self._link.channel()
        channel.basic_qos(prefetch_count=1000)
        for method, properties, body in channel.consume(queue, inactivity_timeout=0.5):
            if method is None:
                break
            yield body.decode(), (properties.headers or {}).get("dlx-router-id", "")
            channel.basic_ack(method.delivery_tag)
        channel.cancel()
        channel.close()

    def close(self) -> None:
        """Consumers ended, connections closed."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(10)
        if self._link.is_open:
            self._link.close()
        self._api.close()


class Process:
    """The router as people run it."""

    def __init__(self, amqp_url: str, management_url: str, folder: Path) -> None:
        self._log = folder / "router.log"
        self._port = free_port()
        own = {
            "AMQP_URL": amqp_url,
            "MANAGEMENT_URL": management_url,
            "HTTP_PORT": str(self._port),
            "POLICIES": str(folder / "policies"),
        }
        others = {key: value for key, value in os.environ.items() if not key.startswith("DLX_ROUTER_")}
        self._env = others | {f"DLX_ROUTER_{key}": value for key, value in own.items()}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def output(self) -> str:
        """The end of all that it printed."""
        return self._log.read_text(encoding="utf-8", errors="replace")[-4000:] if self._log.exists() else ""

    def start(self) -> None:
        """It is ready when this returns."""
        argv = [sys.executable, "-m", "dlx_router", "run"]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                argv, env=self._env, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        patiently(self._ready, lambda: f"the router is not ready:\n{self.output}", within=30)

    def _ready(self) -> bool:
        if self._process is None or self._process.poll() is not None:
            raise AuditError(f"the router ended:\n{self.output}")
        try:
            return httpx.get(f"http://127.0.0.1:{self._port}/readyz", trust_env=False).is_success
        except httpx.TransportError:
            return False

    def kill(self) -> None:
        """SIGKILL, and gone when this returns."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> int:
        """SIGTERM; its exit code."""
        assert self._process is not None
        self._process.terminate()
        return self._process.wait(60)


def patiently(
    look: Callable[[], T], failure: str | Callable[[], str], within: float = PATIENCE_S, every: float = 0.05
) -> T:
    """The first truthy answer; AuditError after `within` seconds."""

    def failed() -> AuditError:
        return AuditError(failure if isinstance(failure, str) else failure())

    return until(look, failed, within_s=within, every_s=every)
