"""Who may declare deaths: write on one exchange is all that a consumer needs, and without it the message stays."""

import asyncio
from collections.abc import Callable

import aio_pika
import pytest
from aio_pika.abc import AbstractIncomingMessage

from dlx_router.client import Undeliverable, dead
from tests.security.conftest import Admit, url_for
from tests.support.client import Client
from tests.support.router import Router
from tests.support.vhost import Vhost

POLICIES = 'version: 1\npolicies: [{name: work, match: "work.#"}]\n'
pytestmark = pytest.mark.usefixtures("newest")


async def _first(connection: aio_pika.abc.AbstractConnection) -> AbstractIncomingMessage:
    queue = await (await connection.channel()).get_queue("work.a", ensure=False)
    async with asyncio.timeout(60), queue.iterator() as messages:
        return await anext(messages)


@pytest.mark.parametrize("write", [r"^dlx-router\.declared$", "^$"])
async def test_write_on_one_exchange_is_needed_and_is_enough(
    vhost: Vhost, amqp: Client, admit: Admit, start_router: Callable[..., Router], write: str
) -> None:
    start_router(POLICIES)
    amqp.queue("work.a")
    amqp.publish("one", key="work.a")
    async with await aio_pika.connect(url_for(vhost, admit("^$", write, r"^work\."))) as connection:
        message = await _first(connection)
        if write == "^$":
            with pytest.raises(Undeliverable, match=r"dlx-router\.declared"):
                await dead(message, "boom", retry="never")
        else:
            await dead(message, "boom", retry="never")
    where = "work.a" if write == "^$" else "DLQ.work.a"
    assert (await asyncio.to_thread(amqp.take, where)).body == b"one"
