"""Queue names on disk: RabbitMQ writes the name of a new quorum queue down a second after the queue was made.

Killed before that (SIGKILL, out of memory), it forgets whose log lies there: the queue comes back empty, and all that
it had confirmed is lost. The name is written at once where another quorum queue is made after it: that looks its
own name up on disk first. Source: ra_directory.erl (dets with auto_save), dets.erl; the same on 3.10, 4.0 and 4.3.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from typing import Any, Final

from pamqp import commands

from dlx_router.broker.control import Lost, TopologyError
from dlx_router.core.names import Names
from dlx_router.wire.frames import lenient

WRITTEN_S: Final = 2.0  # the latest time seen is 1.2 s
_ARGUMENTS: Final = {"x-queue-type": "quorum", "x-expires": 60_000}  # if we are killed before we delete it
_QueueDeclare: Final = lenient(commands.Queue.Declare)
_QueueDelete: Final = lenient(commands.Queue.Delete)


class NameFlush:
    """What was declared before a call survives a killed broker. Calls that come together share one queue.

    `say(what, *methods)` asks the broker. Where no queue may be made for it, waits until names are written anyway;
    `on_refused` hears why.
    """

    def __init__(self, call: Callable[..., Awaitable[Any]], names: Names) -> None:
        self._call, self._names = call, names
        self.on_refused: Callable[[TopologyError], None] = lambda _: None
        self._turn = asyncio.Lock()
        self._next: asyncio.Task[TopologyError | None] | None = None  # has not begun yet

    async def __call__(self) -> None:
        """Raises Lost."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_task(self._flush())
        refused = await asyncio.shield(self._next)  # others wait for it too
        if isinstance(refused, Lost):
            raise Lost(str(refused))
        if refused is not None:
            self.on_refused(refused)
            await asyncio.sleep(WRITTEN_S)

    async def _flush(self) -> TopologyError | None:
        async with self._turn:
            self._next = None  # whoever comes now has made a queue that this may not see
            queue = self._names.flush(secrets.token_hex(8))
            declare = _QueueDeclare(queue=queue, durable=True, arguments=_ARGUMENTS)
            try:
                await self._call("having names of new queues written to disk", declare, _QueueDelete(queue=queue))
            except TopologyError as error:
                return error
        return None
