"""The letters of the benchmark: what each looks like when it goes in, and whether what comes out is that letter.

Each is determined by seed, size and index alone, so nothing needs to be kept to verify it.
"""

import random
import struct
from collections.abc import Mapping
from typing import Any, Final

from pamqp.header import ContentHeader

from tools.bench.wire import BenchError

KEY: Final = "order.created"
QUEUE: Final = "orders"
POLICIES: Final = 5  # of letters of several queues; every second names the routing key too
_PLACE: Final = b"@" * 16
_MARK: Final = b"tenant-"
_POOL: Final = 65_536
_TIME: Final = 1_700_000_000
# content-type, headers, delivery-mode, message-id, timestamp, type
_FLAGS: Final = 0x8000 | 0x2000 | 0x1000 | 0x0080 | 0x0040 | 0x0020


def _short(text: str) -> bytes:
    return bytes([len(text)]) + text.encode()


def _long(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def _string(name: str, value: bytes | str) -> bytes:
    return _short(name) + b"S" + _long(value.encode() if isinstance(value, str) else value)


_DEATH: Final = b"".join((
    _short("count") + b"l" + struct.pack(">q", 1),
    _string("reason", "rejected"),
    _string("queue", QUEUE),
    _short("time") + b"T" + struct.pack(">Q", _TIME),
    _string("exchange", "shop"),
    _short("routing-keys") + b"A" + _long(b"S" + _long(KEY.encode())),
))  # fmt: skip
_DEATHS: Final = b"".join((
    _short("x-death") + b"A" + _long(b"F" + _long(_DEATH)),
    _string("x-first-death-exchange", "shop"),
    _string("x-first-death-queue", QUEUE),
    _string("x-first-death-reason", "rejected"),
))  # fmt: skip
_OWN: Final = (
    _string("traceparent", b"00-4bf92f3577b34da6a3ce929d0e0e4736-" + _PLACE + b"-01"),
    _string("tracestate", "vendor=00f067aa0ba902b7"),
    _string("tenant", _MARK + _PLACE),
    _short("order-version") + b"l" + struct.pack(">q", 7),
    _short("gift") + b"t\x01",
)
_INDEX_BYTES: Final = 8
_COUNTS: Final = b"".join(
    _short(name) + b"l" + struct.pack(">q", 1) for name in ("x-acquired-count", "x-delivery-count")
)
_TABLE: Final = b"".join((*_OWN[:2], _DEATHS, *_OWN[2:]))


class Letters:
    """All letters of one size: persistent, dead once, with trace context and three headers of their own."""

    def __init__(self, size: int, seed: int, queues: int = 1, *, counted: bool = False) -> None:
        """`size`: bytes of the body. `queues`: where they died, in turn; of several each belongs to one policy.

        `counted`: with what RabbitMQ 4 writes into a letter that a consumer has refused.
        """
        self.size = size
        self._queues = [QUEUE] if queues == 1 else [f"p{number % POLICIES}.q{number:02}" for number in range(queues)]
        self._pool = random.Random(f"{seed}/{size}").randbytes(size + _POOL)
        properties = _short("application/json") + _long(_TABLE + _COUNTS * counted) + b"\2" + b"\x10" + _PLACE
        properties += struct.pack(">Q", _TIME) + _short("order.created")
        self._header = struct.pack(">HHQH", 60, 0, size, _FLAGS) + properties

    def __call__(self, index: int) -> tuple[bytes, bytes]:
        """Content header and body of this letter."""
        header = self._header.replace(_PLACE, b"%016x" % index)
        queue = self._queues[index % len(self._queues)]
        return header if queue == QUEUE else header.replace(QUEUE.encode(), queue.encode()), self._body(index)

    def _body(self, index: int) -> bytes:
        at = index * 7919 % _POOL
        return (struct.pack(">Q", index) + self._pool[at : at + max(0, self.size - _INDEX_BYTES)])[: self.size]

    @staticmethod
    def index(header: bytes, body: bytes) -> int:
        """Which letter it says it is: in its body, or where that is too short, in a header of its own."""
        if len(body) >= _INDEX_BYTES:
            return int.from_bytes(body[:_INDEX_BYTES])
        at = header.find(_MARK) + len(_MARK)
        return int(header[at : at + len(_PLACE)], 16)

    def check(self, header: bytes, body: bytes) -> str:
        """What is wrong with a letter that came out, "" if nothing: body, properties, headers' values, its death."""
        index = self.index(header, body)
        if body != self._body(index):
            return f"letter {index}: another body"
        sent, came = _decoded(self(index)[0]), _decoded(header)
        for name in ("content_type", "delivery_mode", "message_id", "timestamp", "message_type"):
            if getattr(sent, name) != getattr(came, name):
                return f"letter {index}: {name} {getattr(came, name)!r}, sent {getattr(sent, name)!r}"
        return _headers_wrong(index, sent.headers, came.headers or {})

    @classmethod
    def is_exact(cls, header: bytes, body: bytes) -> bool:
        """The application's own headers are there with the very bytes that were sent, types included."""
        mark = b"%016x" % cls.index(header, body)
        return all(entry.replace(_PLACE, mark) in header for entry in _OWN)


class Inspection:
    """Everything that came out of one run: each letter counted, `samples` random ones verified to the byte."""

    def __init__(self, letters: Letters, count: int, samples: int, chance: random.Random) -> None:
        """`chance` picks which."""
        self._letters = letters
        self._count = count
        self._seen = bytearray(count)
        self._chosen = frozenset(chance.sample(range(count), min(samples, count)))
        self.verified = self.exact = self.duplicates = 0
        self.faults: list[str] = []

    def take(self, header: bytes, body: bytes) -> None:
        """One letter that came out."""
        index = self._letters.index(header, body)
        if index >= self._count:
            self.faults.append(f"a body that nobody sent: {body[:16]!r}")
            return
        self.duplicates += self._seen[index]
        self._seen[index] = 1
        if index in self._chosen:
            wrong = self._letters.check(header, body)
            self.verified += not wrong
            self.exact += self._letters.is_exact(header, body)
            self.faults += [wrong] if wrong else []

    def finish(self, *, must_be_exact: bool) -> None:
        """BenchError where a letter is missing or not what it was; duplicates are reported, not refused."""
        if missing := self._count - sum(self._seen):
            raise BenchError(f"{missing} of {self._count} letters never arrived")
        if self.faults:
            raise BenchError(f"{len(self.faults)} letters are not what was sent, the first: {self.faults[0]}")
        if must_be_exact and self.exact < self.verified:
            raise BenchError(f"{self.verified - self.exact} letters have headers with other bytes than were sent")


def _decoded(payload: bytes) -> Any:  # noqa: ANN401 - pamqp's properties have no common type
    header = ContentHeader()
    header.unmarshal(payload)
    return header.properties


def _headers_wrong(index: int, sent: Mapping[str, Any], came: Mapping[str, Any]) -> str:
    for name in ("traceparent", "tracestate", "tenant", "order-version", "gift", "x-first-death-queue"):
        if came.get(name) != sent[name]:
            return f"letter {index}: header {name} {came.get(name)!r}, sent {sent[name]!r}"
    death = sent["x-death"][0]
    for entry in came.get("x-death") or ():
        if all(entry.get(name) == value for name, value in death.items()):
            return ""
    return f"letter {index}: its death is not in x-death: {came.get('x-death')!r}"
