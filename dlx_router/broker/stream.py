"""The journal's stream: its definition, how it comes to be, and a message for it.

Retention works by whole segments and always keeps one, so segments are small. Arguments of a stream that exists are
never changed. Source: rabbitmq.com/docs/streams (declaring, retention).
"""

from dataclasses import dataclass
from typing import Any, Final

from pamqp import commands

from dlx_router.broker.control import TopologyError
from dlx_router.broker.definitions import Queue
from dlx_router.broker.topology import Topology, TopologyMissing
from dlx_router.core import signature
from dlx_router.core.names import Names
from dlx_router.wire import table
from dlx_router.wire.frames import lenient

TASKS: Final = "tasks"  # what a message of the journal may tell of; readers from 3.13 on can ask for one alone
LETTERS: Final = "letters"
TELLS: Final = {subject: table.longstr(b"x-stream-filter-value", subject.encode()) for subject in (TASKS, LETTERS)}
_SIGNED: Final = table.longstr(signature.HEADER.encode(), b"")[:-4]
_HEADERS_AND_MODE: Final = 0xB000  # content-type, headers, delivery-mode
_ENCODED: Final = 0xF000  # content-encoding too
COMPRESSED_SINCE: Final = 2  # format of a message
_ZSTD: Final = b"\x04zstd"
_QueueDeclare: Final = lenient(commands.Queue.Declare)


@dataclass(frozen=True, slots=True)
class Retention:
    """How much of the journal the broker keeps: by age (number and Y, M, D, h, m or s) and by bytes."""

    max_age: str = "14D"
    max_bytes: int = 5_000_000_000
    segment_bytes: int = 50_000_000


DEFAULT: Final = Retention()


def journal_stream(names: Names, retention: Retention = DEFAULT) -> Queue:
    """The stream as it is declared where it is absent."""
    return Queue(
        names.journal,
        {
            "x-queue-type": "stream",
            "x-max-age": retention.max_age,
            "x-max-length-bytes": retention.max_bytes,
            "x-stream-max-segment-size-bytes": retention.segment_bytes,
        },
    )


async def ensure_stream(topology: Topology, stream: Queue, *, declare: bool = True) -> None:
    """The stream is there. Raises TopologyError where the broker lets us neither find nor make it."""
    if await topology.queue_exists(stream.name):
        return
    if not declare:
        raise TopologyMissing(f"vhost {topology.vhost!r}", [stream])
    control = topology.another("journal")

    async def work(channel: Any) -> None:  # its interface hides `rpc`
        await channel.rpc(_QueueDeclare(queue=stream.name, durable=True, arguments=dict(stream.arguments)))

    try:
        await control.run(work, f"declaring {stream}")
    except TopologyError:
        if not await topology.queue_exists(stream.name):  # else somebody was faster
            raise
    finally:
        await control.close()


def section(content_type: bytes, version: int, stamp: bytes, subject: str = LETTERS, mac: bytes = b"") -> bytes:
    """The property section of a journal message. Streams keep scalars among headers only, so there are no others."""
    head, plain = _STARTS.get((content_type, version, subject)) or _start(content_type, version, subject)
    headers = plain + (_SIGNED + len(mac).to_bytes(4, "big") + mac if mac else b"") + stamp
    return b"".join((head, len(headers).to_bytes(4, "big"), headers, b"\x02"))


def _start(content_type: bytes, version: int, subject: str) -> tuple[bytes, bytes]:
    """What all such messages have: the section as far as the length of the headers, and the first headers."""
    is_packed = version >= COMPRESSED_SINCE
    flags = (_ENCODED if is_packed else _HEADERS_AND_MODE).to_bytes(2, "big")
    head = b"".join((flags, bytes((len(content_type),)), content_type, _ZSTD if is_packed else b""))
    return _STARTS.setdefault((content_type, version, subject), (head, table.long_(b"v", version) + TELLS[subject]))


_STARTS: Final[dict[tuple[bytes, int, str], tuple[bytes, bytes]]] = {}  # a few: their values are ours
