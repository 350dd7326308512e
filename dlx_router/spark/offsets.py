"""Where reading stands in each stream, what to read next, and whether something is missing. No Spark in here.

A position is {"next", "seen", "mark", "lost"}: the offset to read next, the offset and digest of a message before it,
and how often something was missing and that was allowed. A stream that was deleted and made anew counts from 0 again,
and an offset alone does not tell; the mark does. `complete_ms` is there too once all of the stream was read: all that
it had at that moment lies before the position. Once reading did not go on where it had ended there is "from" too: the
offset at which it last began.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, NamedTuple

from dlx_router.spark.amqp import SAMPLE, Connection, Message, Probe, StreamError

Position = dict[str, Any]
Positions = dict[str, Position]  # by stream: what Spark keeps in its checkpoint


class DataLoss(Exception):
    """Messages that were to be read are not there any more. Says which stream, what is missing, and what to do."""


class StreamShorter(StreamError):
    """A stream ends before what was read of it: a replica that lags behind, or another stream. Time tells."""


_ADVICE: Final = "what is gone cannot be read; to go on with what is there, set failOnDataLoss to false for one run"


class Range(NamedTuple):
    """Messages of one stream, `start` ≤ offset < `end`; a message is known to be at or behind `end` − 1."""

    stream: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one micro-batch: not beyond `end`, a message behind the last, and so many; None: no matter how many."""

    end: int
    offsets: int | None = None
    bytes: int | None = None


def position(following: int, anchor: Message | None, lost: int = 0) -> Position:
    """A position with the message that proves it."""
    return {
        "next": following,
        "seen": anchor.offset if anchor else -1,
        "mark": anchor.digest if anchor else "",
        "lost": lost,
    }


def beginning(offset: int, anchor: Message | None, lost: int = 0) -> Position:
    """A position that does not go on behind another: what is read up to a later one begins here, see `first_offset`."""
    return {**position(offset, anchor, lost), "from": offset}


def first_offset(start: Position | None, end: Position) -> int:
    """The offset of the first message that is read between two positions of a stream; `start` None: it is new.

    Where something was missing between them, reading has begun elsewhere than `start` says, and only `end` knows.
    """
    if start is None:
        return int(end.get("from", 0))
    has_moved = end["lost"] > start["lost"] and "from" in end  # earlier versions did not write it
    return int(end["from"] if has_moved else start["next"])


def checked(
    connection: Connection, stream: str, at: Position, now: Probe, *, fail_on_loss: bool, may_lag: bool = False
) -> Position:
    """The position, once it is certain that reading on from there leaves nothing out.

    Raises DataLoss; without `fail_on_loss` the position is moved to where there is something to read. Raises
    StreamShorter for a stream that is shorter than it was, if it `may_lag`: nothing is known of it yet.
    """
    following, seen = at["next"], at["seen"]
    why = ""
    if not _proven(connection, stream, at, now):
        if may_lag and now.end < following:
            raise StreamShorter(f"stream {stream!r}: it ends at offset {now.end}, and was read up to {following}")
        why = (
            f"stream {stream!r}: offset {seen} is not the message that it was: the stream was deleted and made anew, "
            "or its broker lost the newest messages"
        )
        lags = "; or the node that was asked lags behind: if its replica still copies, try again later"
        why += lags if now.end < following else ""
        following = now.begin
    elif now.first is not None and now.begin > following:
        why = f"stream {stream!r}: offsets {following} to {now.begin - 1} are gone: retention was faster than we"
        following = now.begin
    if why and fail_on_loss:
        raise DataLoss(f"{why}; {_ADVICE}")
    return beginning(following, None, at["lost"] + 1) if why else at


def _proven(connection: Connection, stream: str, at: Position, now: Probe) -> bool:
    """The message that was seen is still the same, or retention took it and the stream goes on behind it.

    Of a stream that shows less than that, the message itself is asked for: a busy broker's answer may come before what
    it has, and a stream that looks shorter than it is has lost nothing.
    """
    if at["seen"] < max(now.begin, 0):
        return bool(now.end >= at["next"])
    messages = connection.look(stream, at["seen"], 1)
    return bool(messages and messages[0].offset == at["seen"] and messages[0].digest == at["mark"])


def advanced(connection: Connection, stream: str, at: Position, now: Probe, limits: Limits) -> Position:
    """The position behind what one micro-batch reads; the same where there is nothing new."""
    start = max(at["next"], now.begin)
    if now.newest is None or now.end <= start:
        return at
    end = min([now.end, limits.end, *_bounds(connection, stream, start, limits)])
    began = {"from": at["from"]} if "from" in at else {}
    if end == now.end:
        return {**position(end, now.newest, at["lost"]), **began}
    messages = connection.look(stream, end - 1, 1)  # there is one: `end` is before the newest
    return {**position(end, messages[0], at["lost"]), **began}


def _bounds(connection: Connection, stream: str, start: int, limits: Limits) -> list[int]:
    bounds = [] if limits.offsets is None else [start + max(limits.offsets, 1)]
    if limits.bytes is not None:
        sample = connection.look(stream, start, SAMPLE)
        each = sum(len(message.body) for message in sample) / max(len(sample), 1)
        bounds.append(start + max(int(limits.bytes / max(each, 1.0)), 1))
    return bounds


def ranges(starts: Mapping[str, int], ends: Mapping[str, int], *, most: int, least_offsets: int) -> list[Range]:
    """What lies between, cut for tasks: `most` a stream, none below `least_offsets` but the whole."""
    spans = []
    for stream, end in ends.items():
        start = starts[stream]
        count = max(min(most, (end - start) // least_offsets), 1)
        edges = [start + (end - start) * at // count for at in range(count + 1)]
        spans += [Range(stream, low, high) for low, high in pairwise(edges) if low < high]
    return spans


def dated(at: Position, before: Position | None, ends: Mapping[int, int]) -> Position:
    """The position with the moment until which the stream told everything; what was known before stays true.

    `ends`: where the stream ended, and when it was asked. One that looks shorter than it is was not asked well.
    """
    known = [ms for ms in (ends.get(at["next"]), (before or {}).get("complete_ms")) if ms is not None]
    return {**at, "complete_ms": max(known)} if known else at


def shares(backlogs: Mapping[str, int], most: int) -> dict[str, int]:
    """How much of `most` each stream gets: as much as it has of the whole backlog, at least one."""
    whole = sum(backlogs.values())
    return {stream: max(most * size // whole, 1) if whole else 1 for stream, size in backlogs.items()}
