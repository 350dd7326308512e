"""When two nodes that both ran did not hear each other: by their own logs, and the faults. No clock, no broker.

The connection between two nodes may be dead in one direction while both run: what has to pass there stands, or is gone.
The node that hears nothing gives the connection up once net_ticktime is over, and logs `Node NAME not responding`. By
the default, 60 s, it had then heard nothing for 45 to 75 s: the last 45 s before the line are certain. Of these count
the seconds in which a fault held neither of the two: that nobody hears a node that is paused is the fault's doing.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final, NamedTuple

from tools.chaos.cluster.invariants import Stand

SURELY_SILENT_S: Final = 45.0
SILENT_AT_MOST_S: Final = 75.0
_NOT_RESPONDING: Final = re.compile(r"^(\S+ \S+) \[\w+\] \S+ \*\* Node (\S+) not responding \*\*", re.MULTILINE)

Span = tuple[float, float]  # seconds since 1970


class Held(NamedTuple):
    """Nodes that a fault held."""

    nodes: tuple[int, ...]
    begun_s: float
    ended_s: float


@dataclass(frozen=True)
class Silence:
    """A node gave up its connection to another one, of which it had heard nothing."""

    by: int
    of: int
    at_s: float

    @property
    def trouble(self) -> Span:
        """The seconds in which something may be wrong with the connection."""
        return self.at_s - SILENT_AT_MOST_S, self.at_s


@dataclass(frozen=True)
class Partition:
    """Seconds in which a node surely heard nothing of another one, and no fault held either of them."""

    by: int
    of: int
    begun_s: float
    ended_s: float

    def __str__(self) -> str:
        seconds = self.ended_s - self.begun_s
        when = f"from {_clock(self.begun_s)} to {_clock(self.ended_s)} UTC"
        return f"node {self.by} heard nothing of node {self.of} {when} ({seconds:.0f} s), and both ran"


def silences(logs: Sequence[str], names: Sequence[str]) -> list[Silence]:
    """What the logs of the nodes say, by time; `names` are those of Erlang, in the same order."""
    known = {name: at for at, name in enumerate(names)}
    lines = ((by, *line) for by, log in enumerate(logs) for line in _NOT_RESPONDING.findall(log))
    parsed = (
        Silence(by, known[name], datetime.fromisoformat(at).timestamp()) for by, at, name in lines if name in known
    )
    return sorted(parsed, key=lambda silence: silence.at_s)


def partitions(silent: Iterable[Silence], held: Sequence[Held]) -> list[Partition]:
    """Of each silence the certain seconds in which neither node was held."""
    return [
        Partition(silence.by, silence.of, *piece)
        for silence in silent
        for piece in outside((silence.at_s - SURELY_SILENT_S, silence.at_s), _spans(silence, held))
    ]


def _spans(silence: Silence, held: Sequence[Held]) -> list[Span]:
    return [(fault.begun_s, fault.ended_s) for fault in held if {silence.by, silence.of} & set(fault.nodes)]


def beside(stand: Stand, known: Iterable[Partition]) -> Stand:
    """The same stand: alone is the longest piece that it stood alone while all nodes that ran heard each other."""
    spans, ended_s = [(partition.begun_s, partition.ended_s) for partition in known], stand.begun_s + stand.seconds
    alone = outside((ended_s - stand.alone_s, ended_s), spans)
    whole = sum(_lengths(outside((stand.begun_s, ended_s), spans)))
    return replace(stand, alone_s=max(_lengths(alone), default=0.0), partitioned_s=stand.seconds - whole)


def outside(span: Span, others: Iterable[Span]) -> list[Span]:
    """The pieces of a span that lie in none of the others."""
    at_s, end_s = span
    pieces = []
    for begun_s, ended_s in sorted(others):
        pieces.append((at_s, min(begun_s, end_s)))
        at_s = max(at_s, ended_s)
    return [(begun_s, ended_s) for begun_s, ended_s in (*pieces, (at_s, end_s)) if begun_s < ended_s]


def _lengths(spans: Iterable[Span]) -> list[float]:
    return [ended_s - begun_s for begun_s, ended_s in spans]


def _clock(at_s: float) -> str:
    return f"{datetime.fromtimestamp(at_s, UTC):%H:%M:%S}"
