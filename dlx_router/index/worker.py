"""The index's process: streams → store, as the router orders over stdin; ends with its stdin, because then nobody asks.

Whatever goes wrong here costs no letter and stops none. A damaged file is made anew from offset 0, a full disk is
waited for, a stream that is another one than before is read from its start; one that is silent is asked elsewhere.
"""

import asyncio
import fcntl
import gc
import json
import os
import signal
import sqlite3
import sys
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, Final

from dlx_router.broker.address import Host, Login, Tls
from dlx_router.broker.control import TopologyError
from dlx_router.broker.reading import Read, Reading, reading
from dlx_router.core.signature import Signer, judged
from dlx_router.index import journal_end, schema
from dlx_router.index.journal_end import End, Newest
from dlx_router.index.schema import Damaged, IndexFileError
from dlx_router.index.store import CLOCKS_MS, MOST_GONE, Message, Store, digest, was_written_since
from dlx_router.telemetry import faults
from dlx_router.telemetry.wall_clock import wall_ms

AT_ONCE: Final = 64  # messages that are taken from the stream; a message has at most 500 events
ENOUGH_BYTES: Final = 1 << 20  # of messages, and a transaction begins; compressed, some 5,000 to 15,000 events
GATHER_S: Final = 0.5  # from one transaction to the next where fewer come: a few large ones cost less than many small
SAY_S: Final = 0.5
AGAIN_S: Final = 2.0
NEW_MS: Final = 15_000  # an event that is older comes late: its message was written before, or its clock is wrong
TIDY_S: Final = 10.0
MAX_BYTES: Final = 4 << 30
MAX_AGE_MS: Final = 14 * 86_400_000  # as the journal; only letters whose way has ended go by age
MOST_SAID: Final = 20  # reasons: they may name numbers that somebody chose
LIVING: Final = 100_000  # objects of a transaction: to look for circles among them each 700 costs a tenth
NICE: Final = 19  # letters go first: on a busy machine the index falls behind, and says so


class _Anew(Exception):
    """The file was damaged and is being made anew: everybody reads from the start."""


def place_of(order: Mapping[str, Any]) -> tuple[Host, Login, Tls | None]:
    """Where an order to read sends this process."""
    return Host(*order["host"]), Login(*order["login"]), None if order["tls"] is None else Tls(**order["tls"])


class Worker:
    """Follows streams into one file."""

    def __init__(self, path: Path, max_bytes: int = MAX_BYTES) -> None:
        self._path, self._max_bytes = path, max_bytes
        self._store: Store | None = None
        self._lock: IO[bytes] | None = None
        self._following: dict[str, asyncio.Task[None]] = {}
        self._vhosts: dict[str, dict[str, Any]] = {}
        self._ends: dict[str, int] = {}  # of vhosts: the journal's newest offset, as far as known; −1: it is empty
        self._asked: set[str] = set()  # vhosts whose end was asked for lately
        self._trouble: str | None = None
        self._orders: dict[str, dict[str, Any]] = {}
        self._rebuilds = 0
        self._identity: int | None = None
        self._reported: set[str] = set()

    async def run(self, orders: asyncio.StreamReader) -> None:
        """Until nobody is there to give orders."""
        loops = [asyncio.create_task(coroutine) for coroutine in (self._report(), self._tidy())]
        try:
            while (line := await orders.readline()).endswith(b"\n"):
                await self._obey(json.loads(line))
        finally:
            for task in (*loops, *self._following.values()):
                task.cancel()
            await asyncio.gather(*loops, *self._following.values(), return_exceptions=True)
            if self._store is not None:
                self._store.close()

    async def _obey(self, order: dict[str, Any]) -> None:
        match order.get("do"):
            case "attend":
                self._orders[order["vhost"]] = order
                self._follow(order["vhost"])
            case "leave":
                self._orders.pop(order["vhost"], None)
                await self._end(order["vhost"])
                self._vhosts.pop(order["vhost"], None)
            case "emptied" if self._store is not None:
                exchange, key = order["place"]
                with suppress(sqlite3.Error):
                    self._store.emptied(order["vhost"], (exchange, key), order["until_ms"])
            case "verify" if self._store is not None and not self._store.is_sound():
                await self._renew("damaged")
            case "rebuild":
                await self._renew("asked for")

    # -- following ----------------------------------------------------------------------------------------------

    def _follow(self, vhost: str) -> None:
        running = self._following.get(vhost)
        if running is None or running.done():
            self._vhosts[vhost] = {"state": "connecting", "offset": None, "behind_ms": None, "trouble": None}
            self._begin_anew(vhost)
            self._following[vhost] = asyncio.create_task(self._keep_following(vhost))

    def _begin_anew(self, *vhosts: str) -> None:
        """Said before anything is read: whoever needs a whole file must not take this one for that of before."""
        for vhost in vhosts:
            self._ends.pop(vhost, None)
            self._asked.discard(vhost)
            self._vhosts[vhost] |= {"has_caught_up": False, "behind_ms": None}
        self._say()

    async def _end(self, vhost: str) -> None:
        task = self._following.pop(vhost, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _keep_following(self, vhost: str) -> None:
        """Until the connection is lost: the router then says where and how to connect again."""
        while vhost in self._orders:
            store = None
            try:
                store = self._opened()
                await self._read(vhost, store)
            except TopologyError as error:
                self._vhosts[vhost] |= {"state": "lost", "trouble": str(error), "behind_ms": None}
                return
            except _Anew:
                continue
            except (IndexFileError, sqlite3.OperationalError) as error:
                self._vhosts[vhost] |= {"behind_ms": None}
                self._object(str(error))
                await asyncio.sleep(AGAIN_S)
            except (Damaged, sqlite3.DatabaseError) as error:
                if store is not self._store:
                    continue  # what was open was closed by who made it anew, which is no damage
                self._throw_away(f"damaged: {error}")
                await asyncio.sleep(AGAIN_S)  # it may not go away, or be damaged again at once

    async def _read(self, vhost: str, store: Store) -> None:
        order = self._orders[vhost]
        if store.is_forgetting(vhost):
            await self._forget(vhost, store)
        at, signer = store.position(vhost), _signer(order)
        start = "first" if at is None else at[0]
        async with reading(place_of(order), order["stream"], start) as stream:
            newest = journal_end.asked_of(stream, order["stream"])
            if at is not None and not await _is_same(stream, order["stream"], at, newest):
                self._begin_anew(vhost)
                store.begin_to_forget(vhost)
                return  # from its start
            self._vhosts[vhost] |= {"state": "reading", "trouble": None, "signatures": store.signatures(vhost)}
            self._vhosts[vhost] |= {"offset": None if at is None else at[0]}
            end = End(order["stream"], newest, journal_end.empty_of(stream, order["stream"]), is_new=_is_new)
            await self._follow_on(vhost, store, stream, end, signer)

    async def _forget(self, vhost: str, store: Store) -> None:
        """Others go on meanwhile."""
        self._vhosts[vhost] |= {"trouble": "its journal is another one: what that of before told is taken away first"}
        for _ in store.forget(vhost):
            await asyncio.sleep(0)

    async def _follow_on(self, vhost: str, store: Store, stream: Reading, end: End, signer: Signer | None) -> None:
        """Until the connection is lost, or the file is another one."""
        next_s, is_quiet = 0.0, False
        while True:
            await end.look(self._vhosts[vhost]["offset"], is_quiet=is_quiet)
            self._learn(vhost, end)
            messages = await _gathered(stream, next_s)
            if store is not self._store:
                raise _Anew
            if messages:
                end.begins()
                self._learn(vhost, end)
            await self._apply(vhost, store, [_judged(signer, message) for message in messages])
            next_s, is_quiet = asyncio.get_running_loop().time() + GATHER_S, not messages

    def _learn(self, vhost: str, end: End) -> None:
        """Where the journal ends. One that was said to be empty and is not may be long, and is not read yet."""
        if self._ends.get(vhost) == -1 != end.offset:
            self._begin_anew(vhost)
        if end.offset is not None:
            self._ends[vhost] = end.offset
            (self._asked.add if end.is_fresh and not end.lags else self._asked.discard)(vhost)
            self._vhosts[vhost]["has_caught_up"] |= self._is_at_end(vhost)

    async def _apply(self, vhost: str, store: Store, messages: list[Message]) -> None:
        if not messages:
            self._rest(vhost, store)
            return
        last, behind = messages[-1].offset, self._vhosts[vhost].get("behind_ms")
        as_of_ms = None if behind is None else wall_ms() - behind
        while True:
            try:
                store.apply(vhost, messages)
                self._mention(vhost, store)
                break
            except sqlite3.DatabaseError as error:
                if not schema.is_passing(error):
                    raise
                self._object(f"{error}: {self._path}; letters go on, events wait in the journal")
                self._vhosts[vhost] |= {"state": "reading", "behind_ms": as_of_ms and wall_ms() - as_of_ms}
                await asyncio.sleep(AGAIN_S)
                await self._make_room(store)
                messages = _behind(store.position(vhost), messages)
        self._trouble = None
        self._vhosts[vhost] |= {"state": "reading", "offset": last, "behind_ms": _since_ms(store.last_ms(vhost))}
        if self._is_at_end(vhost):
            self._vhosts[vhost] |= {"has_caught_up": True}
        self._vhosts[vhost] |= {"signatures": store.signatures(vhost)}

    def _rest(self, vhost: str, store: Store) -> None:
        """Nothing came: only where the file has what was lately the newest message of the journal it lacks nothing."""
        if vhost in self._asked and self._is_at_end(vhost):
            self._vhosts[vhost] |= {"state": "current", "behind_ms": 0, "has_caught_up": True}
        else:
            self._vhosts[vhost] |= {"state": "reading", "behind_ms": _since_ms(store.last_ms(vhost))}

    def _is_at_end(self, vhost: str) -> bool:
        """Whether the file has what was the newest message when it was asked for last."""
        end, at = self._ends.get(vhost), self._vhosts[vhost].get("offset")
        return end is not None and (-1 if at is None else at) >= end

    def _mention(self, vhost: str, store: Store) -> None:
        """What could not be read is counted in the file, and said once for each reason."""
        problem, store.unreadable = store.unreadable, ""
        reason = problem.partition(": ")[2]
        if problem and reason not in self._reported and len(self._reported) < MOST_SAID:
            self._reported.add(reason)
            fate = "its events are not in the index; others with this reason are only counted"
            sys.stderr.write(f"dlx-router: the journal of vhost {vhost!r}: {problem}; {fate}\n")

    # -- the file -----------------------------------------------------------------------------------------------

    def _opened(self) -> Store:
        if self._store is None:
            self._take_lock()
            self._store = Store(schema.open_writer(self._path, max_bytes=self._max_bytes))
            self._identity = schema.identity(self._path)
            self._trouble = None
        return self._store

    def _take_lock(self) -> None:
        if self._lock is not None:
            return
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            lock = Path(f"{self._path}.lock").open("ab")  # noqa: SIM115 - held as long as the process lives
        except OSError as error:
            raise IndexFileError(
                f"INDEX_PATH {self._path}: {error.strerror}; name a file that can be written"
            ) from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.close()
            raise IndexFileError(
                f"INDEX_PATH {self._path}: another process writes it; each router needs its own"
            ) from None
        self._lock = lock

    async def _renew(self, why: str) -> None:
        self._throw_away(why)
        for vhost in [*self._orders]:
            await self._end(vhost)
            self._follow(vhost)

    def _throw_away(self, why: str) -> None:
        store, self._store = self._store, None
        if store is not None:
            with suppress(sqlite3.Error):
                store.close()
        try:
            schema.remove(self._path)
            self._rebuilds += 1
            sys.stderr.write(f"dlx-router: the index {self._path} is made anew from the journal: {why}\n")
        except OSError as error:
            fate = f"it cannot be removed: {error.strerror}; it is tried again"
            self._object(f"INDEX_PATH {self._path}: {why}, and {fate}")
        self._begin_anew(*self._vhosts)

    def _object(self, why: str) -> None:
        self._trouble = why

    async def _make_room(self, store: Store) -> None:
        """As large as it may be: what nothing needs goes, then the oldest letters, a twentieth at a time."""
        with suppress(sqlite3.Error):
            if store.used_bytes() > 0.9 * self._max_bytes:
                store.relieve(self._max_bytes)
            if store.used_bytes() > 0.9 * self._max_bytes:
                left = max(100, store.count() // 20)
                while left > 0 and (gone := store.shrink(min(left, MOST_GONE))):
                    left -= gone
                    await asyncio.sleep(0)  # others go on meanwhile

    async def _tidy(self) -> None:
        while True:
            await asyncio.sleep(TIDY_S)
            if self._store is None:
                continue
            with suppress(sqlite3.Error):
                before_ms = wall_ms() - MAX_AGE_MS
                self._store.prune(before_ms=before_ms, at_most=MOST_GONE)
                self._store.tidy(before_ms=before_ms, age_ms=MAX_AGE_MS)
                await self._make_room(self._store)

    async def _report(self) -> None:
        """How it goes, twice a second, to whoever started us."""
        while True:
            if self._store is not None and schema.identity(self._path) != self._identity:
                await self._renew("the file was overwritten or removed")
            if not self._say():
                return
            await asyncio.sleep(SAY_S)

    def _say(self) -> bool:
        """Whether somebody is there to be told."""
        status = {"vhosts": self._vhosts, "trouble": self._trouble, "rebuilds": self._rebuilds}
        try:
            sys.stdout.buffer.write(f"{json.dumps(status)}\n".encode())
            sys.stdout.buffer.flush()
        except OSError:
            return False
        return True


async def _gathered(stream: Reading, until_s: float) -> list[Read]:
    """What comes until then, or until it is enough; what is there, once it is later. []: nothing came for a while.

    The broker may send more at once: our place in the stream is that in the file, and not what was acked.
    """
    clock = asyncio.get_running_loop().time
    messages = await stream.take(AT_ONCE, within_s=SAY_S)
    stream.done()
    size = _size(messages)
    while messages and size < ENOUGH_BYTES and (wait_s := until_s - clock()) > 0:
        await stream.gather(AT_ONCE, within_s=wait_s)
        more = [] if stream.is_lost else await stream.take(AT_ONCE, within_s=0.0)
        if not more:
            break  # what came before the end is kept first
        stream.done()
        messages += more
        size += _size(more)
    return messages


async def _is_same(stream: Reading, name: str, at: tuple[int, bytes], newest: Newest) -> bool:
    asked_ms = wall_ms() + CLOCKS_MS

    def fits(message: Read) -> bool:
        return digest(message.body) == at[1]

    def is_new(message: Read) -> bool:
        return was_written_since(asked_ms, message.body, message.version)

    return await journal_end.is_same(stream, name, at[0], fits, newest, is_new=is_new)


def _is_new(message: Read) -> bool:
    return was_written_since(wall_ms() - NEW_MS, message.body, message.version)


def _since_ms(last_ms: int | None) -> int | None:
    """How long ago that was, by our clock; None: nobody knows."""
    return None if last_ms is None else max(0, wall_ms() - last_ms)


def _size(messages: list[Read]) -> int:
    return sum([len(message.body) for message in messages])


def _behind(position: tuple[int, bytes] | None, messages: list[Message]) -> list[Message]:
    """What is not in the file yet."""
    return messages if position is None else [message for message in messages if message.offset > position[0]]


def _signer(order: dict[str, Any]) -> Signer | None:
    key = bytes.fromhex(order["key"])
    return Signer(key, order["vhost"], order["stream"]) if key else None


def _judged(signer: Signer | None, message: Read) -> Message:
    return Message(message.offset, message.body, judged(signer, message.body, message.mac), message.version)


async def _serve(path: Path, max_bytes: int) -> None:
    orders = asyncio.StreamReader(limit=1 << 20)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    await Worker(path, max_bytes).run(orders)


def main(arguments: list[str]) -> None:
    """`python -m dlx_router.index PATH [MAX_BYTES]`, started by the router."""
    faults.install()
    gc.set_threshold(LIVING, *gc.get_threshold()[1:])
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is for the router; its end is ours
    with suppress(OSError):
        os.nice(NICE)
    work: Coroutine[Any, Any, None] = _serve(Path(arguments[0]), int(arguments[1]) if arguments[1:] else MAX_BYTES)
    asyncio.run(work)
