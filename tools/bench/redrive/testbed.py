"""What `run.py` beside it runs on: one vhost, one router process, and a plain client (pika) that counts and audits."""

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, TypeVar
from urllib.parse import quote

import httpx
import pika

from tools.bench.contestants import Process, await_ready, installed_router, management
from tools.brokers.node import free_port
from tools.polling import ready, until

Found = TypeVar("Found")
INBOX: Final = "dlx-router.inbox"
BODY: Final = b"x" * 1024
POLICY: Final = """\
version: 1
policies:
  - {name: all, match: "#", definition: {max-delivery-attempts: 1}}
"""


class RedriveError(Exception):
    """The measurement could not be made; says why."""


def patiently(look: Callable[[], Found], why: str, within_s: float) -> Found:
    """The first truthy answer."""
    failed = partial(RedriveError, f"{why} within {within_s:.0f} s")
    return until(look, failed, within_s=within_s, every_s=0.02)


class Scene:
    """One vhost with a router, which is started and killed as often as it takes."""

    def __init__(self, node: Any, name: str, folder: Path, router: str | None, **env: str) -> None:  # noqa: ANN401 - a Node
        """`env`: settings of the router without their prefix."""
        self.vhost, self._management = name, node.management_url
        management(node.management_url, "PUT", f"/api/vhosts/{quote(name, safe='')}", {})
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        management(node.management_url, "PUT", f"/api/permissions/{quote(name, safe='')}/guest", everything)
        self.amqp_url = f"{node.amqp_base}/{quote(name, safe='')}"
        policies = folder / name
        policies.mkdir()
        (policies / "all.yaml").write_text(POLICY, encoding="utf-8")
        self._port = free_port()
        settings = {
            "AMQP_URL": self.amqp_url,
            "HTTP_PORT": str(self._port),
            "MANAGEMENT_URL": node.management_url,
            **env,
        }
        argv = (*installed_router(router), "run", "--policies", str(policies))
        place: Any = SimpleNamespace(folder=folder)
        self._router = Process(
            f"router-{name}", place, argv, {f"DLX_ROUTER_{key}": value for key, value in settings.items()}
        )
        self._http = httpx.Client(base_url=f"http://127.0.0.1:{self._port}/api/v1", timeout=30, trust_env=False)
        parameters = pika.URLParameters(self.amqp_url)
        parameters.heartbeat = 0
        self._link = pika.BlockingConnection(parameters)
        self.channel = self._link.channel()

    @classmethod
    @contextlib.contextmanager
    def of(cls, node: Any, name: str, folder: Path, router: str | None, **env: str) -> Iterator["Scene"]:  # noqa: ANN401 - a node of tools/brokers or a cluster
        """Inside the block; afterwards the router, the connections and the vhost are gone."""
        scene = cls(node, name, folder, router, **env)
        try:
            yield scene
        finally:
            scene.close()

    def close(self) -> None:
        """Nothing of it is left."""
        self.kill()
        self._http.close()
        with contextlib.suppress(pika.exceptions.AMQPError):
            self._link.close()
        management(self._management, "DELETE", f"/api/vhosts/{quote(self.vhost, safe='')}")

    # -- the router ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Ready when this returns."""
        self._router.start()
        await_ready(self._router, 60)

    def stop(self) -> None:
        """Drained."""
        self._router.stop()

    def kill(self) -> None:
        """SIGKILL, in the middle of whatever it does."""
        for pid in self._router.pids:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)
        self._router.stop()

    def begin(self, queue: str, **asked: Any) -> str:  # noqa: ANN401 - JSON
        """The id of a new task."""

        def made() -> str:
            answer = self._http.post("/tasks", json={"vhost": self.vhost, "queue": queue, "rate": 0, **asked})
            if answer.status_code not in {201, 503}:
                raise RedriveError(answer.text)
            return str(answer.json()["id"]) if answer.status_code == 201 else ""  # noqa: PLR2004 - made

        return patiently(made, "no router leads", 60)

    def end(self, task: str) -> None:
        """Cancel."""
        self._http.post(f"/tasks/{task}/cancel", params={"vhost": self.vhost}).raise_for_status()

    def state(self, task: str) -> str:
        """Of a task; "" where nobody answers or leads."""
        try:
            answer = self._http.get(f"/tasks/{task}", params={"vhost": self.vhost})
        except httpx.TransportError:
            return ""
        return str(answer.json()["state"]) if answer.is_success else ""

    # -- letters ------------------------------------------------------------------------------------------------

    def depth(self, queue: str) -> int:
        """Ready messages now; 0 where there is no such queue."""
        return ready(self._link, queue)

    def await_depth(self, queue: str, least: int, within_s: float) -> None:
        """At least so many messages lie there."""
        patiently(lambda: self.depth(queue) >= least, f"queue {queue!r} does not hold {least}", within_s)

    def work(self, queue: str) -> None:
        """A quorum work queue whose dead letters go to the router."""
        arguments = {"x-queue-type": "quorum", "x-dead-letter-exchange": INBOX}
        self.channel.queue_declare(queue, durable=True, arguments=arguments)

    def pour_into_the_inbox(self, queue: str, letters: int) -> None:
        """So many letters that died at `queue` lie in the inbox; the router must be stopped."""
        died = {
            "count": 1,
            "reason": "rejected",
            "queue": queue,
            "time": _now(),
            "exchange": "",
            "routing-keys": [queue],
        }
        for number in range(letters):
            headers = {"x-death": [died], "number": number}
            given = pika.BasicProperties(delivery_mode=2, message_id=f"m{number}", headers=headers)
            self.channel.basic_publish(INBOX, queue, BODY, given)
        self.await_depth(INBOX, letters, 60 + letters / 1000)

    def dead(self, queue: str, letters: int) -> tuple[str, float]:
        """So many letters in the dead-letter queue of `queue`; → its name, and how many a second the router moved.

        The clock runs from the first letter that is there to the last: a start is no part of the rate.
        """
        self.work(queue)
        self.start()  # the inbox is declared by the router
        self.stop()
        self.pour_into_the_inbox(queue, letters)
        name = f"DLQ.{queue}"
        self.start()
        self.await_depth(name, 1, 60)
        first, began = self.depth(name), time.monotonic()
        self.await_depth(name, letters, 60 + letters / 500)
        return name, (letters - first) / (time.monotonic() - began)

    def each(self, queue: str) -> Iterator[tuple[int, dict[str, Any]]]:
        """The number and the record of each message of a queue, which is empty afterwards."""
        channel = self._link.channel()
        channel.basic_qos(prefetch_count=1000)
        for method, properties, _ in channel.consume(queue, inactivity_timeout=2.0):
            if method is None:
                break
            yield int(properties.headers["number"]), json.loads(properties.headers["dlx-router"])
            channel.basic_ack(method.delivery_tag)
        channel.close()


def _now() -> datetime:
    """A timestamp of AMQP, as pika writes it."""
    return datetime.now(UTC)
