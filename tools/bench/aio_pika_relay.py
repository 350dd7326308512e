"""The relay that a careful team writes on aio-pika in an afternoon: nothing is acked before its copy is confirmed.

Concurrent (a task a message, up to the prefetch), publisher confirms, mandatory, x-death edited, uvloop.
Usage: tools/bench/aio_pika_relay.py AMQP_URL SOURCE_QUEUE EXCHANGE. Ends on SIGTERM.
"""

import asyncio
import signal
import sys
from typing import Any, Final

import aio_pika
from aio_pika.abc import AbstractExchange, AbstractIncomingMessage
from uvloop import new_event_loop

_PREFETCH: Final = 1000


async def relay(url: str, source: str, target: str) -> None:
    """Moves every message of `source` to the exchange `target` until a signal."""
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    async with await aio_pika.connect(url) as connection:
        consuming = await connection.channel(publisher_confirms=False)
        publishing = await connection.channel(publisher_confirms=True, on_return_raises=True)
        await consuming.set_qos(_PREFETCH)
        exchange = await publishing.get_exchange(target)
        queue = await consuming.get_queue(source)

        async def take(message: AbstractIncomingMessage) -> None:
            await _forward(exchange, source, message)

        tag = await queue.consume(take)
        await ended.wait()
        await queue.cancel(tag)


async def _forward(exchange: AbstractExchange, source: str, message: AbstractIncomingMessage) -> None:
    headers = {**message.headers, "x-death": _with_death(message.headers.get("x-death"), source, message)}
    copy = aio_pika.Message(
        message.body, headers=headers, content_type=message.content_type, delivery_mode=message.delivery_mode,
        message_id=message.message_id, timestamp=message.timestamp, type=message.type,
        correlation_id=message.correlation_id, reply_to=message.reply_to, priority=message.priority,
        app_id=message.app_id, content_encoding=message.content_encoding,
    )  # fmt: skip
    await exchange.publish(copy, message.routing_key or "", mandatory=True)
    await message.ack()


def _with_death(deaths: Any, source: str, message: AbstractIncomingMessage) -> list[Any]:  # noqa: ANN401 - any table
    """One more death at `source` on top, as the broker would have written it."""
    earlier = list(deaths or ())
    here = [entry for entry in earlier if entry.get("queue") == source and entry.get("reason") == "rejected"]
    newest = {
        "count": 1 + sum(entry.get("count", 0) for entry in here),
        "reason": "rejected",
        "queue": source,
        "time": here[0]["time"] if here else message.timestamp,
        "exchange": message.exchange or "",
        "routing-keys": [message.routing_key],
    }
    return [newest, *(entry for entry in earlier if entry not in here)]


def main() -> None:
    """Runs until SIGTERM."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(relay(*sys.argv[1:4]))


if __name__ == "__main__":
    main()
