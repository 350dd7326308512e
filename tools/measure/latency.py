"""What the way through the router adds to a rejection: `make latency`. One client, two queues, in turn.

A client of its own rejects from a queue whose dead-letter exchange is the target's (native), or the router's inbox with
a policy that names the target's (routed), and sees the letter in the dead-letter queue, on its own clock. Turns of ten
seconds, native and routed, so that both meet the same machine. All queues are quorum queues; dead lettering is at most
once in both.
Exit: 0 measured · 1 a letter is missing.
"""

import statistics
import sys
import time
from itertools import cycle
from typing import Any, Final

import pika

from tools.measure.one_router import arguments, one_router

WAYS: Final = ("native", "routed")
TURN_S: Final = 10
REST_S: Final = 20
EXCHANGE: Final = "latency.dlx"
_POLICY: Final = f"""\
version: 1
policies:
  - {{name: latency, match: "latency.#", definition: {{dead-letter-exchange: {EXCHANGE}, max-delivery-attempts: 1}}}}
"""


class Watch:
    """Rejects what is in the work queues and sees it in the dead-letter queues: milliseconds for each letter."""

    def __init__(self, channel: Any) -> None:  # noqa: ANN401 - pika's
        self._rejected: dict[bytes, float] = {}
        self.took_ms: dict[str, list[float]] = {way: [] for way in WAYS}
        channel.exchange_declare(EXCHANGE, "direct", durable=True)
        channel.basic_qos(prefetch_count=500)
        for way in WAYS:
            self._declare(channel, way)

    def _declare(self, channel: Any, way: str) -> None:  # noqa: ANN401 - pika's
        work, dead = f"latency.{way}", f"dead.{way}"
        exchange = EXCHANGE if way == "native" else "dlx-router.inbox"
        quorum = {"x-queue-type": "quorum"}
        channel.queue_declare(work, durable=True, arguments={**quorum, "x-dead-letter-exchange": exchange})
        channel.queue_declare(dead, durable=True, arguments=quorum)
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
    def seen(self) -> int:
        """How many letters have arrived."""
        return sum(map(len, self.took_ms.values()))


def measure(url: str, rate: int, seconds: int) -> dict[str, list[float]]:
    """Milliseconds from rejection to arrival, sorted, of each letter of each way; `seconds` of each."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    watch, sent = Watch(channel), 0
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


def _turns(seconds: int) -> list[str]:
    """Native first, then routed, and so on: `seconds` of each."""
    return [way for way, _ in zip(cycle(WAYS), range(2 * max(1, seconds // TURN_S)), strict=False)]


def _all_there(connection: Any, watch: Watch, sent: int) -> None:  # noqa: ANN401 - pika's
    deadline = time.monotonic() + REST_S
    while watch.seen < sent:
        if time.monotonic() > deadline:
            raise SystemExit(f"only {watch.seen} of {sent} letters arrived")
        connection.process_data_events(0.001)


def main() -> int:
    """See the module."""
    parser = arguments(__doc__)
    parser.add_argument("--rate", type=int, default=1000)
    parser.add_argument("--seconds", type=int, default=60, help="of each way (60)")
    given = parser.parse_args()
    with one_router(given, _POLICY) as (url, _):
        took_ms = measure(url, given.rate, given.seconds)
    print(f"RabbitMQ {given.version}, {given.rate}/s for {given.seconds} s of each, reject → dead-letter queue:")
    found = {way: (statistics.median(ms), ms[int(len(ms) * 0.99)]) for way, ms in took_ms.items()}
    for way, (median, p99) in found.items():
        print(f"  {way}: {len(took_ms[way])} letters, p50 {median:.1f} ms, p99 {p99:.1f} ms")
    native, routed = (found[way] for way in WAYS)
    print(f"  routed minus native: p50 {routed[0] - native[0]:.1f} ms, p99 {routed[1] - native[1]:.1f} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
