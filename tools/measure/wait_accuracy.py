"""How late waits end: `make lateness`. A consumer of its own rejects letters at a steady rate and sees them come back.

Lateness: second delivery minus rejection minus the policy's wait, on the consumer's own clock, so everything is in it:
the broker's dead lettering, the router twice, the rung. Never below zero, or a letter came early, which is an error.
Exit: 0 measured and within the limit · 1 not.
"""

import statistics
import sys
import time
from typing import Any, Final

import pika

from tools.measure.one_router import arguments, one_router

QUEUE: Final = "late.work"
WAIT_S: Final = 5.0
LIMIT_S: Final = 0.150
_POLICY: Final = """\
version: 1
policies:
  - {name: late, match: "late.#", definition: {max-delivery-attempts: 2, redelivery-delay: 5s}}
"""


class Watch:
    """Rejects what comes for the first time, acks the second, and knows how long each was away."""

    def __init__(self) -> None:
        self.rejected: dict[bytes, float] = {}
        self.late_s: list[float] = []

    def __call__(self, channel: Any, method: Any, _properties: Any, body: bytes) -> None:  # noqa: ANN401 - pika's
        """What pika calls for each delivery."""
        began = self.rejected.pop(body, None)
        if began is None:
            self.rejected[body] = time.monotonic()
            channel.basic_reject(method.delivery_tag, requeue=False)
        else:
            self.late_s.append(time.monotonic() - began - WAIT_S)
            channel.basic_ack(method.delivery_tag)


def measure(url: str, rate: int, seconds: int) -> list[float]:
    """Lateness of every letter, in seconds."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    arguments = {"x-queue-type": "quorum", "x-dead-letter-exchange": "dlx-router.inbox"}
    channel.queue_declare(QUEUE, durable=True, arguments=arguments)
    channel.basic_qos(prefetch_count=500)
    watch = Watch()
    channel.basic_consume(QUEUE, watch)
    total, sent, began = rate * seconds, 0, time.monotonic()
    while len(watch.late_s) < total and time.monotonic() - began < seconds + WAIT_S + 60:
        while sent < total and sent < (time.monotonic() - began) * rate:
            channel.basic_publish("", QUEUE, b"%d" % sent, pika.BasicProperties(delivery_mode=2))
            sent += 1
        connection.process_data_events(0.001)
    connection.close()
    if len(watch.late_s) < total:
        raise SystemExit(f"only {len(watch.late_s)} of {total} letters came back")
    return watch.late_s


def main() -> int:
    """See the module."""
    parser = arguments(__doc__)
    parser.add_argument("--rate", type=int, default=1000)
    parser.add_argument("--seconds", type=int, default=30)
    given = parser.parse_args()
    with one_router(given, _POLICY) as (place, _):
        late = sorted(measure(place.amqp_url, given.rate, given.seconds))
    p99 = late[int(len(late) * 0.99)]
    median = statistics.median(late)
    print(
        f"RabbitMQ {given.version}, {given.rate}/s for {given.seconds} s, wait {WAIT_S:g} s, {len(late)} letters: "
        f"earliest {late[0] * 1000:.1f} ms, median {median * 1000:.1f} ms, p99 {p99 * 1000:.1f} ms, "
        f"latest {late[-1] * 1000:.1f} ms"
    )
    return int(p99 > LIMIT_S or late[0] < 0)


if __name__ == "__main__":
    sys.exit(main())
