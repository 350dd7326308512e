"""Which queues are looked at by AMQP 1.0 after RabbitMQ crashed (541), and what is said of those that are not."""

import pytest

from dlx_router.broker.address import Host, Login
from dlx_router.service.dispatch.own_queues_refusing import RefusingQueues
from dlx_router.service.vhost.unreadable_head import WINDOW, UnreadableHead
from dlx_router.telemetry.readiness import Readiness
from tests.support.worker import NAMES, Session
from tools.brokers.node import free_port

PREFETCH = 100


def _head(readiness: Readiness) -> UnreadableHead:
    session = Session({})
    return UnreadableHead(
        "/",
        NAMES,
        journal=session.journal,
        metrics=session.metrics,
        readiness=readiness,
        refusals=RefusingQueues("/", readiness),
        event_factory=lambda: session.decider.in_force.event_factory,
    )


@pytest.mark.parametrize(
    ("version", "limit", "window"),
    [
        ((4, 0), 0, None),
        ((4, 2), 1, None),
        ((4, 2), 2, 1),
        ((4, 0), 4, PREFETCH),
        ((4, 0), None, PREFETCH),
        ((4, 3), 1, PREFETCH),
        ((3, 10), 20, None),
    ],
)
def test_no_look_is_the_return_that_deletes_a_letter(
    version: tuple[int, ...], limit: int | None, window: int | None
) -> None:
    """The 541 was a return, and before 4.3 a look is one: with a limit of 1 the queue deletes what was looked at."""
    head = _head(Readiness())
    head.suspect({NAMES.inbox: None, "staging": limit}, version, PREFETCH)
    windows = {suspect.queue: suspect.first for suspect in head._suspects}
    assert windows.get("staging") == window
    assert windows.get(NAMES.inbox) == (WINDOW if version >= (4,) else None)


@pytest.mark.parametrize("queues", [{"staging": 1}, {NAMES.inbox: None, "staging": 1}])
async def test_what_is_not_looked_at_is_said(queues: dict[str, int | None]) -> None:
    readiness = Readiness()
    head = _head(readiness)
    head.suspect(queues, (4, 0), PREFETCH)
    assert not await head.search(Host("127.0.0.1", free_port()), Login("guest", "guest", "/"), None)
    (note,) = [note for note in readiness.notes() if "541" in note]
    assert "staging could not be read: that is a return on this RabbitMQ" in note
    assert "deletes a message at its return number 2; give it a dead-letter exchange or a higher delivery-limit" in note
    assert not await head.search(Host("127.0.0.1", free_port()), Login("guest", "guest", "/"), None), "only once"
