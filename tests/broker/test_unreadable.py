"""A search for what no AMQP 0-9-1 client can be given, in queues to which others go on publishing."""

import asyncio
import threading
import time
from urllib.parse import unquote, urlsplit

import pytest

from dlx_router.broker.address import Host, Login
from dlx_router.broker.amqp10 import IN_VAIN_S, Search, connected
from tests.support.client import Client
from tests.support.vhost import Vhost


async def searched(vhost: Vhost, queue: str) -> float:
    """How long it took; nothing is found."""
    parts = urlsplit(vhost.amqp_url)
    login = Login(unquote(parts.username or ""), unquote(parts.password or ""), vhost.name)
    connection = await connected(Host(parts.hostname or "", parts.port or 0), login, tls=None)
    try:
        search, begun = Search(connection), time.monotonic()
        await search.through([(queue, 2000)], "dlx-router.quarantine")
        assert (search.found, search.refused) == ([], {})
        return time.monotonic() - begun
    finally:
        await connection.close()


@pytest.mark.slow
@pytest.mark.parametrize("every_s", [0.002, 0.05], ids=["500 a second", "20 a second"])
@pytest.mark.usefixtures("newest")
def test_a_search_in_vain_is_over_soon_though_messages_keep_coming(vhost: Vhost, amqp: Client, every_s: float) -> None:
    """Nothing is consumed meanwhile: on three nodes one broken session let every letter wait for 20 s."""
    amqp.queue("flows", "quorum")
    if vhost.broker.version.startswith("3."):
        pytest.skip("RabbitMQ speaks AMQP 1.0 by itself from 4.0 on")
    over = threading.Event()

    def pour() -> None:
        with Client(vhost.amqp_url) as publisher:
            while not over.wait(every_s):
                publisher.publish("x", key="flows")

    thread = threading.Thread(target=pour)
    thread.start()
    try:
        took = asyncio.run(searched(vhost, "flows"))
    finally:
        over.set()
        thread.join()
    assert took < 10 * IN_VAIN_S
