"""What letters that wait cost the router's memory: `make waiting`.

So many letters of 1 KiB come to the inbox, as if a consumer had rejected them, and a policy lets each wait for a day.
They lie in the broker's rung then, and the router has none of them: its memory does not grow with their number.
Exit: 0 within the limit · 1 not, or letters are missing.
"""

import sys
import time
from typing import Final

from tools.bench.contestants import INBOX, Process, settled
from tools.bench.letters import KEY, QUEUE, Letters
from tools.bench.process_usage import Usage
from tools.bench.wire import Wire
from tools.measure.one_router import arguments, one_router

DAY_MS: Final = 86_400_000
RUNG: Final = f"dlx-router.delay.{DAY_MS}"
LIMIT_MB: Final = 100
STALL_S: Final = 60
_BODY_BYTES: Final = 1024
_CONFIG: Final = {"vm_memory_high_watermark.absolute": "6GB"}
_POLICY: Final = """\
version: 1
policies:
  - {name: waiting, match: "#", definition: {max-delivery-attempts: 2, redelivery-delay: 1d}}
"""


def measure(url: str, router: Process, total: int, step: int) -> list[tuple[int, float, float]]:
    """(letters waiting, seconds, peak MB so far) each time that `step` more of them wait."""
    usage, began = Usage(router.pids[0], session=True), time.monotonic()
    letters = Letters(_BODY_BYTES, seed=0)
    readings: list[tuple[int, float, float]] = []
    with Wire(url) as wire:
        wire.queue(QUEUE, {})
        for filled in range(0, total, step):
            count = min(step, total - filled)
            wire.fill(INBOX, KEY, count, letters)
            _wait(router, filled + count)
            usage.cpu_s()
            readings.append((filled + count, time.monotonic() - began, usage.peak_mb))
            print("  {:,} wait after {:.0f} s, peak {:.1f} MB".format(*readings[-1]), flush=True)
        if (depth := wire.depth(RUNG)[0]) != total:
            raise SystemExit(f"{depth} letters lie in {RUNG}, not {total}")
    return readings


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
    parser = arguments(__doc__)
    parser.add_argument("--letters", type=int, default=1_000_000)
    parser.add_argument("--step", type=int, default=100_000)
    given = parser.parse_args()
    print(f"RabbitMQ {given.version}, letters of 1 KiB:", flush=True)
    with one_router(given, _POLICY, _CONFIG) as (place, router):
        readings = measure(place.amqp_url, router, given.letters, given.step)
    return int(readings[-1][2] > LIMIT_MB)


if __name__ == "__main__":
    sys.exit(main())
