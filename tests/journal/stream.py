"""A reader of streams that shares no code with the router: plain pika over AMQP 0-9-1."""

import time
from typing import Any

import pika
import pika.exceptions

from tests.journal import plain_reader
from tests.support.eventually import patience

NAME = "dlx-router.journal"
NOT_FOUND = 404


def batches(url: str, name: str = NAME, *, within: float = 10, idle: float = 0.5) -> list[tuple[int, list[Any]]]:
    """Every message of the stream as (offset, events), until nothing comes for `idle` seconds; none without a stream.

    The connection is closed as it is: RabbitMQ 3.10 ends it when a stream's delivery is given back.
    """
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.basic_qos(prefetch_count=100)
    messages: list[tuple[int, list[Any]]] = []

    def read(_channel: Any, method: Any, properties: Any, body: bytes) -> None:
        packed = properties.content_encoding
        labels = (properties.content_type, packed, properties.headers["v"])
        assert labels == ("application/x-ndjson", packed, 2 if packed == "zstd" else 1)
        messages.append((properties.headers["x-stream-offset"], plain_reader.events(packed, body)))
        channel.basic_ack(method.delivery_tag)

    try:
        channel.basic_consume(name, read, arguments={"x-stream-offset": "first"})
    except pika.exceptions.ChannelClosedByBroker as error:
        connection.close()
        if error.reply_code == NOT_FOUND:
            return []
        raise
    deadline, seen, last = time.monotonic() + patience(within), 0, time.monotonic()
    while time.monotonic() < deadline and time.monotonic() - last < idle:
        connection.process_data_events(time_limit=0.05)
        if len(messages) > seen:
            seen, last = len(messages), time.monotonic()
    connection.close()
    return messages


def events(url: str, name: str = NAME) -> list[Any]:
    """Every event of the stream, in order."""
    return [event for _, lines in batches(url, name) for event in lines]
