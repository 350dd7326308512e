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
from dlx_router.telemetry.logs import log
from dlx_router.wire.frames import lenient

WRITTEN_S: Final = 2.0  # the latest time seen is 1.2 s
_ARGUMENTS: Final = {"x-queue-type": "quorum", "x-expires": 60_000}  # if we are killed before we delete it
_QueueDeclare: Final = lenient(commands.Queue.Declare)
_QueueDelete: Final = lenient(commands.Queue.Delete)


async def flush_names(say: Callable[..., Awaitable[Any]], names: Names) -> None:
    """What was declared before survives a killed broker. Where no queue may be made for it: waits until that is so.

    `say(what, *methods)` asks the broker. Raises Lost.
    """
    queue = names.flush(secrets.token_hex(8))
    declare = _QueueDeclare(queue=queue, durable=True, arguments=_ARGUMENTS)
    try:
        await say("having names of new queues written to disk", declare, _QueueDelete(queue=queue))
    except Lost:
        raise
    except TopologyError as error:
        log.info("topology.waits", error=str(error), fate=f"letters of new queues begin after {WRITTEN_S:.0f} s")
        await asyncio.sleep(WRITTEN_S)
