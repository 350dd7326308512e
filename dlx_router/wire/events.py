"""What a connection tells us. Each event names its channel; strings are the bytes that came.

`header` is the whole payload of the content header frame: class, weight, body size, then at byte 12 the properties.
"""

from typing import Any, Final, NamedTuple


class Delivery(NamedTuple):
    """basic.deliver with its content; to be settled by `tag` on `channel`."""

    channel: int
    consumer_tag: bytes
    tag: int
    redelivered: bool
    exchange: bytes
    routing_key: bytes
    header: bytes
    body: bytes


class Got(NamedTuple):
    """basic.get-ok with its content; `message_count` is what the queue still holds."""

    channel: int
    tag: int
    redelivered: bool
    exchange: bytes
    routing_key: bytes
    message_count: int
    header: bytes
    body: bytes


class Returned(NamedTuple):
    """basic.return: a mandatory publication found no queue. It has no tag: see `stamp.find_pub`."""

    channel: int
    code: int
    text: bytes
    exchange: bytes
    routing_key: bytes
    header: bytes
    body: bytes


class Confirm(NamedTuple):
    """basic.ack (`ok`) or basic.nack of our publication number `tag`, or with `multiple` of all up to it."""

    channel: int
    tag: int
    multiple: bool
    ok: bool


class Cancelled(NamedTuple):
    """basic.cancel by the broker: the queue is gone or moved; nothing more comes to this consumer."""

    channel: int
    consumer_tag: bytes


class Method(NamedTuple):
    """Any other method, as pamqp's object."""

    channel: int
    command: Any


class Heartbeat(NamedTuple):
    """The peer is alive."""

    channel: int = 0


Event = Delivery | Got | Returned | Confirm | Cancelled | Method | Heartbeat
BEAT: Final = Heartbeat()
