"""A broker that is killed: what was settled in `required` is in the stream, or was never settled."""

import asyncio
from collections.abc import Callable, Iterator

import pytest

from dlx_router.journal.mode import Mode
from tests.journal import stream
from tests.journal.conftest import Desk, soon
from tests.support.vhost import Vhost
from tools import brokers


@pytest.fixture
def own_vhost(own_broker: brokers.Node) -> Iterator[Vhost]:
    own_broker.start()
    vhost = Vhost.make(own_broker, "killed")
    yield vhost
    vhost.close()


@pytest.fixture
def own_desk(own_vhost: Vhost) -> Callable[..., Desk]:
    return lambda **settings: Desk(own_vhost, **settings)


async def attended(desk: Desk, numbers: list[int], kill: Callable[[], None] | None) -> None:
    """A session that tells these letters, a few a turn; the broker is killed in the midst of it."""
    async with desk.session() as link:
        await soon(lambda: not desk.readiness.reasons() and desk.journal.is_working, within=30)
        for at in range(0, len(numbers), 20):
            for number in numbers[at : at + 20]:
                desk.tell(number)
            desk.journal.flush()
            await asyncio.sleep(0)
            if kill is not None and at == len(numbers) // 2:
                await asyncio.to_thread(kill)
                await soon(lambda: not link.is_open)
                return
        await soon(lambda: not desk.journal.is_working or {*numbers} <= {*desk.settled})


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
async def test_no_event_of_a_settled_letter_is_missing_after_the_broker_was_killed(
    own_broker: brokers.Node, own_vhost: Vhost, own_desk: Callable[..., Desk]
) -> None:
    desk = own_desk(mode=Mode.REQUIRED)
    await attended(desk, [], None)
    await asyncio.sleep(8)  # RabbitMQ 3.10 loses streams that are younger than some 5 s when it is killed
    await attended(desk, [*range(2000)], own_broker.kill)
    settled = {*desk.settled}
    assert len(settled) < 2000
    await asyncio.to_thread(own_broker.start)
    again = [number for number in range(2000) if number not in settled]  # as the broker delivers them again
    await attended(desk, again, None)
    assert {*desk.settled} == {*range(2000)}
    assert {*range(2000)} <= await asyncio.to_thread(told, own_vhost)


def told(vhost: Vhost) -> set[int]:
    return {event["digest"]["size"] for event in stream.events(vhost.amqp_url)}
