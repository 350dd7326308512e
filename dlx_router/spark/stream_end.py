"""Until when a stream tells everything that it had where it ended. No Spark in here."""

from dlx_router.journal import reading
from dlx_router.journal.packing import FormatError
from dlx_router.journal.strict_json import decoded
from dlx_router.spark.amqp import ALL_OF_A_CHUNK, Connection, Message, Probe
from dlx_router.spark.envelope import envelope

_ODD = (ValueError, LookupError, TypeError, AttributeError, RecursionError)


def ended_ms(connection: Connection, stream: str, now: Probe, asked_ms: int) -> int | None:
    """When it was asked (`asked_ms`), if it ended where `now` says; else as far as the newest event there tells.

    A stream that has grown since may be a replica that has hours to copy: it shows an end that is none. None: what its
    newest message tells cannot be read.
    """
    newest = connection.peek(stream, "last", ALL_OF_A_CHUNK) if now.newest is not None else []
    if now.newest is None or not newest or newest[-1].offset <= now.newest.offset:
        return asked_ms
    moments = times(now.newest)
    return min(*moments, asked_ms) if moments else None


def times(message: Message) -> list[int]:
    """When its events were decided; [] where one of them does not say."""
    try:
        lines = reading.lines(message.body, envelope(message.header).version)
        return [int(decoded(str(line, "utf-8"))["ts_ms"]) for line in lines]
    except (FormatError, *_ODD):
        return []
