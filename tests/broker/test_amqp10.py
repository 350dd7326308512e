"""A broker that tells late what became of a delivery by AMQP 1.0, or tells it of others."""

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from dlx_router.broker.address import Host, Login
from dlx_router.broker.amqp10 import connected
from dlx_router.wire.amqp10 import FALSE, NULL, TRUE, Value, composite, decode, encode, fields, string, symbol, uint

OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, _, _, CLOSE = range(0x10, 0x19)
MECHANISMS, INIT, OUTCOME = 0x40, 0x41, 0x44
ACCEPTED, REJECTED = 0x24, 0x25
HELLO_SASL = b"AMQP\x03\x01\x00\x00"
WIDE = uint(1 << 20)
ABOUT = Value("map", ((symbol("version"), string("4.3.0")),))


def disposition(first: int, last: int | None = None, outcome: int = ACCEPTED) -> bytes:
    """Of deliveries of who sends."""
    return frame(DISPOSITION, TRUE, uint(first), NULL if last is None else uint(last), TRUE, composite(outcome))


def frame(code: int, *given: Value) -> bytes:
    body = encode(composite(code, *given))
    return struct.pack("!IBBH", 8 + len(body), 2, 0, 0) + body


class Broker:
    """It takes one link and grants credit; to each delivery it answers what `says` has for it, by its number."""

    def __init__(self, says: dict[int, bytes]) -> None:
        self._says = says

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        code = 0
        while code != CLOSE:
            head = await reader.readexactly(8)
            if head.startswith(b"AMQP"):
                writer.write(head + (frame(MECHANISMS, symbol("PLAIN")) if head == HELLO_SASL else b""))
                continue
            size, _, _, _ = struct.unpack("!IBBH", head)
            code, values = fields(decode(await reader.readexactly(size - 8))[0])
            writer.write(self._answer(code, values))
        writer.close()

    def _answer(self, code: int, values: tuple[Any, ...]) -> bytes:
        if code == TRANSFER:
            return self._says.get(values[1].of, b"") if values[5] == FALSE else b""
        return {
            INIT: frame(OUTCOME, Value("ubyte", 0)),
            OPEN: frame(OPEN, string("broker"), *[NULL] * 8, ABOUT),
            BEGIN: frame(BEGIN, Value("ushort", 0), uint(0), WIDE, WIDE),
            ATTACH: frame(ATTACH, string("link"), uint(0), TRUE)
            + frame(FLOW, uint(0), WIDE, uint(0), WIDE, uint(0), uint(0), uint(100)),
            CLOSE: frame(CLOSE),
        }[code]


@asynccontextmanager
async def sender(says: dict[int, bytes]) -> AsyncIterator[Callable[..., Any]]:
    """send(message, within) → why the broker did not take it."""
    server = await asyncio.start_server(Broker(says).serve, "127.0.0.1", 0)
    async with server:
        connection = await connected(Host(*server.sockets[0].getsockname()), Login("u", "p", "/"), tls=None)
        channel = await connection.sender(0, "q")

        async def send(message: bytes = b"m", within: float = 10.0) -> str:
            return await connection.send(channel, message, within)

        yield send
        await connection.close()


async def test_an_outcome_is_that_of_the_delivery_that_was_sent() -> None:
    async with sender({0: disposition(0), 1: disposition(1, outcome=REJECTED), 2: disposition(1, 2)}) as send:
        assert [await send() for _ in range(3)] == ["", "outcome 0x25", ""]


async def test_a_late_outcome_does_not_settle_the_delivery_that_was_sent_after_it() -> None:
    async with sender({1: disposition(0)}) as send:
        assert await send(within=0.2) == "it did not answer in time"
        assert await send(within=0.2) == "it did not answer in time", "accepted is the one before"


async def test_a_rejection_behind_a_late_outcome_of_another_delivery_is_told() -> None:
    async with sender({1: disposition(0) + disposition(1, outcome=REJECTED)}) as send:
        assert await send(within=0.2) == "it did not answer in time"
        assert await send() == "outcome 0x25"
        assert await send(within=0.2) == "it did not answer in time", "nor does a third one get it"
