"""A shop whose orders fail: publishes three to orders.new and rejects every delivery, three of each."""

import asyncio
import os

import aio_pika

QUEUE = "orders.new"
ORDERS = 3
DELIVERIES = 9


async def main() -> None:
    """A producer and a bad consumer in one."""
    connection = await aio_pika.connect(os.environ["DLX_ROUTER_AMQP_URL"])
    async with connection, connection.channel() as channel:
        queue = await channel.declare_queue(QUEUE, durable=True, arguments={"x-queue-type": "quorum"})
        for number in range(ORDERS):
            message = aio_pika.Message(f"order {number}".encode(), delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
            await channel.default_exchange.publish(message, QUEUE)
        async with queue.iterator() as deliveries:
            for _ in range(DELIVERIES):
                message = await anext(deliveries)
                print(f"{message.body.decode()} fails after {_deaths(message)} deaths", flush=True)
                await message.reject(requeue=False)


def _deaths(message: aio_pika.abc.AbstractIncomingMessage) -> int:
    """How often it died here, by the history that RabbitMQ writes and the router continues."""
    return sum(death["count"] for death in message.headers.get("x-death", []) if death["queue"] == QUEUE)


if __name__ == "__main__":
    asyncio.run(main())
