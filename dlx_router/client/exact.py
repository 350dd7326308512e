"""Make the headers of a copy, or refuse the message: what a client library cannot copy exactly is not declared.

Client libraries read AMQP's types into fewer of their own, and write them back by rules of their own: pika cuts the
fraction off 3.14159, pamqp writes it with 32 bits. So each header is written and read once more, by the library itself,
before a copy is published: what is not the same then is refused, and the message stays where it is. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from dlx_router.client.declaration import FRAME_EDGE, Delivered, InexactHeader, Undeliverable, Words, header, kept

ADVICE = "change it, remove it, or reject the message, which keeps every byte of it"


def bytes_or_text(value: object) -> str:
    """Doubt bytes that are no text: libraries read a text in another encoding, and bytes, into the same."""
    if isinstance(value, bytes):
        try:
            value.decode()
        except UnicodeDecodeError:
            return "these bytes may have come as text"
    return ""


def declared_headers(
    words: Words,
    message: Delivered,
    prefix: str,
    again: Callable[[dict[Any, object]], object],
    doubt: Callable[[object], str] = bytes_or_text,
    *,
    invents_ids: bool = False,
) -> dict[str, Any]:
    """Return the headers of the copy. Raises InexactHeader, and what `header` raises.

    `again`: a table, written and read by the library. `doubt`: why a value that was read may not be what came, or "".
    """
    headers = kept(message.headers, header(words, message, prefix, invents_ids=invents_ids))
    for name, value in headers.items():
        for part in _parts(value):
            if why := doubt(part):
                raise InexactHeader(f"header {name!r}: {why}; {ADVICE}")
        try:
            copied = again({name: value})
        except Exception as error:
            raise InexactHeader(f"header {name!r}: {error!r}; {ADVICE}") from error
        if _comparable(copied) != _comparable({name: value}):
            raise InexactHeader(f"header {name!r}: {value!r} cannot be copied exactly; {ADVICE}")
    return headers


def require_room(header_bytes: Callable[[], int], frame_max: int) -> None:
    """Raise where the properties cannot be written, or do not fit one frame: the broker would close the connection."""
    try:
        size = header_bytes()
    except Exception as error:  # encoders raise what comes, AssertionError too
        raise InexactHeader(f"a property cannot be written: {error!r}; {ADVICE}") from error
    if size > frame_max - FRAME_EDGE:
        raise Undeliverable(f"its headers would have {size} bytes, and a frame holds {frame_max - FRAME_EDGE}")


def require_whole_seconds(timestamp: object) -> None:
    """Raise InexactHeader for a timestamp with a fraction: AMQP's are whole seconds since 1970."""
    if isinstance(timestamp, datetime) and (timestamp.microsecond or timestamp.timestamp() < 0):
        raise InexactHeader(f"property 'timestamp': AMQP has whole seconds since 1970, not {timestamp}; {ADVICE}")


def _parts(value: object) -> list[object]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [value, *(part for item in inner for part in _parts(item))]


def _comparable(value: object) -> object:
    """By type and text: True is not 1, 1 is not 1.0, and a NaN is what it was. The order of a table does not count."""
    if isinstance(value, dict):
        return {name: _comparable(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_comparable(item) for item in value]
    return type(value), repr(value)
