"""A shop whose orders fail: publishes three to orders.new and rejects every delivery, three of each.

With the word `mended` it publishes nothing, and three deliveries succeed.
"""

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable

import aio_pika
from aio_pika.abc import AbstractIncomingMessage, AbstractQueue

QUEUE = "orders.new"
ORDERS = 3
DELIVERIES = 3


async def main(*, mended: bool) -> None:
    """A producer and a consumer in one."""
    connection = await aio_pika.connect(os.environ["DLX_ROUTER_AMQP_URL"])
    async with connection, connection.channel() as channel:
        queue = await channel.declare_queue(QUEUE, durable=True, arguments={"x-queue-type": "quorum"})
        if mended:
            await consume(queue, ORDERS, works)
            return
        for number in range(ORDERS):
            message = aio_pika.Message(f"order {number}".encode(), delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
            await channel.default_exchange.publish(message, QUEUE)
        await consume(queue, ORDERS * DELIVERIES, fails)


async def consume(queue: AbstractQueue, count: int, work: Callable[[AbstractIncomingMessage], Awaitable[None]]) -> None:
    """So many deliveries."""
    async with queue.iterator() as deliveries:
        for _ in range(count):
            await work(await anext(deliveries))


async def fails(message: AbstractIncomingMessage) -> None:
    """A consumer rejects without requeue: that is all it has to do."""
    deaths = sum(death["count"] for death in message.headers.get("x-death", []) if death["queue"] == QUEUE)
    print(f"{message.body.decode()} fails after {deaths} deaths", flush=True)
    await message.reject(requeue=False)


async def works(message: AbstractIncomingMessage) -> None:
    """The cause is mended."""
    print(f"{message.body.decode()} is done", flush=True)
    await message.ack()


if __name__ == "__main__":
    asyncio.run(main(mended="mended" in sys.argv[1:]))
