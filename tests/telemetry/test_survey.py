"""What lies in queues is told as it was last seen, and forgotten when nobody looks any more."""

import asyncio

from dlx_router.telemetry.metrics import Metrics
from dlx_router.telemetry.survey import Seen, Survey


async def _watched(survey: Survey, vhost: str, seen: Seen) -> asyncio.Task[None]:
    looked = asyncio.Event()

    async def look() -> Seen:
        looked.set()
        return seen

    task = asyncio.create_task(survey.watch(vhost, look))
    await asyncio.wait_for(looked.wait(), 60)
    return task


async def _left(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_vhost_that_is_left_is_forgotten_and_others_are_not() -> None:
    survey = Survey(metrics := Metrics())
    watched = await _watched(survey, "a", Seen({"5000": 2}, {"DLQ.x": 7.0}))
    other = await _watched(survey, "b", Seen({"1000": 3}))
    await _left(watched)
    assert metrics.waiting() == {"1000": 3}
    assert metrics.oldest_letter_timestamp_seconds() == {}
    await _left(other)
    assert metrics.waiting() == {}
    assert b"dlx_router_waiting{" not in metrics.text()
