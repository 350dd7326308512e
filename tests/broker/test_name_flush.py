"""Before a new queue is used another one is made, so that the broker has its name on disk; none of those stays."""

import asyncio
import time

from tests.broker.scene import topology, user
from tests.support.vhost import Vhost

TOGETHER = 20


async def test_queues_that_are_made_together_are_used_soon(vhost: Vhost) -> None:
    here = topology(vhost)
    names = [f"DLQ.{number}" for number in range(TOGETHER)]
    try:
        await asyncio.gather(*(here.ensure_dead_letter_queue(name, "quorum", None) for name in names))
    finally:
        await here.close()
    assert vhost.queues() == sorted(names)


async def test_who_may_not_make_another_queue_waits_until_names_are_written(vhost: Vhost) -> None:
    name, password = user(vhost, "exact", configure=r"^DLQ\.shop$", write=".*", read=".*")
    here = topology(vhost, user=name, password=password)
    began = time.monotonic()
    try:
        await here.ensure_dead_letter_queue("DLQ.shop", "quorum", None)
    finally:
        await here.close()
    assert time.monotonic() - began > 1.5
    assert vhost.queues() == ["DLQ.shop"]
