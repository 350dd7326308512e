"""Replay: what the journal knows of tasks, read when a router becomes leader; and of one task's letters."""

import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any, Final

from dlx_router.broker import tail
from dlx_router.broker.answers import ChannelClosed
from dlx_router.broker.link import Link
from dlx_router.operate.redrive.canary import Flock
from dlx_router.operate.redrive.task import AT_WORK, Task, newest
from dlx_router.operate.redrive.told import letters, tasks

RECENT_S: Final = 60.0  # a task at work says so every few seconds
NOT_FOUND: Final = 404


async def recent(link: Link, stream: str, key: bytes) -> dict[str, Task]:
    """Tasks at work, found in the last minute of the journal: there is no time to read all of it first."""
    start = datetime.fromtimestamp(int(time.time() - RECENT_S), UTC)
    found = newest([one async for batch in upto_now(link, stream, start) for one in tasks(batch, key)])
    return {name: one for name, one in found.items() if one.state in AT_WORK}


async def all_tasks(link: Link, stream: str, key: bytes) -> dict[str, Task]:
    """Every task that the journal still tells of."""
    return newest([one async for batch in upto_now(link, stream, "first") for one in tasks(batch, key)])


async def flock(link: Link, stream: str, task: Task) -> Flock:
    """Which letters the task has sent, and which of them are dead again."""
    found = Flock(task.id, elsewhere=task.spec.to is not None)
    start = datetime.fromtimestamp(task.created_ms // 1000 - 1, UTC)
    async for batch in upto_now(link, stream, start):
        for event in letters(batch):
            found.hear(event)
    return found


async def upto_now(link: Link, stream: str, start: Any) -> AsyncIterator[bytes]:  # noqa: ANN401 - as AMQP has it
    """The batches from `start` to what is the newest now. Nothing where there is no stream yet."""
    try:
        last = await tail.last_offset(link, stream)
    except ChannelClosed as error:
        if error.code != NOT_FOUND:
            raise
        return
    if last < 0:
        return
    messages = tail.read(link, stream, start)
    try:
        async for offset, batch in messages:
            yield batch
            if offset >= last:
                return
    finally:
        await messages.aclose()
