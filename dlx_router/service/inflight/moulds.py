"""Moulds: what is equal in letters of one kind, written once; each letter adds its own bytes: see runs.py.

A mould is made of a delivery whose shape is known, for those whose whole header differs in values of their own only:
same exchange, key, properties, names, types and lengths, same deaths. What it writes is what `compiled` would, byte for
byte; a law in tests/service holds them equal.
"""

from collections.abc import Callable, Iterable, Mapping
from struct import Struct
from typing import Any, Final, NamedTuple

from dlx_router.core import record as records
from dlx_router.core.bounded import MIB, Bounded
from dlx_router.core.letter import LetterIds
from dlx_router.journal.entry import Shared
from dlx_router.service.inflight.decoder import PROPERTIES_AT
from dlx_router.service.inflight.routes import Key, Route, Shape
from dlx_router.wire import frames, properties, table

MAX_ROUTES: Final = 4096
ROUTES_BYTES: Final = 8 * MIB  # and as much for shapes, and for moulds
ID: Final = table.longstr(b"dlx-router-id", b"0" * 32)[:-32]
RECORD: Final = table.longstr(b"dlx-router", b"")[:-4]
_OWN: Final = {"message_id": 1, "correlation_id": 1, "timestamp": 0}  # a letter's own, behind so many bytes of length
_BEFORE: Final = ("content_type", "content_encoding", "headers", "delivery_mode", "priority")
_NO_ROW: Final = ("", "", "", "")  # the journal hears nothing of them
_PLACES: Final = 4  # of x-death, kept for letters of one key and length
_MOULD_BYTES: Final = 4096  # besides some copies of a header
_FIRST_TRIES: Final = frozenset({3, 6, 12})  # letters of one key and length that had no mould, one behind the other
_TRIES: Final = 32


class Common(NamedTuple):
    """What letters of one mould have in common at one time, for `runs.written`, which unpacks it in this order."""

    length: int
    unpack: Callable[[bytes], tuple[Any, ...]]
    fixed: tuple[Any, ...]
    exchange: bytes
    routing_key: bytes
    table: slice
    pieces: list[slice] | None  # of the table, where the broker's counts are left out
    rest: slice
    message_id: slice | None
    correlation_id: slice | None
    timestamp: slice | None
    ids: LetterIds
    longest: int  # a letter's own part of the record, before it is signed
    most: int  # header table
    record: tuple[bytes, str]  # as `records.run_of`
    begin: Callable[[], Any]  # the digest that signs a record, which wants a letter's own part
    row: tuple[str, str, str, str]  # as `Fragments.rows`
    shared: Shared | None


class Mould:
    """Of letters whose header is this one, but for what is their own."""

    def __init__(self, header: bytes, source: tuple[bytes, bytes], shape: Shape, user: bytes) -> None:
        """`source`: exchange and routing key by which they came; `user`: who we are."""
        route = shape.route
        self.route, self.action, self._source = route, route.action.value, source
        props = properties.parse(header, PROPERTIES_AT)
        where = properties.spans(header, PROPERTIES_AT)
        start, stop = where["headers"]
        self.table = slice(start + 4, stop)
        counts = [(self.table.start + first, self.table.start + last) for first, last in shape.counts]
        self._pieces = kept(self.table.start, stop, counts) if counts else None
        self._length = len(header)
        self._own = _own(shape, start + 4, stop, where)
        self._unpack = _fixed_parts(self._own, self._length)
        self._fixed = self._unpack(header)
        late = max(where[name][1] for name in _BEFORE if name in where)
        self._rest = slice(late, self._length)
        bare = props.bare()
        common = bare[: len(bare) - (self._length - late)]
        own = len(props.headers) - sum(last - first for first, last in counts)
        self._ids = LetterIds((*route.where, *source), common, self._length - late, own)
        self._props = records.properties_of(
            None if props.message_id is None else "",
            props.user_id,
            props.expiration,
            props.priority,
            props.delivery_mode,
        )
        self.weight = _MOULD_BYTES + 4 * self._length
        self.shared = None if route.told is None else route.told.shared(props)
        self._common: Common | None = None
        self._common_of = 0, 0, b""
        self._frame(props, where, late, props.user_id if props.user_id == user else None)

    def _frame(
        self, props: properties.Properties, where: Mapping[str, tuple[int, int]], late: int, user_id: bytes | None
    ) -> None:
        """What stands in the property section before and behind the header table, as `compiled.section` writes it."""
        priority = props.priority if self.route.keeps_priority else None
        section = props.replaced(headers=b"t", delivery_mode=2, priority=priority, expiration=None, user_id=user_id)
        at = self.table.start - 4 - PROPERTIES_AT
        start, rest = section[:at], section[at + 5 :]
        gone = {"expiration"} if user_id is not None else {"expiration", "user_id"}
        self.tail = kept(late, self._length, [where[name] for name in gone & where.keys()])
        self.only_tail = self.tail[0] if len(self.tail) == 1 else None
        self.octets = rest[: len(rest) - sum(piece.stop - piece.start for piece in self.tail)]
        self._section = start, len(rest)
        # Of a content header beside the table's own entries: class, weight and size; start; length; number; tail.
        self._header_bytes = 12 + len(start) + 4 + len(table.PUB_PREFIX) + 8 + len(rest)
        self._frames: frames.PublishMould | None = None
        self._channel = 0

    def frames_on(self, channel: int) -> frames.PublishMould:
        """What their frames have in common."""
        if self._frames is None or self._channel != channel:
            route, self._channel = self.route, channel
            self._frames = frames.publish_mould(
                channel,
                route.exchange,
                route.routing_key,
                start=self._section[0],
                table_end=table.PUB_PREFIX,
                tail_bytes=self._section[1],
            )
        return self._frames

    def common(self, now_ms: int, largest: int, key: bytes, begin: Callable[[], Any]) -> Common:
        """What letters have in common that are written now, for frames that hold so much.

        `key`: what signs their records; `begin`: its `records.signer`.
        """
        if self._common is None or self._common_of != (now_ms, largest, key):
            self._common_of, self._common = (now_ms, largest, key), self._common_at(now_ms, largest, begin)
        return self._common

    def _common_at(self, now_ms: int, largest: int, begin: Callable[[], Any]) -> Common:
        route, fragments, own = self.route, self.route.told, self._own
        due_ms = None if route.wait_ms is None else now_ms + route.wait_ms
        record = self._record(now_ms, due_ms)
        return Common(
            self._length,
            self._unpack,
            self._fixed,
            *self._source,
            self.table,
            self._pieces,
            self._rest,
            own.get("message_id"),
            own.get("correlation_id"),
            own.get("timestamp"),
            self._ids,
            route.longest - len(records.END) - len(record[0]),
            largest - self._header_bytes,
            record,
            records.signer_of(begin, record[0]),
            _NO_ROW
            if fragments is None
            else fragments.rows(now_ms, first_ms=route.first_ms, last_ms=now_ms, due_ms=due_ms),
            self.shared,
        )

    def _record(self, now_ms: int, due_ms: int | None) -> tuple[bytes, str]:
        route = self.route
        return records.run_of(
            route.standing,
            route.deaths,
            due_ms=due_ms,
            wait_ms=route.wait_ms,
            first_ms=route.first_ms,
            last_ms=now_ms,
            props=self._props,
            has_id="message_id" in self._own,
        )

    def fits(self, header: bytes) -> bool:
        """Whether this header, which is as long as theirs, is such a letter's."""
        return self._unpack(header) == self._fixed


def _own(shape: Shape, at: int, stop: int, where: Mapping[str, tuple[int, int]]) -> dict[object, slice]:
    """What differs from letter to letter: size, values of headers that are not ours, ids and time. In no order."""
    own: dict[object, slice] = {"size": slice(4, PROPERTIES_AT)}
    end = at
    for first, last, _ in (*shape.fixed, (stop - at, 0, b"")):
        if at + first > end:
            own[first] = slice(end, at + first)
        end = at + last
    for name, length in _OWN.items():
        if name in where:
            own[name] = slice(where[name][0] + length, where[name][1])
    return own


def _fixed_parts(own: dict[object, slice], length: int) -> Callable[[bytes], tuple[Any, ...]]:
    parts, at = [], 0
    for piece in sorted(own.values(), key=lambda piece: int(piece.start)):
        parts.append(f"{piece.start - at}s{piece.stop - piece.start}x")
        at = piece.stop
    return Struct(f"{''.join(parts)}{length - at}s").unpack


def kept(start: int, stop: int, gone: Iterable[tuple[int, int]]) -> list[slice]:
    """What is left from `start` to `stop` without what is gone."""
    pieces, at = [], start
    for first, end in sorted(gone):
        pieces.append(slice(at, first))
        at = end
    return [piece for piece in (*pieces, slice(at, stop)) if piece.start < piece.stop]


class CompiledRoutes:
    """The routes of one revision, by what a walk through the headers finds and by shapes of tables; and moulds."""

    def __init__(self) -> None:
        self.by_key: Bounded[Key, Route] = Bounded(most=MAX_ROUTES, most_bytes=ROUTES_BYTES)
        self.by_shape: Bounded[Key, tuple[Shape, ...]] = Bounded(most=MAX_ROUTES, most_bytes=ROUTES_BYTES)
        # By source, exchange, key, length of the header and who we are: where x-death is; with that and it: the mould.
        self._deaths_at: Bounded[Key, tuple[slice, ...]] = Bounded(most=MAX_ROUTES, most_bytes=MIB, weigh=lambda _: 512)
        self._moulds: Bounded[Key, Mould] = Bounded(
            most=MAX_ROUTES, most_bytes=ROUTES_BYTES, weigh=lambda mould: mould.weight
        )
        self._missed: dict[Key, int] = {}  # since a mould was made for such a letter; forgotten when they are many

    def mould(self, key: Key, header: bytes) -> Mould | None:
        """The mould of a delivery."""
        for at in self._deaths_at.get(key, ()):
            mould = self._moulds.get((key, header[at]))
            if mould is not None and mould.fits(header):
                return mould
        return None

    def keep_mould(self, key: Key, header: bytes, deaths_at: slice, mould: Mould) -> None:
        """It is the mould of this delivery, and of those like it."""
        places = self._deaths_at.get(key, ())
        if deaths_at not in places:
            self._deaths_at[key] = (deaths_at, *places)[:_PLACES]
        self._moulds[key, header[deaths_at]] = mould
        self._missed[key] = 0

    def is_due(self, key: Key) -> bool:
        """A delivery had no mould: whether it is time to try and make one."""
        if len(self._missed) > MAX_ROUTES:
            self._missed.clear()
        missed = self._missed[key] = self._missed.get(key, 0) + 1
        return missed in _FIRST_TRIES or missed % _TRIES == 0
