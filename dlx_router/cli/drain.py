"""`destroy --drain`: a router runs until nothing waits any more, so that each letter goes where its policy says."""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Iterable
from typing import Final, Self

from dlx_router.core.names import RUNGS, Names

EVERY_S: Final = 1.0
CALM: Final = 3  # so many looks in a row that find nothing: what is in flight between two queues is seen by one of them
STOP_S: Final = 60.0


def flowing(names: Names, delayed: Iterable[str] = ()) -> list[str]:
    """The queues that a router empties by itself; parking and quarantine wait for a person. `delayed`: exchanges."""
    own = [names.inbox, names.fifo, names.release, names.retired, *map(names.delay, RUNGS)]
    return [*own, *map(names.delayed, delayed)]


class Drain:
    """A router of our own, for as long as the block lasts. Its output goes to stderr."""

    def __init__(self, policies: str) -> None:
        self._policies = policies
        self._process: asyncio.subprocess.Process

    async def __aenter__(self) -> Self:
        env = {**os.environ, "DLX_ROUTER_HTTP_PORT": str(_free_port()), "DLX_ROUTER_HTTP_HOST": "127.0.0.1"}
        argv = ("-m", "dlx_router", "run", "--policies", self._policies)
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, *argv, env=env, stdin=asyncio.subprocess.DEVNULL, stdout=sys.stderr, stderr=sys.stderr
        )
        return self

    @property
    def runs(self) -> bool:
        """Whether it still does."""
        return self._process.returncode is None

    async def __aexit__(self, *_: object) -> None:
        if self.runs:
            self._process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_S):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
    return port
