"""What the tools that watch queues share: depth, streams, and patience. Nothing of the router is imported."""

import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pika

T = TypeVar("T")


def ready(link: pika.BlockingConnection, queue: str) -> int:
    """Ready messages now; 0 where there is no such queue."""
    probe = link.channel()
    try:
        count = int(probe.queue_declare(queue, passive=True).method.message_count)
    except pika.exceptions.ChannelClosedByBroker:
        return 0
    probe.close()
    return count


def stream(link: pika.BlockingConnection, name: str, *, idle_s: float) -> Iterator[tuple[Any, bytes]]:
    """Properties and body of each message of a stream, from its start until nothing comes for `idle_s` seconds."""
    channel = link.channel()
    channel.basic_qos(prefetch_count=100)
    first = {"x-stream-offset": "first"}
    for method, properties, body in channel.consume(name, arguments=first, inactivity_timeout=idle_s):
        if method is None:
            break
        channel.basic_ack(method.delivery_tag)
        yield properties, body


def until(look: Callable[[], T], failed: Callable[[], Exception], *, within_s: float, every_s: float) -> T:
    """The first truthy answer; after `within_s` seconds what `failed` makes is raised."""
    deadline = time.monotonic() + within_s
    while not (answer := look()):
        if time.monotonic() > deadline:
            raise failed()
        time.sleep(every_s)
    return answer
