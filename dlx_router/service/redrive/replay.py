"""Replay: what the journal knows of tasks, read when a router becomes leader; and of one task's letters.

From RabbitMQ 3.13 on the broker leaves out what tells of letters only: of 5 GB it then reads little more than the heads
of chunks. An older one sends all, which is read slowly while letters are on their way.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

from dlx_router.broker import reading
from dlx_router.broker.answers import ChannelClosed
from dlx_router.broker.link import Link
from dlx_router.broker.stream import TASKS
from dlx_router.journal.batch import sure
from dlx_router.journal.writer import Journal
from dlx_router.redrive.canary import Flock, Sent
from dlx_router.redrive.task import Task, newest
from dlx_router.redrive.task_events import MARK, letters, tasks

SLACK_S: Final = 60.0  # how far the broker's clock may be ahead of ours
BUSY_BYTES_A_S: Final = 20_000_000
MARKED_S: Final = 3.0
FIRST_S: Final = 10.0
FILTERS_SINCE: Final = (3, 13)
SILENCE_S: Final = 5.0
NOT_FOUND: Final = 404
NO_FILTERS: Final = 406  # 3.13 until somebody enables its feature flag


async def all_tasks(link: Link, journal: Journal, key: bytes, is_busy: Callable[[], bool]) -> dict[str, Task]:
    """Every task that the journal still tells of. `is_busy`: whether letters are on their way, which come first.

    The whole journal is read: the newest messages alone may be old ones, published again or by a former leader. Each
    task is kept once, however many of its events there are: a task at work writes one every two seconds.
    """
    latest: dict[str, Task] = {}
    strange = 0
    async for _, batch, mac, version in messages(link, journal, "first", only=TASKS):
        newest(tasks(journal.opened(batch, version, MARK), key), latest)
        strange += bool(batch) and not journal.verified(batch, mac)
        if is_busy():
            await asyncio.sleep(len(batch) / BUSY_BYTES_A_S)
    journal.doubt(strange)
    return latest


async def flock(link: Link, journal: Journal, task: Task) -> Flock:
    """Which letters the task has sent, and which of them are dead again.

    That one was sent has to be signed: who invents some makes the dead a smaller part. Where none is, as of a router
    that did not sign yet, all count. Deaths count whoever tells them: a canary rather stops too early.
    """
    elsewhere, before = task.spec.to is not None, task.canary_from
    signed, claimed = (Flock(task.id, elsewhere=elsewhere, before=before) for _ in range(2))
    async for event, is_ours in _since_begin(link, journal, task):
        if not signed.sent:
            claimed.hear(event)
        if is_ours or not event.get("redrive_id"):
            signed.hear(event)
    return signed if signed.sent else claimed


async def sent_by(link: Link, journal: Journal, task: Task) -> int:
    """How many letters the task has sent.

    By the same rule as `flock`, and in a fraction of the memory.
    """
    signed, claimed = (Sent(task.id, task.spec.kind) for _ in range(2))
    async for event, is_ours in _since_begin(link, journal, task):
        if is_ours:
            signed.hear(event)
        elif not signed.count:
            claimed.hear(event)
    return signed.count or claimed.count


async def _since_begin(link: Link, journal: Journal, task: Task) -> AsyncIterator[tuple[Mapping[str, Any], bool]]:
    """Events of letters since the task began, each with whether one of our routers signed it."""
    start = datetime.fromtimestamp(task.created_ms // 1000 - SLACK_S, UTC)  # by our clock, not the broker's
    strange = 0
    async for _, batch, mac, version in messages(link, journal, start):
        is_ours = journal.verified(batch, mac)
        strange += bool(batch) and not is_ours
        for event in letters(journal.opened(batch, version)):
            yield event, is_ours
    journal.doubt(strange)


async def messages(
    link: Link,
    journal: Journal,
    start: Any,  # noqa: ANN401 - as AMQP has it
    only: str = "",
) -> AsyncIterator[reading.Read]:
    """Messages from `start` to what is the newest now. Nothing where there is no stream yet.

    `only`: others may be missing. Nobody says that the end is reached then, so a mark is written behind the newest.
    From a time on, which the broker's clock may not have reached, silence is the end too.
    """
    last = await _newest(link, journal)
    link.on_read()
    if last < 0:
        return
    is_marked = bool(only) and await _marked(journal)
    filters = only if is_marked and link.version >= FILTERS_SINCE else ""
    silence_s = SILENCE_S if only and start != "first" else None
    try:
        async for batch in _upto(last, reading.read(link, journal.name, start, filters), silence_s):
            yield batch
    except ChannelClosed as error:
        if not filters or error.code != NO_FILTERS:
            raise
        async for batch in _upto(last, reading.read(link, journal.name, start), silence_s):
            yield batch


async def _newest(link: Link, journal: Journal) -> int:
    """The offset of the newest message; −1 where there is no stream, or surely nothing in it.

    That nothing came in half a second may be the broker's haste elsewhere, and a task that is overlooked may run twice:
    so a mark is written, and has to come. TimeoutError where it does not.
    """
    try:
        last = await reading.last_offset(link, journal.name)
        if last >= 0 or not journal.is_on:
            return last
        if not await _marked(journal):
            raise TimeoutError(f"stream {journal.name!r}: nothing comes, and it takes nothing: its tasks are not known")
        last = await reading.last_offset(link, journal.name, FIRST_S)
    except ChannelClosed as error:
        if error.code != NOT_FOUND:
            raise
        return -1
    if last < 0:
        raise TimeoutError(f"stream {journal.name!r}: nothing came in {FIRST_S:g} s, and there is something in it")
    return last


async def _upto(
    last: int, stream: AsyncGenerator[reading.Read, None], silence_s: float | None
) -> AsyncIterator[reading.Read]:
    try:
        while True:
            async with asyncio.timeout(silence_s):
                message = await anext(stream)
            if message.offset <= last:
                yield message
            if message.offset >= last:
                return
    except TimeoutError:
        return
    finally:
        await stream.aclose()


async def _marked(journal: Journal) -> bool:
    """A message that tells of tasks is the newest; False where the journal does not take it in time."""
    try:
        async with asyncio.timeout(MARKED_S):
            return await sure([journal.record(b"", of_task=True)])
    except TimeoutError:
        return False
