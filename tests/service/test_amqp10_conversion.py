"""What is taken for impossible to hand over is what RabbitMQ crashes at, and nothing else: the broker is asked."""

import uuid
from typing import Any, Final

import pika
import pika.exceptions
import pytest

from dlx_router.wire.amqp10 import objection
from tests.support.client import Client
from tests.support.native import Native
from tests.support.vhost import Vhost

UUID: Final = uuid.UUID("0102030405060708090a0b0c0d0e0f10")
LONG: Final = "x" * 256
CRASHED: Final = 541


def values(proton: Any) -> dict[str, Any]:
    def array(kind: int, *items: Any) -> Any:
        return proton.Array(proton.UNDESCRIBED, kind, *items)

    data, ulong = proton.Data, proton.ulong
    return {
        "uuid": UUID,
        "char": proton.char("c"),
        "ulong": ulong(2**64 - 1),
        "ubyte": proton.ubyte(3),
        "decimal": proton.decimal32(5),
        "no number": float("nan"),
        "endless": float("inf"),
        "binary": b"abc",
        "null": None,
        "long": LONG,
        "list of uuid": [UUID],
        "list of ulong": [ulong(5)],
        "list of ubyte": [proton.ubyte(5)],
        "list of lists": [[1, "a", None, True]],
        "list of lists of ulong": [[ulong(1)]],
        "list of arrays": [array(data.INT, 1)],
        "list of maps": [{"a": ulong(1)}],
        "list of maps of uuid": [{"a": UUID}],
        "array of int": array(data.INT, 1),
        "array of ulong": array(data.ULONG, 1),
        "array of nothing": array(data.ULONG),
        "map of uuid": {"a": UUID},
        "map of arrays of ulong": {"a": array(data.ULONG, 1)},
        "map by number": {5: 1},
        "map by truth": {True: 1},
        "map by uuid": {UUID: 1},
        "map by binary": {b"k": 1},
        "map by a long key": {LONG: 1},
    }


def samples(proton: Any) -> dict[str, dict[str, Any]]:
    symbol, examples = proton.symbol, values(proton)
    messages: dict[str, dict[str, Any]] = {
        f"property {name}": {"properties": {"k": value}} for name, value in examples.items()
    }
    messages |= {
        f"annotation {name}": {"annotations": {symbol("x-k"): examples[name]}}
        for name in ("uuid", "ulong", "list of ulong")
    }
    messages |= {f"content-type {size}": {"content_type": "x" * size} for size in (255, 256)}
    messages |= {"content-encoding": {"content_encoding": LONG}, "id": {"id": LONG}, "id binary": {"id": b"x" * 300}}
    messages |= {
        "group": {"group_id": LONG},
        "reply-to": {"reply_to": LONG},
        "id uuid": {"id": UUID, "correlation_id": UUID},
    }
    messages |= {"long name": {"properties": {LONG: UUID}}, "x-death": {"annotations": {symbol("x-death"): UUID}}}
    for key in ("x-basic-type", "x-basic-priority", "x-basic-delivery-mode", "x-basic-other", "x-opt-deaths"):
        for name in ("uuid", "ulong", "long", "null", "map of uuid"):
            messages[f"{key} {name}"] = {"annotations": {symbol(key): examples[name]}}
    messages["deaths"] = {
        "annotations": {symbol("x-opt-deaths"): proton.Array(proton.UNDESCRIBED, proton.Data.MAP, {"a": 1})}
    }
    return messages


def crashes(vhost: Vhost, queue: str) -> bool:
    """Whether the broker ends the connection of who takes the head of the queue."""
    connection = pika.BlockingConnection(pika.URLParameters(vhost.amqp_url))
    try:
        method, _properties, _body = connection.channel().basic_get(queue, auto_ack=True)
    except pika.exceptions.ConnectionClosedByBroker as error:
        return bool(error.reply_code == CRASHED)
    connection.close()
    assert method is not None
    return False


def test_what_is_said_of_a_message_is_what_the_broker_does(vhost: Vhost, amqp: Client) -> None:
    version = tuple(int(part) for part in vhost.broker.version.split(".")[:2])
    if version < (4, 0):
        pytest.skip("AMQP 1.0 is a plugin there, and nothing crashes")
    wrong, harmful = {}, 0
    with Native(vhost) as native:
        queue = amqp.queue("samples")
        for name, what in samples(native.proton).items():
            native.publish(queue, [what])
            whole = native.proton.Message(body=b"odd", inferred=True, durable=True, **what).encode()
            harms, reason = crashes(vhost, queue), objection(bytes(whole), version)
            amqp.channel.queue_purge(queue)
            harmful += harms
            if bool(reason) != harms:
                wrong[name] = (harms, reason)
    assert not wrong
    assert harmful > 20
