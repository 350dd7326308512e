"""`python pika_errors.py URL QUEUE BLOCK`: a consumer on pika, that goes on when an exception has left its callback."""

import sys
from typing import Any

import pika
from failing import handle, set_up, told


def take(channel: Any, method: Any, _: Any, body: bytes) -> None:
    """Settled in each of the ways that there are."""
    text, tag = body.decode(), method.delivery_tag
    told("took", text)
    if text == "odd":
        handle(text)  # leaves the callback, and the message is not settled
    if text == "no":
        channel.basic_reject(tag, requeue=False)
        return
    try:
        handle("odd" if text == "again" and not method.redelivered else text)
    except Exception:  # noqa: BLE001 - as a consumer does
        if text == "again":
            channel.basic_nack(tag, requeue=True)
        elif text == "boom 2":
            channel.basic_nack(tag, requeue=False)
        else:
            channel.basic_reject(tag, requeue=False)
    else:
        channel.basic_ack(tag)


def main(url: str, queue: str, block: str) -> None:
    """Until it is ended."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel: Any = set_up(block, queue, connection=connection)["channel"]
    channel.basic_qos(prefetch_count=5)
    channel.basic_consume(queue, take)
    while True:
        try:
            channel.start_consuming()
        except KeyError as error:
            told("left the callback", repr(error))


if __name__ == "__main__":
    main(*sys.argv[1:])
