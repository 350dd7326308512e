"""The router's side of the index: its process is started, told what to read, and started again when it ends.

Nothing here is in a letter's path. What goes wrong is a note at /readyz and a line in the log, never an objection.
"""

import asyncio
import contextlib
import json
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from dlx_router.broker.address import Host, Login, Tls
from dlx_router.core.signature import Signature
from dlx_router.index.reader import Reader
from dlx_router.telemetry.logs import Once, log
from dlx_router.telemetry.readiness import Readiness

PYTHON: Final = sys.executable
FIRST_PAUSE_S: Final = 0.5
LONGEST_PAUSE_S: Final = 30.0
AGAIN_S: Final = 2.0
END_S: Final = 2.0
LATE_S: Final = 2.0  # the process says how it is twice a second
SILENT_S: Final = 30.0  # then people hear of it
_CAUSES: Final = {
    Signature.NONE: "messages without a signature: of a router that did not sign yet, or of somebody else",
    Signature.UNKNOWN: "messages signed with another key than this router's",
    Signature.BAD: "messages whose signature is wrong: somebody else wrote or changed them",
}
Where = Callable[[str], tuple[Sequence[Host], Login, Tls | None]]


def attend(host: Host, login: Login, tls: Tls | None, stream: str, key: bytes) -> dict[str, Any]:
    """Return the order to read this stream, whose messages the key signs; without one none can be verified."""
    where = {"host": [host.name, host.port], "login": [login.user, login.password, login.vhost]}
    tls_of = None if tls is None else asdict(tls)
    return {"do": "attend", "vhost": login.vhost, "stream": stream, "key": key.hex(), "tls": tls_of, **where}


class Supervisor:
    """Of one index file. `where(vhost)` is asked at each connect, so that renewed secrets are used."""

    def __init__(self, path: Path, stream: str, where: Where, readiness: Readiness, max_bytes: int = 0) -> None:
        self.key_of: Callable[[str], bytes | None] = lambda _vhost: b""  # what signs its journal; None: not known yet
        self.path = path
        self.reader = Reader(path)
        self.status = {"vhosts": {}, "trouble": "starting", "rebuilds": 0}
        self._stream, self._where, self._readiness, self._max_bytes = stream, where, readiness, max_bytes
        self._wanted: set[str] = set()
        self._notices = Once()
        self._process: Process | None = None
        self._tries: dict[str, int] = {}
        self._keys: dict[str, bytes] = {}  # of vhosts that the process was told to read
        self._again: dict[str, float] = {}
        self._unsent: dict[str, str] = {}  # vhosts whose address could not be read, and why

    @property
    def status(self) -> dict[str, Any]:
        """What the process said last. Where it says no more each vhost is as much farther behind as that is ago."""
        age_s = time.monotonic() - self._heard_s
        if self._process is None or age_s <= LATE_S:
            return self._status
        vhosts = self._status.get("vhosts") or {}
        return {**self._status, "vhosts": {vhost: _aged(status, int(age_s * 1000)) for vhost, status in vhosts.items()}}

    @status.setter
    def status(self, status: dict[str, Any]) -> None:
        self._status, self._heard_s = status, time.monotonic()

    def follow(self, vhost: str) -> None:
        """Read the journal of this vhost, from when its key is known."""
        self._wanted.add(vhost)
        self._attend(vhost)

    def leave(self, vhost: str) -> None:
        """Read it no more."""
        self._wanted.discard(vhost)
        for kept in (self._unsent, self._keys, self._status.get("vhosts", {})):
            kept.pop(vhost, None)
        self._send(do="leave", vhost=vhost)

    def emptied(self, vhost: str, exchange: str, routing_key: str, until_ms: int) -> None:
        """The queue behind this place was found empty."""
        self._send(do="emptied", vhost=vhost, place=[exchange, routing_key], until_ms=until_ms)

    def verify(self) -> None:
        """A reader found the file damaged: look, and make it anew if so."""
        self._send(do="verify")

    def rebuild(self) -> None:
        """Make it anew from the start of the journal."""
        self._send(do="rebuild")

    async def run(self) -> None:
        """Until cancelled."""
        pause = FIRST_PAUSE_S
        while True:
            began = asyncio.get_running_loop().time()
            why = await self._once()
            self.status = {**self._status, "vhosts": {}, "trouble": why}  # nobody reads on
            lasted = asyncio.get_running_loop().time() - began
            pause = FIRST_PAUSE_S if lasted > LONGEST_PAUSE_S else min(pause * 2, LONGEST_PAUSE_S)
            self._readiness.note("index", f"the index does not work: {why}")
            log.warning("index.ended", error=why, fate="letters go on; the index's process is started again")
            await asyncio.sleep(pause)

    async def _once(self) -> str:
        extra = [str(self._max_bytes)] if self._max_bytes else []
        argv = (PYTHON, "-m", "dlx_router.index", str(self.path), *extra)
        try:
            process = await asyncio.create_subprocess_exec(*argv, stdin=PIPE, stdout=PIPE, stderr=None, limit=1 << 20)
        except OSError as error:
            return f"the index's process cannot be started: {error.strerror}"
        self._process = process
        try:
            self._again.clear()
            self._keys.clear()
            for vhost in self._wanted:
                self._attend(vhost)
            await self._listen(process)
            return f"the index's process ended with {await process.wait()}"
        finally:
            self._process = None
            await _end(process)

    async def _listen(self, process: Process) -> None:
        assert process.stdout is not None
        while line := await self._line(process.stdout):
            with contextlib.suppress(ValueError):  # else it is no line of its own
                self.status = status = json.loads(line)
                self._look(status.get("vhosts") or {})
                self._note(status.get("trouble") or next(iter(self._unsent.values()), None))
                self._warn_of_strangers(status.get("vhosts") or {})

    async def _line(self, stdout: asyncio.StreamReader) -> bytes:
        """The next thing it says; empty: it ended."""
        while True:
            try:
                async with asyncio.timeout(SILENT_S):
                    return await stdout.readline()
            except TimeoutError:
                self._note(f"its process has not said how it is for {SILENT_S:g} s")

    def as_of_ms(self, vhost: str, now_ms: int) -> int:
        """Until when the index has the vhost's journal; 0 where that is not known."""
        status = (self.status.get("vhosts") or {}).get(vhost) or {}
        behind = status.get("behind_ms")
        return 0 if behind is None else now_ms - int(behind)

    def has_caught_up(self, vhost: str) -> bool:
        """Whether the index read this vhost's journal to its end since it began to follow it.

        Until then the file may say what was taken back later. It stays true while the index falls behind, unless the
        journal was said to be empty and is not.
        """
        status = (self.status.get("vhosts") or {}).get(vhost) or {}
        return vhost in self._wanted and bool(status.get("has_caught_up"))

    def signatures(self) -> dict[tuple[str, str], int]:
        """By (vhost, signature): how many events the index has read."""
        vhosts = self.status.get("vhosts") or {}
        return {
            (vhost, name): n for vhost, status in vhosts.items() for name, n in (status.get("signatures") or {}).items()
        }

    def _warn_of_strangers(self, vhosts: dict[str, Any]) -> None:
        """Once for each kind, however many come."""
        for vhost, status in vhosts.items():
            for name in sorted({*(status.get("signatures") or {})} - {Signature.OK}):
                fate = "their events are kept, marked and counted; see docs/journal.md"
                self._notices.warn(f"{vhost} {name}", "journal.unverified", vhost=vhost, cause=_CAUSES[name], fate=fate)

    def _look(self, vhosts: dict[str, Any]) -> None:
        """Whoever lost its connection, or does not know of one yet, is told anew where to connect, after a moment."""
        now = asyncio.get_running_loop().time()
        for vhost in self._wanted:
            if self.key_of(vhost) not in {None, self._keys.get(vhost)}:  # it is known now, or is another one
                self._send(do="leave", vhost=vhost)
                self._attend(vhost)
            elif vhost in vhosts and vhosts[vhost].get("state") != "lost":
                self._again.pop(vhost, None)
            elif now >= self._again.setdefault(vhost, now + AGAIN_S):
                del self._again[vhost]
                self._attend(vhost)

    def _attend(self, vhost: str) -> None:
        if (key := self.key_of(vhost)) is None:
            return
        self._keys[vhost] = key
        try:
            hosts, login, tls = self._where(vhost)
        except Exception as error:  # noqa: BLE001 - a secret's file may be gone just now; the next look asks again
            self._unsent[vhost] = str(error)
            self._note(str(error))
            return
        self._unsent.pop(vhost, None)
        tries = self._tries[vhost] = self._tries.get(vhost, -1) + 1
        order = attend(hosts[tries % len(hosts)], login, tls, self._stream, key)
        self._send(**order)

    def _send(self, **order: object) -> None:
        """Secrets go through this pipe only: never into arguments, the environment or a file."""
        process = self._process
        if process is not None and process.stdin is not None and not process.stdin.is_closing():
            process.stdin.write(f"{json.dumps(order)}\n".encode())

    def _note(self, why: str | None) -> None:
        if why:
            self._readiness.note("index", f"the index does not work: {why}")
            self._notices.warn("trouble", "index.trouble", error=why, fate="letters go on; events wait in the journal")
        else:
            self._readiness.drop_note("index")
            self._notices.healed("trouble", "index.works")


def _aged(status: dict[str, Any], age_ms: int) -> dict[str, Any]:
    """Of a vhost, when this was said so long ago."""
    behind, state = status.get("behind_ms"), status.get("state")
    return status | {
        "behind_ms": None if behind is None else behind + age_ms,
        "state": "reading" if state == "current" else state,
    }


async def _end(process: Process) -> None:
    """It ends with its stdin; if it does not, it is killed."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        async with asyncio.timeout(END_S):
            await process.wait()
    except (TimeoutError, asyncio.CancelledError):
        with contextlib.suppress(ProcessLookupError):
            process.kill()
