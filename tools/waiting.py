"""What letters that wait cost the router's memory: `make waiting LETTERS=1000000`.

So many letters of 1 KiB expire at a queue of their own, and a policy lets each wait for a day. They lie in the broker's
rung then, and the router has none of them: its memory does not grow with their number.
Exit: 0 within the limit · 1 not, or letters are missing.
"""

import argparse
import struct
import sys
import tempfile
import time
from typing import Any, Final

from bench_contestants import Process, settled
from bench_usage import Usage
from bench_wire import Wire
from brokers import running
from one_router import one_router

QUEUE: Final = "waiting.work"
DAY_MS: Final = 86_400_000
RUNG: Final = f"dlx-router.delay.{DAY_MS}"
LIMIT_MB: Final = 100
STALL_S: Final = 60
_BODY: Final = bytes(1024)
_HEADER: Final = struct.pack(">HHQHB", 60, 0, len(_BODY), 0x1000, 2)  # persistent, no other property
_ARGUMENTS: Final[dict[str, Any]] = {"x-message-ttl": 0, "x-dead-letter-exchange": "dlx-router.inbox"}
_CONFIG: Final = {"vm_memory_high_watermark.absolute": "6GB"}
_POLICY: Final = """\
version: 1
policies:
  - {name: waiting, match: "waiting.#", definition: {max-delivery-attempts: 2, redelivery-delay: 1d, retry-on: [expired]}}
"""


def measure(url: str, router: Process, letters: int, step: int) -> list[tuple[int, float, float]]:
    """(letters waiting, seconds, peak MB so far) each time that `step` more of them wait."""
    usage, began = Usage(router.pids[0], session=True), time.monotonic()
    told: list[tuple[int, float, float]] = []
    with Wire(url) as wire:
        wire.queue(QUEUE, _ARGUMENTS)
        for filled in range(0, letters, step):
            count = min(step, letters - filled)
            wire.fill("", QUEUE, count, lambda _: (_HEADER, _BODY))
            _wait(router, filled + count)
            usage.cpu_s()
            told.append((filled + count, time.monotonic() - began, usage.peak_mb))
            print("  {:,} wait after {:.0f} s, peak {:.1f} MB".format(*told[-1]), flush=True)
        if (depth := wire.depth(RUNG)[0]) != letters:
            raise SystemExit(f"{depth} letters lie in {RUNG}, not {letters}")
    return told


def _wait(router: Process, count: int) -> None:
    """Until the router has settled so many; the only thing that it settles here is a wait."""
    most, moved_s = -1, time.monotonic()
    while most < count:
        if (now := settled(router, within_s=STALL_S)) > most:
            most, moved_s = now, time.monotonic()
        if time.monotonic() - moved_s > STALL_S:
            raise SystemExit(f"only {most} of {count} letters wait")
        time.sleep(0.2)


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--letters", type=int, default=1_000_000)
    parser.add_argument("--step", type=int, default=100_000)
    parser.add_argument("--version", default="4.3")
    parser.add_argument("--router")
    given = parser.parse_args()
    print(f"RabbitMQ {given.version}, letters of 1 KiB:", flush=True)
    with (
        tempfile.TemporaryDirectory(prefix="dlx-router-") as folder,
        running(given.version, config=_CONFIG) as node,
        one_router(node.amqp_url, folder, _POLICY, given.router) as router,
    ):
        told = measure(node.amqp_url, router, given.letters, given.step)
    return int(told[-1][2] > LIMIT_MB)


if __name__ == "__main__":
    sys.exit(main())
