"""Publishes three orders to the queue orders.new and fails each of them once: python docs/examples/start/orders.py."""

import asyncio
import os

import aio_pika

QUEUE = "orders.new"
ORDERS = 3


async def main() -> None:
    """A producer and a bad consumer in one."""
    connection = await aio_pika.connect(os.environ["DLX_ROUTER_AMQP_URL"])
    async with connection, connection.channel() as channel:
        queue = await channel.declare_queue(QUEUE, durable=True, arguments={"x-queue-type": "quorum"})
        for number in range(ORDERS):
            body = f'{{"order": {number}}}'.encode()
            message = aio_pika.Message(body, content_type="application/json", delivery_mode=2)
            await channel.default_exchange.publish(message, QUEUE)
        failed = 0
        async with queue.iterator() as messages:
            async for message in messages:
                await message.reject(requeue=False)
                failed += 1
                if failed == ORDERS:
                    break
    print(f"{failed} orders failed")


if __name__ == "__main__":
    asyncio.run(main())
