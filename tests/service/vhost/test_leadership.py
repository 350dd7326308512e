"""Who leads a vhost, and who is told: sessions come and go, the leadership stays."""

import asyncio

from dlx_router.service.vhost.background import Background
from dlx_router.service.vhost.leadership import Leadership, lead
from dlx_router.service.vhost.state_queue import StateQueueWatch
from dlx_router.telemetry.metrics import Metrics
from dlx_router.telemetry.readiness import Readiness
from tests.journal.conftest import soon


def of_a_vhost() -> Leadership:
    """A leadership that nobody else stands for."""
    readiness, metrics = Readiness(), Metrics()

    async def mended(_error: Exception) -> None:
        """Nothing can be done."""

    watch = StateQueueWatch("/", "dlx-router.state", readiness, metrics)
    return Leadership("/", watch, Background(metrics, readiness), mended, lambda _address: None)


async def test_a_session_that_is_over_leaves_no_listener_behind() -> None:
    leadership, terms = of_a_vhost(), list[int]()

    async def work(term: int) -> None:
        terms.append(term)
        await asyncio.Event().wait()

    for number in range(1, 4):
        session = asyncio.create_task(lead(leadership, work))
        await soon(lambda: len(leadership._listeners) == 1)
        leadership._set(leads=True)
        await soon(lambda number=number: len(terms) == number)  # type: ignore[misc]  # a default binds it
        leadership._set(leads=False)
        session.cancel()
        await asyncio.gather(session, return_exceptions=True)
    assert leadership._listeners == []


async def test_work_ends_with_the_leadership() -> None:
    leadership, at_work = of_a_vhost(), list[int]()

    async def work(term: int) -> None:
        at_work.append(term)
        try:
            await asyncio.Event().wait()
        finally:
            at_work.remove(term)

    session = asyncio.create_task(lead(leadership, work))
    leadership._set(leads=True)
    await soon(lambda: bool(at_work))
    leadership.lose()
    await soon(lambda: not at_work)
    session.cancel()
    await asyncio.gather(session, return_exceptions=True)
