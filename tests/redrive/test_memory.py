"""What a task takes of a queue of large letters does not depend on how many lie there."""

from pathlib import Path
from typing import Final

from tests.redrive.conftest import Shop
from tests.support.bulk import DEAD

LETTERS: Final = 200  # of a MiB each
MOST_MIB: Final = 120  # what waits and what is on its way, and their copies on the way to the socket


def peak_mib(shop: Shop) -> float:
    """The most memory that the router ever had."""
    status = Path(f"/proc/{shop.router.pid}/status").read_text(encoding="ascii")
    [kib] = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(kib) / 1024


def test_a_task_that_means_all_has_not_all_in_memory(shop: Shop) -> None:
    """At the default rate it had taken 1,000 letters, whatever their size: 2 GiB of 2 MiB each."""
    queue = shop.amqp.queue("DLQ.large")
    for number in range(LETTERS):
        shop.amqp.publish(bytes([number]) * (1 << 20), key=queue, headers=DEAD)
    before = peak_mib(shop)
    task = shop.start(queue, kind="discard", rate=20)
    assert shop.ends(task, within=60)["counts"]["sent"] == LETTERS
    assert peak_mib(shop) - before < MOST_MIB
