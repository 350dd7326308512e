"""Until when an archive surely tells everything: what is not read yet could speak of any letter. No Spark in here.

A position says when its stream was last read to its end (`offsets`): when that was asked for, not when what was read
came, because days of backlog are read within minutes. Where no position says it (an archive of an earlier version, a
backlog that is worked off) there is only the newest event that was read. That is the safe answer: a letter is open for
too long, and has never recovered too early. Of several streams the one that lags most decides.
"""

from collections.abc import Mapping

from dlx_router.spark.archive.layout import Archive


def read_to_end(archive: Archive) -> dict[str, int]:
    """When each stream of the newest segment was last read to its end, ms since 1970; 0: nobody knows.

    Not of streams that were read before and are not any more: those would hold all others back for ever.
    """
    entries = archive.entries()
    ends = entries[-1].end if entries else {}
    return {stream: int(at.get("complete_ms", 0)) for stream, at in ends.items()}


def complete_until(asked: Mapping[str, int], newest: Mapping[str, int]) -> int:
    """Until when all is known, ms since 1970; 0 for no event.

    `asked`: `read_to_end`; `newest`: the newest moment at which an event of each stream was decided, and not later than
    it was read, since a stream may hold any time.
    """
    streams = asked or newest
    known = [max(asked.get(stream, 0), newest.get(stream, 0)) for stream in streams]
    return min((moment for moment in known if moment > 0), default=0)
