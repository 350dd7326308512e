"""A shop whose orders fail now and then: publishes to orders.new and rejects one in five. Needs AMQP_URL."""

import asyncio
import os
import random

import aio_pika
from aio_pika.abc import AbstractIncomingMessage

QUEUE = "orders.new"
FAILED = "orders.failed"  # where policies/orders.yaml sends what is out of tries
A_SECOND = 20
FAILS = 0.2


async def main() -> None:
    """Until it is stopped."""
    connection = await aio_pika.connect_robust(os.environ["AMQP_URL"])
    channel = await connection.channel()
    await channel.set_qos(prefetch_count=10)
    sure = {"x-dead-letter-strategy": "at-least-once", "x-overflow": "reject-publish"}
    arguments = {"x-queue-type": "quorum", "x-dead-letter-exchange": "dlx-router.inbox", **sure}
    queue = await channel.declare_queue(QUEUE, durable=True, arguments=arguments)
    await channel.declare_queue(FAILED, durable=True, arguments={"x-queue-type": "quorum"})
    await queue.consume(_work)
    number = 0
    while True:
        number += 1
        body = f'{{"order": {number}}}'.encode()
        message = aio_pika.Message(body, content_type="application/json", delivery_mode=2)
        await channel.default_exchange.publish(message, QUEUE)
        await asyncio.sleep(1 / A_SECOND)


async def _work(message: AbstractIncomingMessage) -> None:
    if random.random() < FAILS:
        await message.reject(requeue=False)
    else:
        await message.ack()


if __name__ == "__main__":
    asyncio.run(main())
