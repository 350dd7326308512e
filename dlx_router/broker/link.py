"""One AMQP 0-9-1 connection: handshake, heartbeats, channels, and bytes in as few writes as possible.

A read is parsed whole, its events go to the channels' handlers, and what they wrote leaves in one write. Only the
owner pauses reading; the link itself never buffers letters. Source: AMQP 0-9-1 §2.2, §4.2; RabbitMQ extensions
(connection.blocked, consumer_cancel_notify).
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

from pamqp import commands

from dlx_router.broker.address import Host, Login, Tls, client_properties
from dlx_router.broker.answers import DEAF, QUESTIONS, Answers, ChannelClosed, Handler, LinkError
from dlx_router.broker.large_reads import LargeReads
from dlx_router.wire import frames
from dlx_router.wire.table import TableError

FRAME_MAX = 131_072
NOT_ALLOWED: Final = 530
# RabbitMQ does not cut a header to what was agreed on: a letter whose header filled a frame comes with x-death on top.
LARGEST_FRAME = 16 << 20
LARGE_PART: Final = 8192  # bytes, in the mean
MUCH: Final = 8192  # bytes of one write: some letters
ASKS_S: Final = 2.0  # of silence: then the broker is asked something that it answers at once
DOUBTED_S: Final = 4.0
TURN_S: Final = 0.01  # of a link that reads in turns
LATE_S: Final = 0.5  # a timer that is later than this: this process did not run, and could hear nothing


class Link(asyncio.Protocol):
    """A connected link. Made by `open_link`; `closed` resolves to the error that ended it."""

    def __init__(self, login: Login, host: Host, heartbeat: int, name: str) -> None:
        loop = asyncio.get_running_loop()
        self.host = host
        self.server: dict[str, Any] = {}
        self.frame_max = FRAME_MAX
        self.blocked = False
        self.gather_s = 0.0
        self.on_blocked: Callable[[bool, str], None] = lambda _blocked, _reason: None
        self.on_batch: Callable[[], None] = lambda: None
        self.on_read: Callable[[], None] = lambda: None  # a stream was read by it
        self.on_silent: Callable[[bool], None] = lambda _silent: None  # neither it nor its answer was heard for long
        self.closed: asyncio.Future[Exception] = loop.create_future()
        self.user = login.user
        self._login = login
        self._heartbeat = heartbeat
        self._name = name
        self._loop = loop
        self._parser = frames.Parser(LARGEST_FRAME)
        self._out: list[frames.Buffer] = []
        self._out_bytes = 0
        self._transport: asyncio.Transport | None = None
        self._handlers: dict[int, Handler] = {}
        self._large_reads: LargeReads | None = None
        self._in_runs: dict[int, Callable[[list[frames.Delivery]], None]] = {}
        # The broker may speak before `negotiate` runs, so the first answer has a place from the beginning.
        self._answers = Answers()
        self._start = self._answers.awaited(0)
        self._channel_max = 2047
        self.heard_s = self._spoke = self._look_at_s = time.monotonic()
        self._timer: asyncio.TimerHandle | None = None
        self._asking: asyncio.Task[None] | None = None
        self._question = 0  # the channel
        self._is_silent = False
        self._flushing = self._wrote_much = False
        self._paused = False
        self._waiting: deque[frames.Event] | None = None  # of a link that reads in turns: not handed out yet
        self._is_resting = False  # the socket is not read

    # -- the socket ---------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say hello."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one, but does not inherit
        self._transport.set_write_buffer_limits(high=8 << 20)
        self._transport.write(b"AMQP\x00\x00\x09\x01")

    def data_received(self, data: bytes) -> None:
        """Parse the whole read, hand out its events, write once."""
        self.heard_s = time.monotonic()
        if self._large_reads is not None:
            self._large_reads.came(len(data), self.heard_s)
        self._flushing = True
        try:
            events = self._parser.feed(data)
            if self._waiting is None:
                self._hand_out(events)
            elif self._waiting:
                self._waiting.extend(events)  # a turn is on its way
            else:
                self._waiting.extend(events)
                self._take_turn()
        except (frames.WireError, TableError) as error:
            self._fail(LinkError(f"{self._where()}: the broker's bytes are not AMQP: {error}"))
        self.on_batch()
        self._flushing = False
        self.flush()

    def _hand_out(self, events: Sequence[frames.Event]) -> None:
        handlers, in_runs = self._handlers, self._in_runs
        alike: list[frames.Delivery] = []  # deliveries of one channel, one behind the other
        channel, delivery = 0, frames.Delivery
        for event in events:
            if in_runs and event.__class__ is delivery:
                if event.channel == channel:
                    alike.append(event)
                    continue
                if event.channel in in_runs:
                    self._deliver(alike)
                    channel, alike = event.channel, [event]
                    continue
            if alike:
                self._deliver(alike)
                channel, alike = 0, []
            handler = handlers.get(event.channel)
            if event.__class__ is frames.Method or handler is None:
                self._cold(event)
            else:
                handler.on_event(event)
        if alike:
            self._deliver(alike)

    def read_in_turns(self) -> None:
        """From now on hand out events for TURN_S at a time, and let the rest of the process work in between."""
        self._waiting = deque()

    def _take_turn(self) -> None:
        waiting, until_s = self._waiting, time.monotonic() + TURN_S
        while waiting and time.monotonic() < until_s:
            self._hand_out((waiting.popleft(),))
        self._rest_or_read()
        if waiting:
            self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._flushing = True
        try:
            self._take_turn()
        except Exception as error:  # noqa: BLE001 - outside a read asyncio logs it only, and nothing would be read again
            self._fail(LinkError(f"{self._where()}: {error!r}"))
        self.on_batch()
        self._flushing = False
        self.flush()

    def _deliver(self, deliveries: list[frames.Delivery]) -> None:
        """To the channel's owner all at once; where it is gone meanwhile, they are for nobody."""
        take = self._in_runs.get(deliveries[0].channel) if deliveries else None
        if take is not None:
            take(deliveries)

    def deliver_runs(self, channel: int, take: Callable[[list[frames.Delivery]], None]) -> None:
        """From now on deliveries of this channel that one read brings, one behind the other, go there together."""
        self._in_runs[channel] = take

    def read_in_bulk(self) -> None:
        """From now on few and large reads, while much pours in."""
        if self._transport is not None:
            self._large_reads = LargeReads(self._transport.get_extra_info("socket"), self._loop)

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is gone: everybody who waits learns it."""
        self._fail(LinkError(f"{self._where()}: connection lost{f' ({exc})' if exc else ''}"))

    def send(self, data: bytes) -> None:
        """Queue bytes; they leave at the end of the current read, or at the next turn of the loop."""
        if not self._out and not self._flushing:
            self._flush_soon()
        self._out.append(data)

    def send_parts(self, parts: Sequence[frames.Buffer], size: int) -> None:
        """As `send`, of frames in parts, which are some `size` bytes."""
        if not self._out and not self._flushing:
            self._flush_soon()
        self._out += parts
        self._out_bytes += size

    def _flush_soon(self) -> None:
        """At once, but `gather_s` after a write of much: while much is to be written, each write costs both sides."""
        wait = self._spoke + self.gather_s - time.monotonic() if self._wrote_much else 0.0
        if wait > 0:
            self._loop.call_later(wait, self.flush)
        else:
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Write all that is queued, in one write."""
        if self._out and self._transport is not None and self.is_open:
            self._spoke = time.monotonic()
            if self._out_bytes >= LARGE_PART * len(self._out):
                self._wrote_much = True
                self._transport.writelines(self._out)  # as they are: to put large bodies together costs more
            else:
                data = b"".join(self._out)
                self._wrote_much = len(data) >= MUCH
                self._transport.write(data)
        self._out, self._out_bytes = [], 0

    def pause(self, *, paused: bool) -> None:
        """Stop or go on reading; the broker then holds what it has, and memory here is bounded."""
        if paused == self._paused or self._transport is None or self._transport.is_closing():
            return
        self._paused = paused
        self._rest_or_read()

    def _rest_or_read(self) -> None:
        rests = self._paused or bool(self._waiting)
        if rests != self._is_resting and self._transport is not None and not self._transport.is_closing():
            self._is_resting = rests
            (self._transport.pause_reading if rests else self._transport.resume_reading)()

    @property
    def local_address(self) -> str:
        """Our own address, as the broker's side of the network has it; "" where there is none."""
        name = self._transport.get_extra_info("sockname") if self._transport is not None else None
        return str(name[0]) if isinstance(name, tuple) else ""

    @property
    def version(self) -> tuple[int, ...]:
        """Return major and minor version of the broker."""
        return tuple(int(part) for part in str(self.server.get("version", "0")).split(".")[:2])

    @property
    def is_open(self) -> bool:
        """Whether the link can be used."""
        return not self.closed.done()

    @property
    def rests(self) -> bool:
        """Whether we do not read it, by our own will."""
        return self._paused

    @property
    def is_receiving(self) -> bool:
        """Whether a message is on its way of which only a part is here."""
        return self._parser.is_midway

    @property
    def is_silent(self) -> bool:
        """Whether the broker neither answers nor sends a sign of life, for some seconds already."""
        return self._is_silent

    async def close(self, within: float = 2.0) -> None:
        """Close in order; after `within` seconds the socket is dropped, and at once where nobody answers anyway."""
        if self.is_open and not self.is_silent:
            try:
                async with asyncio.timeout(within):
                    await self.rpc(0, commands.Connection.Close(200, "bye", 0, 0))
            except (TimeoutError, LinkError):
                pass
        self._fail(LinkError(f"{self._where()}: closed by us"))

    def abort(self) -> None:
        """Drop the socket at once."""
        self._fail(LinkError(f"{self._where()}: dropped by us"))

    # -- methods ------------------------------------------------------------------------------------------------

    async def rpc(self, channel: int, command: Any, within: float = 15.0) -> Any:
        """Send a synchronous method and return its answer; ChannelClosed, LinkError or TimeoutError otherwise.

        Nobody is late while the broker reads nothing of ours (an alarm), or we read nothing of it.
        """
        if not self.is_open:
            raise self.closed.result()
        frame = frames.method(channel, command)
        waiter = self._answers.awaited(channel, command.valid_responses)
        self.send(frame)
        while True:
            stood_still = self.blocked or self._paused
            await asyncio.wait({waiter}, timeout=within)
            if waiter.done():
                return waiter.result()
            if not (stood_still or self.blocked or self._paused):
                raise TimeoutError(f"{self._where()}: no answer to {command.name} within {within:g} s")

    async def open_channel(self, handler: Handler) -> int:
        """Open the lowest free channel; the handler gets its events from then on. ChannelClosed: none is free."""
        number = next((n for n in range(1, self._channel_max + 1) if n not in self._handlers), 0)
        if not number:
            raise ChannelClosed(NOT_ALLOWED, f"all {self._channel_max} channels of a connection are in use")
        self._handlers[number] = handler
        try:
            await self.rpc(number, commands.Channel.Open())
        except (ChannelClosed, LinkError):
            self._handlers.pop(number, None)
            raise
        except BaseException:
            self.drop_channel(number)  # the broker may have opened it, or will: the number is not free
            raise
        return number

    async def close_channel(self, channel: int) -> None:
        """Close a channel; its handler hears nothing more, and its number is free once the broker has agreed."""
        self._handlers[channel] = DEAF
        self._in_runs.pop(channel, None)
        if self.is_open:
            await self.rpc(channel, commands.Channel.Close(200, "bye", 0, 0))

    def drop_channel(self, channel: int) -> None:
        """As `close_channel`, without waiting for the broker."""
        self._handlers[channel] = DEAF
        self._in_runs.pop(channel, None)
        if self.is_open:
            self.send(frames.method(channel, commands.Channel.Close(200, "bye", 0, 0)))

    async def negotiate(self) -> None:
        """Start, tune and open as AMQP 0-9-1 §2.2.4; LinkError says what the broker refused."""
        start = await self._start
        self.server = dict(start.server_properties or {})
        self._start_ok()
        self._tuned(await self._answers.awaited(0))
        self.send(frames.method(0, commands.Connection.TuneOk(self._channel_max, self.frame_max, self._heartbeat)))
        await self.rpc(0, commands.Connection.Open(self._login.vhost))
        self._look_again()

    def _start_ok(self) -> None:
        response = f"\0{self._login.user}\0{self._login.password}"
        self.send(
            frames.method(0, commands.Connection.StartOk(client_properties(self._name), "PLAIN", response, "en_US"))
        )

    def _tuned(self, tune: Any) -> None:
        self.frame_max = min(tune.frame_max or FRAME_MAX, FRAME_MAX)
        self._channel_max = min(tune.channel_max or 2047, 2047)
        self._heartbeat = min(tune.heartbeat or self._heartbeat, self._heartbeat)

    def _cold(self, event: Any) -> None:
        """Everything that is not a letter's way: answers, closes, alarms."""
        if event.__class__ is not frames.Method:
            return
        channel, command = event.channel, event.command
        match command:
            case commands.Connection.Blocked() | commands.Connection.Unblocked():
                self.blocked = isinstance(command, commands.Connection.Blocked)
                self.on_blocked(self.blocked, getattr(command, "reason", ""))
            case commands.Connection.Close():
                self.send(frames.method(0, commands.Connection.CloseOk()))
                self.flush()
                reason = f"{command.reply_code} {command.reply_text}"
                error = LinkError(f"{self._where()}: the broker closed the connection: {reason}")
                error.code = command.reply_code or 0
                self._fail(error)
            case commands.Basic.GetEmpty():
                if (handler := self._handlers.get(channel)) is not None:
                    handler.on_event(event)
            case commands.Channel.Close():
                self.send(frames.method(channel, commands.Channel.CloseOk()))
                self._channel_gone(channel, ChannelClosed(command.reply_code or 0, command.reply_text or ""))
            case _:
                self._answer(channel, command)

    def _answer(self, channel: int, command: Any) -> None:
        """An answer to us; with the answer to a close the channel's number is free."""
        self._answers.give(channel, command)
        if isinstance(command, commands.Channel.CloseOk) and self._handlers.get(channel) is DEAF:
            del self._handlers[channel]
            self._answers.nobody_gives(channel, ChannelClosed(200, "closed by us"))

    def _channel_gone(self, channel: int, error: Exception) -> None:
        self._answers.nobody_gives(channel, error)
        handler = self._handlers.pop(channel, None)
        self._in_runs.pop(channel, None)
        if handler is not None:
            handler.on_closed(error)

    def _fail(self, error: Exception) -> None:
        if self.closed.done():
            return
        self.closed.set_result(error)
        if self._waiting:
            self._waiting.clear()
        if self._large_reads is not None:
            self._large_reads.end()
        if self._timer is not None:
            self._timer.cancel()
        if self._asking is not None:
            self._asking.cancel()
        self._answers.end(error)
        for channel in [*self._handlers]:
            self._channel_gone(channel, error)
        if self._transport is not None:
            self._transport.abort()

    def _beat(self) -> None:
        """Look whether the broker lives, and say that we do (AMQP §4.2.7)."""
        if not self._heartbeat or not self.is_open:
            return
        now = time.monotonic()
        late = now - self._look_at_s
        if self._is_resting:  # while we choose not to read, silence is no sign
            self.heard_s = now
        elif late > LATE_S:  # nor is it while we could not
            self.heard_s = min(now, self.heard_s + late)
        silent_s = now - self.heard_s
        if silent_s > self._patience_s:
            self._fail(LinkError(f"{self._where()}: no sign of life for {silent_s:.0f} s"))
            return
        self._doubt(silent_s)
        if now - self._spoke >= self._heartbeat / 2:
            self.send(frames.HEARTBEAT)
        self._look_again()

    def _look_again(self) -> None:
        wait = min(1.0, self._heartbeat / 2)
        self._look_at_s = time.monotonic() + wait
        self._timer = self._loop.call_later(wait, self._beat)

    @property
    def _patience_s(self) -> float:
        """Who lives sends something in each heartbeat, and answers; behind an alarm it hears no question."""
        two_missed_s = 2 * self._heartbeat + 1
        return two_missed_s if self.blocked else min(two_missed_s, self._heartbeat + 3)

    def _doubt(self, silent_s: float) -> None:
        """Ask who is silent, and tell when that has lasted."""
        if silent_s >= ASKS_S and not self.blocked and (self._asking is None or self._asking.done()):
            self._asking = self._loop.create_task(self._ask())
        is_silent = silent_s >= DOUBTED_S and not self.blocked
        if is_silent != self._is_silent:
            self._is_silent = is_silent
            self.on_silent(is_silent)

    async def _ask(self) -> None:
        """What a channel answers by itself, whatever queues and disks do: any answer is a sign of life."""
        try:
            if not self._question:
                self._question = await self.open_channel(QUESTIONS)
            await self.rpc(self._question, commands.Basic.Qos(0, 1, False))  # noqa: FBT003 - AMQP order
        except (LinkError, TimeoutError):
            pass  # the link is gone, or heartbeats came meanwhile: then it is asked again
        except ChannelClosed:
            self._question = 0

    def _where(self) -> str:
        return f"{self._name} at {self.host.name}:{self.host.port}"


async def open_link(
    host: Host, login: Login, *, tls: Tls | None, heartbeat: int, name: str, within: float = 10.0
) -> Link:
    """A link that is open, or LinkError that says what failed and what to look at."""
    loop = asyncio.get_running_loop()
    link = Link(login, host, heartbeat, name)
    where = f"{name} at {host.name}:{host.port}"
    try:
        async with asyncio.timeout(within):
            context = tls.context() if tls else None
            server_name = (tls.server_name or host.name) if tls else None
            await loop.create_connection(lambda: link, host.name, host.port, ssl=context, server_hostname=server_name)
            await link.negotiate()
    except TimeoutError:
        link.abort()
        raise LinkError(f"{where}: no answer within {within:g} s; is this an AMQP port, and TLS as expected?") from None
    except OSError as error:  # ssl.SSLError and certificate errors are OSErrors
        link.abort()
        raise LinkError(f"{where}: cannot connect: {error}") from error
    except ChannelClosed as error:
        link.abort()
        raise LinkError(f"{where}: {error}") from error
    except BaseException:
        link.abort()
        raise
    return link
