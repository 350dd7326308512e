"""A small shop on a real broker: watch its letters wait, retry and end in dead-letter queues.

    python tools/demo.py               until Ctrl-C
    python tools/demo.py --seconds 20  ends by itself; exit 0 only if every message is accounted for

The shop keeps its own books: each message it published was acked once by a consumer, or lies in one dead-letter queue.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlsplit

import httpx
import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.spec import Basic, BasicProperties
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from brokers import Broker, BrokerError, chosen, free_port

POLICY: Final = """\
version: 1
policies:
  - name: shop
    match: "shop.#"
    definition:
      max-delivery-attempts: 3
      redelivery-delay: {delay}ms
      redelivery-delay-multiplier: 2.0
      redelivery-collision-avoidance-factor: 0.15
"""
# queue → (who consumes it, deliveries of one message that fail before one succeeds)
SHOP: Final = {
    "shop.orders": ("a healthy consumer", 0),
    "shop.payments": ("a flaky consumer: the first two tries fail", 2),
    "shop.mails": ("a broken consumer: nothing works", 99),
}
INBOX: Final = "dlx-router.inbox"
EVERY_S: Final = 0.25


@dataclass
class Books:
    """What the shop knows of each message, by its own counting."""

    published: dict[str, str] = field(default_factory=dict)
    failures: Counter[str] = field(default_factory=Counter)
    acked: Counter[str] = field(default_factory=Counter)
    failed_in: Counter[str] = field(default_factory=Counter)
    story: list[str] = field(default_factory=list)

    def tell(self, line: str) -> None:
        """Keep the last lines."""
        self.story = [*self.story[-7:], line]


class Shop:
    """The publisher and the three consumers, on one connection of their own."""

    def __init__(self, url: str, books: Books) -> None:
        self.books = books
        self.connection = pika.BlockingConnection(pika.URLParameters(url))
        self.channel: BlockingChannel = self.connection.channel()
        self.channel.confirm_delivery()
        for queue in SHOP:
            arguments = {"x-queue-type": "quorum", "x-dead-letter-exchange": INBOX}
            self.channel.queue_declare(queue, durable=True, arguments=arguments)
            self.channel.basic_consume(queue, self._deliver)

    def publish(self, number: int) -> None:
        """One message for each queue."""
        for queue in SHOP:
            name = f"{queue.removeprefix('shop.').removesuffix('s')} {number}"
            self.books.published[name] = queue
            self.channel.basic_publish("", queue, name.encode(), pika.BasicProperties(delivery_mode=2), mandatory=True)

    def _deliver(
        self, channel: BlockingChannel, method: Basic.Deliver, _properties: BasicProperties, body: bytes
    ) -> None:
        name, queue = body.decode(), method.routing_key
        if self.books.failures[name] < SHOP[queue][1]:
            self.books.failures[name] += 1
            self.books.failed_in[queue] += 1
            self.books.tell(f"{name}: delivery {self.books.failures[name]} of 3 failed")
            channel.basic_reject(method.delivery_tag, requeue=False)
            return
        self.books.acked[name] += 1
        if self.books.failures[name]:
            self.books.tell(f"{name}: succeeded after {self.books.failures[name]} failures")
        channel.basic_ack(method.delivery_tag)

    def depth(self, queue: str) -> int:
        """Messages that lie in a queue; 0 where there is none."""
        channel = self.connection.channel()
        try:
            return int(channel.queue_declare(queue, passive=True).method.message_count)
        except pika.exceptions.ChannelClosedByBroker:
            return 0
        finally:
            if channel.is_open:
                channel.close()

    def drain(self, queue: str) -> list[tuple[str, dict[str, Any]]]:
        """Every message of a queue with its headers; they go back when the connection closes."""
        channel, out = self.connection.channel(), []
        while self.depth(queue) and (got := channel.basic_get(queue))[0] is not None:
            out.append((got[2].decode(), got[1].headers or {}))
        return out


def main() -> int:
    """Run the demo; the exit code."""
    parser = argparse.ArgumentParser(description="A small shop whose messages fail, on a real RabbitMQ.")
    parser.add_argument("--seconds", type=int, default=0, help="end by itself after about so many seconds")
    seconds = parser.parse_args().seconds
    console = Console()
    console.print("Starting a private RabbitMQ (or using yours) and the router …")
    try:
        with chosen() as broker, tempfile.TemporaryDirectory(prefix="dlx-router-demo-") as folder:
            return _in_vhost(broker, Path(folder), seconds, console)
    except BrokerError as error:
        console.print(f"[red]No broker:[/red] {error}")
        return 2


def _in_vhost(broker: Broker, folder: Path, seconds: int, console: Console) -> int:
    """Everything happens in a vhost of our own, so that a given broker is left as found."""
    parts = urlsplit(broker.management_url)
    user, password = parts.username or "guest", parts.password or "guest"
    base = f"{parts.scheme}://{parts.hostname}:{parts.port}/api"
    vhost = f"dlx-router-demo-{uuid.uuid4().hex[:8]}"
    with httpx.Client(auth=(user, password), trust_env=False, timeout=20) as api:
        api.put(f"{base}/vhosts/{vhost}").raise_for_status()
        rights = {"configure": ".*", "write": ".*", "read": ".*"}
        api.put(f"{base}/permissions/{vhost}/{quote(user, safe='')}", json=rights).raise_for_status()
        try:
            return _with_router(f"{broker.amqp_base}/{vhost}", folder, seconds, console)
        finally:
            api.delete(f"{base}/vhosts/{vhost}")


def _with_router(url: str, folder: Path, seconds: int, console: Console) -> int:
    policies = folder / "policies"
    policies.mkdir()
    delay = max(200, seconds * 50) if seconds else 2000
    (policies / "shop.yaml").write_text(POLICY.format(delay=delay))
    port = free_port()
    env = {**os.environ, "DLX_ROUTER_AMQP_URL": url, "DLX_ROUTER_HTTP_PORT": str(port), "DLX_ROUTER_LOG_FORMAT": "text"}
    with (folder / "router.log").open("wb") as log:
        argv = [sys.executable, "-m", "dlx_router", "run", "--policies", str(policies)]
        router = subprocess.Popen(argv, env=env, stdout=log, stderr=log)
    try:
        if not _ready(port, router):
            console.print(f"[red]The router did not get ready:[/red]\n{(folder / 'router.log').read_text()}")
            return 1
        return _shop(url, port, seconds, delay, console)
    finally:
        router.terminate()
        router.wait(30)


def _ready(port: int, router: subprocess.Popen[bytes]) -> bool:
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and router.poll() is None:
        try:
            if httpx.get(f"http://127.0.0.1:{port}/readyz", trust_env=False).status_code == httpx.codes.OK:
                return True
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    return False


def _shop(url: str, port: int, seconds: int, delay: int, console: Console) -> int:
    books = Books()
    shop = Shop(url, books)
    console.print(f"Metrics: http://127.0.0.1:{port}/metrics, readiness: http://127.0.0.1:{port}/readyz")
    _run(shop, seconds, delay, console)
    settled = _settle(shop, within=delay * 8 / 1000 + 10)
    dead = {queue: shop.drain(f"DLQ.{queue}") for queue in SHOP}
    parked = shop.drain("dlx-router.parking")
    code = _account(books, dead, parked, settled=settled, console=console)
    console.print("\nTo try next:")
    console.print("  dlx-router policy lint policies/")
    console.print("  dlx-router policy explain orders.new --policies policies/")
    console.print("  dlx-router run --help")
    shop.connection.close()
    return code


def _run(shop: Shop, seconds: int, delay: int, console: Console) -> None:
    """Publish and consume while a person looks."""
    ends = time.monotonic() + (seconds * 0.5 if seconds else float("inf"))
    number, said = 0, 0.0
    with Live(console=console, refresh_per_second=4, transient=False) as live:
        try:
            while time.monotonic() < ends:
                number += 1
                shop.publish(number)
                _serve(shop, EVERY_S if seconds else 1.0)
                if console.is_terminal:
                    live.update(_picture(shop, delay))
                elif time.monotonic() - said > 2:  # noqa: PLR2004 - a line every two seconds
                    said = time.monotonic()
                    console.print(_line(shop), soft_wrap=True)
        except KeyboardInterrupt:
            console.print("Ending: waiting for letters that are still on their way …")


def _serve(shop: Shop, for_s: float) -> None:
    """Let the consumers work; pika returns after each delivery, so it is asked until the time is over."""
    ends = time.monotonic() + for_s
    while (left := ends - time.monotonic()) > 0:
        shop.connection.process_data_events(time_limit=left)


def _settle(shop: Shop, within: float) -> bool:
    """Until nothing is on its way; False where that takes too long."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        _serve(shop, EVERY_S)
        dead = sum(shop.depth(f"DLQ.{queue}") for queue in SHOP) + shop.depth("dlx-router.parking")
        if len(shop.books.acked) + dead >= len(shop.books.published):
            return True
    return False


def _line(shop: Shop) -> str:
    books = shop.books
    dead = sum(shop.depth(f"DLQ.{queue}") for queue in SHOP)
    failed = sum(books.failed_in.values())
    waiting = len(books.published) - len(books.acked) - dead
    told = f"published {len(books.published)}, succeeded {len(books.acked)}, failed deliveries {failed}"
    return f"{told}, on their way {waiting}, dead {dead}"


def _picture(shop: Shop, delay: int) -> Group:
    table = Table(title=f"A shop whose messages fail (waits {delay} ms, {2 * delay} ms; 3 deliveries)")
    for column in ("queue", "consumer", "published", "succeeded", "failed deliveries", "waiting", "in DLQ"):
        table.add_column(column, justify="left" if column in {"queue", "consumer"} else "right")
    books = shop.books
    for queue, (who, _) in SHOP.items():
        mine = [name for name, of in books.published.items() if of == queue]
        acked, dead = sum(name in books.acked for name in mine), shop.depth(f"DLQ.{queue}")
        waiting = len(mine) - acked - dead
        table.add_row(queue, who, *map(str, (len(mine), acked, books.failed_in[queue], waiting)), f"[red]{dead}[/red]")
    return Group(table, Text("\n".join(books.story), style="dim"))


def _account(books: Books, dead: dict[str, list[Any]], parked: list[Any], *, settled: bool, console: Console) -> int:
    """Compare the books with what lies in the queues; 0 if every message is accounted for exactly once."""
    places = Counter(books.acked)
    for letters in (*dead.values(), parked):
        places.update(name for name, _ in letters)
    missing = [name for name in books.published if not places[name]]
    twice = [name for name, times in places.items() if times > 1]
    for queue, letters in dead.items():
        if letters:
            name, headers = letters[0]
            console.print(f"\nDLQ.{queue} holds {len(letters)} letters; the first, {name!r}, tells:")
            console.print(f"  x-death     {headers['x-death']}", markup=False, highlight=False, soft_wrap=True)
            console.print(f"  dlx-router  {headers['dlx-router']}", markup=False, highlight=False, soft_wrap=True)
    total, acked = len(books.published), len(books.acked)
    in_dlq = sum(map(len, dead.values()))
    console.print(
        f"\naccounted for: {total - len(missing)} of {total} messages "
        f"(succeeded {acked}, dead {in_dlq}, parked {len(parked)}, twice {len(twice)}, missing {len(missing)})",
        soft_wrap=True,
    )
    return 0 if settled and not missing and not twice else 1


if __name__ == "__main__":
    sys.exit(main())
