"""A TCP proxy that misbehaves on demand, to stand between a client and its broker.

with Proxy(broker_port) as proxy:           # listens on 127.0.0.1:proxy.port
    proxy.cut()                             # every connection is reset
    proxy.half_open("up")                   # what the client says is swallowed, for ever: no FIN, no reset
    proxy.stall(); proxy.heal()             # nothing moves, then all of it arrives
    proxy.slow(20_000)                      # bytes a second, each way
    proxy.refuse()                          # nobody listens
    proxy.hold("consume"); proxy.heal()     # of connections of that role: what the router says comes late
    proxy.swallow_deliveries("consume")     # of connections of that role: AMQP's basic.deliver, and nothing else
    proxy.heal()                            # as at first; connections that lost bytes stay dead, as in life
"""

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Literal, Self, TypeVar

from tests.support.undelivered import Method, Undelivered

T = TypeVar("T")
Direction = Literal["up", "down"]

_HOST: Final = "127.0.0.1"
_CHUNK: Final = 1 << 16
_RESET: Final = struct.pack("ii", 1, 0)  # linger on, for no time: a close is then a reset, not a FIN
_TICK_S: Final = 0.02  # a slow line moves its bytes in steps of this


@dataclass(eq=False)
class _Pair:
    """One connection of a client and ours to the broker; `dark` are the directions whose bytes are swallowed."""

    client: asyncio.StreamWriter
    broker: asyncio.StreamWriter
    dark: set[Direction] = field(default_factory=set)
    frames: Undelivered | None = None
    said: bytes = b""  # what the client began with: its name is in it
    is_held: bool = False  # what the client says waits

    def abort(self) -> None:
        """Reset both sides."""
        for side in (self.client, self.broker):
            with contextlib.suppress(OSError):  # closed meanwhile
                side.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            side.transport.abort()


class Proxy:
    """Forwards each connection to one loopback port, by a thread of its own. Verbs may be called from any thread."""

    def __init__(self, target_port: int, *, port: int = 0, frames: bool = False) -> None:
        """Listens when this returns. `port` 0: one that is free. `frames`: it reads AMQP, to swallow deliveries."""
        self.port = port
        self._frames = frames
        self._target_port = target_port
        self._loop = asyncio.new_event_loop()
        self._server: asyncio.Server | None = None
        self._pairs: set[_Pair] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._moving = asyncio.Event()
        self._moving.set()
        self._letting = asyncio.Event()
        self._bytes_per_s = 0
        self._dark: set[Direction] = set()
        self.unanswered: set[Method] = set()  # kinds of answers that no connection gets
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        self._run(self._listen())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def connections(self) -> int:
        """How many are open now."""
        return len(self._pairs)

    def cut(self) -> int:
        """Every connection is reset; new ones are let in. → how many there were."""
        return self._run(self._cut())

    def half_open(self, direction: Direction = "up") -> None:
        """That direction is swallowed without a word, of connections there are and of those to come.

        `heal` lets later connections live. Those of now stay dead: bytes of theirs are gone.
        """
        self._run(self._darken(direction))

    def swallow_deliveries(self, role: str, *, for_good: bool = False) -> None:
        """Of connections that the router opened in this role: consumers of now stand still, and all else passes.

        `for_good`: those that are begun later on the same connection, too.
        """
        self._run(self._swallow(f"dlx-router {role} ".encode(), for_good=for_good))

    def stall(self) -> None:
        """Nothing moves, either way; all of it arrives after `heal`."""
        self._run(self._stall())

    def hold(self, role: str) -> None:
        """What the router says on connections that it opened in this role comes after `heal`; it hears all."""
        self._run(self._hold(f"dlx-router {role} ".encode()))

    def slow(self, bytes_per_s: int) -> None:
        """Each direction of each connection moves so many bytes a second at most."""
        self._bytes_per_s = bytes_per_s

    def refuse(self) -> None:
        """Connections are reset, new ones refused."""
        self._run(self._refuse())

    def heal(self) -> None:
        """Listens, moves, as fast as it can."""
        self._run(self._heal())

    def close(self) -> None:
        """Everything reset and gone; safe to repeat."""
        if self._loop.is_closed():
            return
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # -- in the thread ------------------------------------------------------------------------------------------

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        done: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return done.result(10)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, _HOST, self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _cut(self) -> int:
        pairs = list(self._pairs)
        for pair in pairs:
            pair.abort()
        return len(pairs)

    async def _darken(self, direction: Direction) -> None:
        self._dark.add(direction)
        for pair in self._pairs:
            pair.dark.add(direction)

    async def _swallow(self, name: bytes, *, for_good: bool) -> None:
        for pair in self._pairs:
            if pair.frames is not None and name in pair.said:
                pair.frames.is_deaf_for_good = for_good
                pair.frames.silence()

    async def _hold(self, name: bytes) -> None:
        self._letting.clear()
        for pair in self._pairs:
            pair.is_held = pair.is_held or name in pair.said

    async def _stall(self) -> None:
        self._moving.clear()

    async def _refuse(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        await self._cut()

    async def _heal(self) -> None:
        self._dark.clear()
        self._bytes_per_s = 0
        self._moving.set()
        for pair in self._pairs:
            pair.is_held = False
        self._letting.set()
        if self._server is None:
            await self._listen()

    async def _end(self) -> None:
        await self._refuse()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        try:
            await self._serve(reader, writer)
        except asyncio.CancelledError:
            if self._server is not None:
                raise  # not by our own end
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            answers, broker = await asyncio.open_connection(_HOST, self._target_port)
        except OSError:
            return  # the broker is away: the client sees a reset, as from any such proxy
        pair = _Pair(writer, broker, set(self._dark), Undelivered(self.unanswered) if self._frames else None)
        self._pairs.add(pair)
        try:
            await asyncio.gather(self._pump(pair, "up", reader, broker), self._pump(pair, "down", answers, writer))
        finally:
            self._pairs.discard(pair)
            pair.abort()

    async def _pump(
        self, pair: _Pair, way: Direction, source: asyncio.StreamReader, sink: asyncio.StreamWriter
    ) -> None:
        """Until the source ends: then so does the sink, unless this way is dark. A reset ends both."""
        with contextlib.suppress(OSError):
            while data := await source.read(_CHUNK):
                await self._moving.wait()
                if way == "up" and pair.is_held:
                    await self._letting.wait()
                if way in pair.dark:
                    continue
                await self._write(sink, self._passed(pair, way, data))
            if way not in pair.dark and sink.can_write_eof():
                sink.write_eof()
            return
        pair.abort()

    @staticmethod
    def _passed(pair: _Pair, way: Direction, data: bytes) -> bytes:
        if pair.frames is None:
            return data
        if way == "down":
            return pair.frames.passed(data)
        if len(pair.said) < _CHUNK:
            pair.said += data
        return data

    async def _write(self, sink: asyncio.StreamWriter, data: bytes) -> None:
        while data:
            step = max(1, int(self._bytes_per_s * _TICK_S)) if self._bytes_per_s else len(data)
            sink.write(data[:step])
            await sink.drain()
            data = data[step:]
            if self._bytes_per_s:
                await asyncio.sleep(_TICK_S)
