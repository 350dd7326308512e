"""`python faststream_errors.py URL QUEUE BLOCK`: a FastStream app."""

import asyncio
import inspect
import sys

from failing import handle, set_up, told
from faststream.exceptions import NackMessage, RejectMessage
from faststream.rabbit import RabbitMessage, RabbitQueue


async def main(url: str, queue: str, block: str) -> None:
    """Until it is ended."""
    broker = set_up(block, queue, url=url)["broker"]
    is_new = "declare" in inspect.signature(RabbitQueue).parameters
    there = RabbitQueue(queue, declare=False) if is_new else RabbitQueue(queue, passive=True)

    async def take(text: str, message: RabbitMessage) -> None:
        told("took", text)
        if text == "again" and not message.raw_message.redelivered:
            raise NackMessage
        if text == "no":
            raise RejectMessage
        if text == "because":
            try:
                handle("odd")
            except KeyError as error:
                raise RejectMessage from error
        if text == "hidden":
            try:
                handle("odd")
            except KeyError:
                raise RejectMessage from None
        handle(text)

    broker.subscriber(there)(take)
    await broker.start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
