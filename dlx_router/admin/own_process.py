"""One request to a process of our own on this machine, over a connection of its own, as messages of ASGI.

By h11 on a stream of asyncio: a general client takes more of the router's CPU, which letters need.
Measured: docs/decisions/0099-a-page-costs-the-router-less.md.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import Final

import h11

from dlx_router.admin.server import Message

HOST: Final = "127.0.0.1"
READ_BYTES: Final = 1 << 16
_LENGTH: Final = b"content-length"


async def ask(
    port: int,
    method: bytes,
    target: bytes,
    headers: Sequence[tuple[bytes, bytes]],
    body: bytes,
    *,
    within_s: float,
) -> AsyncGenerator[Message, None]:
    """The answer's start, its body in pieces, and its end. OSError, h11.ProtocolError: there is none, or no whole one.

    Of `headers` the length is set anew. `within_s`: to be let in, and for each piece; TimeoutError is an OSError.
    """
    known = [header for header in headers if header[0] != _LENGTH]
    if body or method not in {b"GET", b"HEAD"}:
        known.append((_LENGTH, b"%d" % len(body)))
    ours = h11.Connection(h11.CLIENT)
    written = ours.send(h11.Request(method=method, target=target, headers=known))
    written = (written or b"") + (ours.send(h11.Data(data=body)) or b"" if body else b"")
    written += ours.send(h11.EndOfMessage()) or b""
    async with asyncio.timeout(within_s):
        reader, writer = await asyncio.open_connection(HOST, port)
    try:
        async with asyncio.timeout(within_s):
            writer.write(written)
            await writer.drain()
        async for message in _answer(ours, reader, within_s):
            yield message
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def _answer(ours: h11.Connection, reader: asyncio.StreamReader, within_s: float) -> AsyncGenerator[Message, None]:
    while True:
        event = ours.next_event()
        if event is h11.NEED_DATA:
            async with asyncio.timeout(within_s):
                ours.receive_data(await reader.read(READ_BYTES))  # of an end h11 says whether it came too early
        elif isinstance(event, h11.Response):
            yield {"type": "http.response.start", "status": event.status_code, "headers": [*event.headers]}
        elif isinstance(event, h11.Data):
            yield {"type": "http.response.body", "body": bytes(event.data), "more_body": True}
        elif isinstance(event, h11.EndOfMessage):
            yield {"type": "http.response.body", "body": b""}
            return
        elif isinstance(event, h11.ConnectionClosed):
            raise h11.RemoteProtocolError("it hung up without an answer")
