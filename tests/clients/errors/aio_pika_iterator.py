"""`python aio_pika_iterator.py URL QUEUE BLOCK`: the loop that most consumers on aio-pika are."""

import asyncio
import sys

import aio_pika
from failing import handle, set_up, told


async def main(url: str, queue: str, block: str) -> None:
    """Until it is ended."""
    connection = await aio_pika.connect_robust(url)
    channel = await connection.channel()
    await channel.set_qos(prefetch_count=5)
    names = set_up(block, queue, channel=channel)
    await names["awaited"]
    async with names["queue"].iterator() as messages:
        async for message in messages:
            text = message.body.decode()
            told("took", text)
            try:
                async with message.process():
                    handle(text)
            except Exception as error:  # noqa: BLE001 - as a consumer does
                told("failed", type(error).__name__)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
