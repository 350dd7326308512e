"""docs/client.md: its consumers run as they stand there, and its header is read as it says."""

import asyncio
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pika
import pytest

from dlx_router.client import declaration as client
from dlx_router.core import declaration
from tests.support.bulk import record
from tests.support.client import Client
from tests.support.eventually import eventually
from tests.support.router import Router
from tests.support.vhost import Vhost

Start = Callable[..., Router]

PAGE: Final = (Path(__file__).parents[2] / "docs/client.md").read_text(encoding="utf-8")
POLICIES: Final = """
version: 1
policies:
  - {name: orders, match: "orders.#", definition: {redelivery-delay: 10s, max-redelivery-delay: 1h}}
"""
pytestmark = pytest.mark.usefixtures("newest")


def _part(name: str) -> str:
    block = re.search(rf"<!-- {name} -->\n```\w+\n(.*?)```", PAGE, re.DOTALL)
    assert block, f"docs/client.md lacks <!-- {name} -->"
    return block[1]


def _handle(body: bytes) -> None:
    if body != b"good":
        raise {b"forbidden": PermissionError, b"down": ConnectionError}[body](body.decode())


def _consumer(name: str) -> dict[str, Any]:
    names: dict[str, Any] = {"handle": _handle}
    exec(compile(_part(name), f"docs/client.md:{name}", "exec"), names)
    return names


def _poured(amqp: Client, *bodies: str) -> None:
    amqp.queue("orders.new")
    for body in bodies:
        amqp.publish(body, key="orders.new")


async def test_the_consumer_on_aio_pika(vhost: Vhost, amqp: Client, start_router: Start) -> None:
    router = start_router(POLICIES)
    _poured(amqp, "good", "forbidden", "down")
    running = asyncio.create_task(_consumer("async")["consume"](vhost.amqp_url))
    header = record(await asyncio.to_thread(amqp.take, "DLQ.orders.new"))
    assert (header["reason"], header["cause"]) == ("application:not-allowed", "never_retry")
    assert header["error"]["type"] == "PermissionError"
    await asyncio.to_thread(eventually, lambda: router.metric("decisions_total", action="retry") == 1)
    assert "dlx-router.delay.30000" in vhost.queues() or "dlx-router.delay.20000" in vhost.queues(), "30 s, asked for"
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # its connection is closed
def test_the_consumer_on_pika(vhost: Vhost, amqp: Client, start_router: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[pika.BlockingConnection] = []
    connect = pika.BlockingConnection

    def remembered(given: pika.URLParameters) -> pika.BlockingConnection:
        made.append(connect(given))
        return made[-1]

    monkeypatch.setattr(pika, "BlockingConnection", remembered)
    start_router(POLICIES)
    _poured(amqp, "good", "forbidden")
    thread = threading.Thread(target=_consumer("sync")["consume"], args=(vhost.amqp_url,))
    thread.start()
    header = record(amqp.take("DLQ.orders.new", within=20))
    assert (header["reason"], header["error"]["message"]) == ("application:not-allowed", "forbidden")
    eventually(lambda: amqp.depth("orders.new") == 0)
    made[0].add_callback_threadsafe(made[0].close)
    thread.join()


def test_the_header_of_the_page_is_read() -> None:
    parsed = declaration.read(_part("header").encode())
    assert (parsed.queue, parsed.exchange, parsed.routing_keys) == ("orders.new", "shop", ("order.created",))
    assert parsed.reason == "application:no-stock"
    assert parsed.declared.never
    assert parsed.error == {"type": "OutOfStock", "message": "sku 7", "frame": "stock.go:42"}


def test_the_figures_of_the_page_are_those_of_the_code() -> None:
    for text in (
        f"{client.MAX_MESSAGE:,} characters",
        f"{client.MAX_TYPE}, {client.MAX_MESSAGE:,} and {client.MAX_FRAME}",
    ):
        assert text in PAGE
    assert f"seconds, {client.WITHIN_S:g} by default" in PAGE
    assert (client.MAX_TYPE, client.MAX_MESSAGE, client.MAX_FRAME) == (
        declaration.MAX_TYPE,
        declaration.MAX_MESSAGE,
        declaration.MAX_FRAME,
    )
