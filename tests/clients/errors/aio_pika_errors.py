"""`python aio_pika_errors.py URL QUEUE BLOCK`: consumers on aio-pika, a callback or an iterator as the message says."""

import asyncio
import sys

import aio_pika
from failing import handle, set_up, told


async def take(message: aio_pika.IncomingMessage) -> None:
    """Settled in each of the ways that there are."""
    text = message.body.decode()
    told("took", text)
    if text == "odd":
        handle(text)  # leaves the callback, and the message is not settled
    if text == "boom 2":
        try:
            handle(text)
        except Exception:
            await message.nack(requeue=False)
            raise
    if text == "again":
        try:
            handle("odd")
        except KeyError:
            await (message.ack() if message.redelivered else message.nack(requeue=True))
        return
    if text == "no":
        await message.reject(requeue=False)
        return
    async with message.process():
        if text == "cancel":
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.Event().wait()
        handle(text)


async def main(url: str, queue: str, block: str) -> None:
    """Until it is ended."""
    connection = await aio_pika.connect_robust(url)
    channel = await connection.channel()
    await channel.set_qos(prefetch_count=5)
    names = set_up(block, queue, channel=channel)
    await names["awaited"]
    await names["queue"].consume(take)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
