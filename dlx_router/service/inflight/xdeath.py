"""Header x-death as it came → the deaths it tells, or OddHistory. Any publisher can write one."""

from typing import Any, Final

from dlx_router.core.bounded import MIB, Remembered
from dlx_router.core.letter import HISTORIES, Death, History
from dlx_router.core.names import MAX_NAME_BYTES
from dlx_router.wire import table

_X_DEATH: Final = b"x-death"
# Longer histories are one letter's own: looking for them costs more than it saves.
SHARED_BYTES: Final = 2048
# What no broker counts or dates would not fit where we write it again.
MAX_TIMES: Final = (1 << 31) - 1
MAX_TIME_S: Final = 253_402_300_799  # the end of the year 9999


class OddHistory(ValueError):
    """The header is no history that a broker could have written; says where."""


def deaths_of(headers: bytes, entries: dict[bytes, table.Span]) -> History:
    """The deaths, newest first; none where there is no such header. Raises OddHistory or table.TableError."""
    at = entries.get(_X_DEATH)
    if at is None:
        return ()
    value = headers[at[1] : at[2]]
    return _HISTORIES[value] if len(value) <= SHARED_BYTES else _deaths(value)


def _deaths(value: bytes) -> History:
    if value[:1] != b"A":
        raise OddHistory("x-death is not an array")
    return tuple(_death(entry) for entry in table.deaths(value))


# Letters that died in the same second share the bytes.
_HISTORIES: Final = Remembered(_deaths, most=HISTORIES, most_bytes=4 * MIB)


def _death(entry: dict[str, tuple[str, Any]]) -> Death:
    try:
        queue, reason = _name(entry["queue"]), _name(entry["reason"])
        tag, times = entry.get("count", ("l", 1))
        stamp, keys = entry.get("time", ("T", 0))[1], entry.get("routing-keys", ("A", []))[1]
        expiration = entry.get("original-expiration")
        if tag not in "lLIisubB" or not isinstance(times, int) or not isinstance(stamp, int):
            raise OddHistory(f"x-death: count of {queue!r} is not an integer")
        return Death(
            queue,
            reason,
            min(max(times, 1), MAX_TIMES),
            min(max(stamp, 0), MAX_TIME_S),
            _name(entry.get("exchange", ("S", b""))),
            tuple(_string(key) for key in keys),
            None if expiration is None else _string(expiration),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise OddHistory(f"x-death has an entry of another shape: {error!r}") from error


def _name(tagged: tuple[str, Any]) -> str:
    """In x-death a long string; but it was a short one where it came from, and will be one in what we publish.

    That holds of queues and exchanges. A key may be as long as a frame: a CC key never was a short string, nor is the
    topic of MQTT that becomes the first key (tried on 3.10.8, 4.0.5 and 4.3.6). All of them together fit a frame.
    """
    name = _string(tagged)
    if len(tagged[1]) > MAX_NAME_BYTES:
        raise OddHistory(f"x-death has a name of more than {MAX_NAME_BYTES} bytes")
    return name


def _string(tagged: tuple[str, Any]) -> str:
    if tagged[0] not in "Sx" or not isinstance(tagged[1], bytes | str):
        raise OddHistory("x-death has a field that should be a string and is not")
    return tagged[1] if isinstance(tagged[1], str) else tagged[1].decode(errors="surrogateescape")
