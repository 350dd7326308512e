"""What the way through the router adds to a rejection: `make latency` -> build/latency.json.

A client of its own rejects letters and sees them in their dead-letter queue, on its own clock. The dead-letter
exchange of the queue is
  native    the target's: one hop of the broker, which any other way has too
  shovel    that of a queue which RabbitMQ's own shovel empties into the target's: what any second hop takes
  routed    the router's inbox, with a policy that names the target's
Turns of ten seconds, so that all meet the same machine; the order changes. All queues are quorum queues; dead lettering
is at most once in all. The page of performance takes the file's numbers when `make bench` writes it.
Exit: 0 measured · 1 a letter is missing.
"""

import json
import statistics
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pika

from tools.bench.contestants import EXCHANGE, SHOVEL, Place, Shovel
from tools.measure.one_router import arguments, one_router

WAYS: Final = ("native", "shovel", "routed")
TURN_S: Final = 10
REST_S: Final = 20
SHOVELLED: Final = "latency.shovelled"
OUTPUT: Final = Path(__file__).parents[2] / "build" / "latency.json"
_FIRST: Final = {"native": EXCHANGE, "shovel": SHOVELLED, "routed": "dlx-router.inbox"}
_POLICY: Final = f"""\
version: 1
policies:
  - {{name: latency, match: "latency.#", definition: {{dead-letter-exchange: {EXCHANGE}, max-delivery-attempts: 1}}}}
"""
_QUORUM: Final = {"x-queue-type": "quorum"}


class Watch:
    """Rejects what is in the work queues and sees it in the dead-letter queues: milliseconds for each letter."""

    def __init__(self, channel: Any) -> None:  # noqa: ANN401 - pika's
        self._rejected: dict[bytes, float] = {}
        self.took_ms: dict[str, list[float]] = {way: [] for way in WAYS}
        channel.exchange_declare(EXCHANGE, "direct", durable=True)
        channel.exchange_declare(SHOVELLED, "fanout", durable=True)
        channel.queue_declare(SHOVELLED, durable=True, arguments=_QUORUM)
        channel.queue_bind(SHOVELLED, SHOVELLED, "")
        channel.basic_qos(prefetch_count=500)
        for way in WAYS:
            self._declare(channel, way)

    def _declare(self, channel: Any, way: str) -> None:  # noqa: ANN401 - pika's
        work, dead = f"latency.{way}", f"dead.{way}"
        channel.queue_declare(work, durable=True, arguments={**_QUORUM, "x-dead-letter-exchange": _FIRST[way]})
        channel.queue_declare(dead, durable=True, arguments=_QUORUM)
        channel.queue_bind(dead, EXCHANGE, work)
        channel.basic_consume(work, self._reject)
        channel.basic_consume(dead, lambda *given: self._arrived(way, *given))

    def _reject(self, channel: Any, method: Any, _properties: Any, body: bytes) -> None:  # noqa: ANN401 - pika's
        self._rejected[body] = time.monotonic()
        channel.basic_reject(method.delivery_tag, requeue=False)

    def _arrived(self, way: str, channel: Any, method: Any, _properties: Any, body: bytes) -> None:  # noqa: ANN401 - pika's
        self.took_ms[way].append((time.monotonic() - self._rejected.pop(body)) * 1000)
        channel.basic_ack(method.delivery_tag)

    @property
    def arrived(self) -> int:
        """How many letters have."""
        return sum(map(len, self.took_ms.values()))


def measure(place: Place, rate: int, seconds: int) -> dict[str, list[float]]:
    """Milliseconds from rejection to arrival, sorted, of each letter of each way; `seconds` of each."""
    connection = pika.BlockingConnection(pika.URLParameters(place.amqp_url))
    channel = connection.channel()
    watch, sent = Watch(channel), 0
    Shovel(SHOVEL, place, SHOVELLED).start()
    _await_consumer(channel)
    for way in _turns(seconds):
        began, first = time.monotonic(), sent
        while sent - first < rate * TURN_S:
            while sent - first < min(rate * TURN_S, (time.monotonic() - began) * rate):
                channel.basic_publish("", f"latency.{way}", b"%d" % sent, pika.BasicProperties(delivery_mode=2))
                sent += 1
            connection.process_data_events(0.001)
        _all_there(connection, watch, sent)
    connection.close()
    return {way: sorted(took) for way, took in watch.took_ms.items()}


def _await_consumer(channel: Any) -> None:  # noqa: ANN401 - pika's
    deadline = time.monotonic() + REST_S
    while not channel.queue_declare(SHOVELLED, passive=True).method.consumer_count:
        if time.monotonic() > deadline:
            raise SystemExit(f"no shovel takes from {SHOVELLED}")
        time.sleep(0.05)


def _turns(seconds: int) -> Iterator[str]:
    """Each way for `seconds`, in turns; every other round the other way about."""
    for number in range(max(1, seconds // TURN_S)):
        yield from WAYS if number % 2 == 0 else reversed(WAYS)


def _all_there(connection: Any, watch: Watch, sent: int) -> None:  # noqa: ANN401 - pika's
    deadline = time.monotonic() + REST_S
    while watch.arrived < sent:
        if time.monotonic() > deadline:
            raise SystemExit(f"only {watch.arrived} of {sent} letters arrived")
        connection.process_data_events(0.001)


def keep(version: str, rate: int, seconds: int, ways: dict[str, tuple[float, float]]) -> None:
    """In OUTPUT, beside what was measured on other versions."""
    known = json.loads(OUTPUT.read_text(encoding="utf-8")) if OUTPUT.exists() else {}
    known[version] = {"rate": rate, "seconds": seconds, "p50_p99_ms": ways}
    OUTPUT.parent.mkdir(parents=True, exist_ok=True)
    OUTPUT.write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")


def main() -> int:
    """See the module."""
    parser = arguments(__doc__)
    parser.add_argument("--rate", type=int, default=1000)
    parser.add_argument("--seconds", type=int, default=60, help="of each way (60)")
    given = parser.parse_args()
    with one_router(given, _POLICY) as (place, _):
        took_ms = measure(place, given.rate, given.seconds)
    ways = {way: (round(statistics.median(ms), 2), round(ms[int(len(ms) * 0.99)], 2)) for way, ms in took_ms.items()}
    print(f"RabbitMQ {given.version}, {given.rate}/s for {given.seconds} s of each, reject → dead-letter queue:")
    native = ways["native"]
    for way, (median, p99) in ways.items():
        more = "" if way == "native" else f"; native + {median - native[0]:.1f} and + {p99 - native[1]:.1f} ms"
        print(f"  {way}: {len(took_ms[way])} letters, p50 {median:.1f} ms, p99 {p99:.1f} ms{more}")
    keep(given.version, given.rate, given.seconds, ways)
    return 0


if __name__ == "__main__":
    sys.exit(main())
