"""CPU of the router a letter, without a broker: real consumer, worker, publisher, settler and journal, no socket.

    PYTHONPATH=. python -m tools.shape.speed [--letters N] [--size BYTES] [--read BYTES] [--keys N] [--singly]

A number of this machine, at this moment: for the same letters before and after a change, in turn. What system calls and
a broker cost is in none of it; `make bench` has that.
"""

import argparse
import asyncio
import struct
import time
from collections.abc import Sequence
from typing import Final

from dlx_router.journal.mode import Mode
from tests.support.ends import INBOX, Ends, delivered, resources_are_there
from tools.bench.letters import Letters

TEACH: Final = 4  # letters of each key before it is measured
EVERY: Final = 4  # reads of letters for one of confirms


async def _measured(given: argparse.Namespace) -> float:
    ends = Ends(
        {"dead-letter-exchange": "dlx", "max-delivery-attempts": 1}, mode=Mode(given.journal), in_runs=not given.singly
    )
    await ends.begin()
    resources_are_there(ends)
    letters, exchange, channel = Letters(given.size, 1), INBOX.encode(), ends.channel
    keys = [b"order.%02d" % number for number in range(given.keys)]
    count = given.letters + TEACH * given.keys
    stream = [
        delivered(channel, number, (exchange, keys[number % given.keys]), *letters(number))
        for number in range(1, count + 1)
    ]
    teach, rest = b"".join(stream[: TEACH * given.keys]), b"".join(stream[TEACH * given.keys :])
    spent = 0.0
    for at, read in enumerate([teach, *(rest[at : at + given.read] for at in range(0, len(rest), given.read))]):
        began = time.process_time()
        ends.consume.data_received(read)
        ends.publish.flush()
        if at % EVERY == 0:
            ends.session.journal.flush()
        took = time.process_time() - began + _answered(ends)
        spent += took if at else 0.0
        ends.acked()
    ends.session.journal.flush()
    _answered(ends)
    settled = sum(ends.session.metrics.settled.values())
    if settled != count:
        raise RuntimeError(f"{settled} letters of {count} were settled")
    return spent / float(given.letters) * 1e6


def _answered(ends: Ends) -> float:
    """All that was published is confirmed; → what that took."""
    last = {message.channel: message.number for message in ends.published()}
    data = b"".join(
        struct.pack(">BHIIQBB", 1, channel, 13, 0x003C_0050, number, 1, 0xCE) for channel, number in last.items()
    )
    began = time.process_time()
    if data:
        ends.publish.data_received(data)
    return time.process_time() - began


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure five times, and tell."""
    parser = argparse.ArgumentParser(description="CPU of the router a letter, without a broker.")
    parser.add_argument("--letters", type=int, default=10_000)
    parser.add_argument("--size", type=int, default=1024, help="of a body, bytes")
    parser.add_argument("--read", type=int, default=65_536, help="bytes that one read brings")
    parser.add_argument("--keys", type=int, default=1, help="routing keys, in turn")
    parser.add_argument("--journal", choices=[mode.value for mode in Mode], default=Mode.BEST_EFFORT.value)
    parser.add_argument("--singly", action="store_true", help="each letter by itself, and not in runs")
    given = parser.parse_args(arguments)
    times = sorted(asyncio.run(_measured(given)) for _ in range(5))
    print(f"µs a letter: {times[0]:.2f} … {times[-1]:.2f}, median {times[2]:.2f}")


if __name__ == "__main__":
    main()
