"""What the router and the index's process say to each other: JSON, a line each, over the process's own pipes.

Secrets go through the pipe only: never into arguments, the environment or a file.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from dlx_router.broker.address import Host, Login, Tls


def attend(host: Host, login: Login, tls: Tls | None, stream: str, key: bytes = b"") -> bytes:
    """Read this stream, whose messages the key signs; without one none can be verified."""
    order = {"do": "attend", "vhost": login.vhost, "host": host.name, "port": host.port, "stream": stream}
    order |= {"key": key.hex()}
    return encoded(
        order | {"user": login.user, "password": login.password, "tls": None if tls is None else asdict(tls)}
    )


def place(order: Mapping[str, Any]) -> tuple[Host, Login, Tls | None]:
    """Where `attend` sends to."""
    tls = order["tls"]
    login = Login(order["user"], order["password"], order["vhost"])
    return Host(order["host"], order["port"]), login, None if tls is None else Tls(**tls)


def key(order: Mapping[str, Any]) -> bytes:
    """What verifies the stream that `attend` names."""
    return bytes.fromhex(order.get("key", ""))


def leave(vhost: str) -> bytes:
    """Read it no more."""
    return encoded({"do": "leave", "vhost": vhost})


def emptied(vhost: str, exchange: str, routing_key: str, until_ms: int) -> bytes:
    """The queue behind this place was found empty."""
    return encoded({"do": "emptied", "vhost": vhost, "place": [exchange, routing_key], "until_ms": until_ms})


VERIFY = b'{"do":"verify"}\n'
REBUILD = b'{"do":"rebuild"}\n'


def encoded(document: Mapping[str, Any]) -> bytes:
    """One line."""
    return f"{json.dumps(document, ensure_ascii=True)}\n".encode()


def decoded(line: bytes) -> dict[str, Any]:
    """The other way; what is no such line says nothing."""
    try:
        document = json.loads(line)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
