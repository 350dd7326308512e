"""What runs beside the letters: an error of its own is told, and it is begun again."""

import asyncio

import pytest

from dlx_router.service.vhost import background
from dlx_router.service.vhost.background import Background
from dlx_router.telemetry.metrics import Metrics
from dlx_router.telemetry.readiness import Readiness
from tests.support.eventually import eventually


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(background, "STEADY_S", 0.1)


@pytest.mark.usefixtures("quick")
async def test_a_task_that_fails_is_told_counted_noted_and_begun_again() -> None:
    metrics, readiness, works = Metrics(), Readiness(), asyncio.Event()

    async def work() -> None:
        if metrics.background_failures["index"] < 2:
            raise KeyError("places")
        works.set()
        await asyncio.sleep(60)  # work that goes on

    task = asyncio.create_task(Background(metrics, readiness).keep("index", work, where="/"))
    await asyncio.wait_for(works.wait(), 60)
    assert metrics.background_failures["index"] == 2
    assert "task 'index' of vhost '/' ended by an error of its own (KeyError('places'))" in readiness.notes()[0]
    await asyncio.to_thread(eventually, lambda: not readiness.notes())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
