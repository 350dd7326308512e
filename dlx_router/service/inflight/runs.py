"""Runs: letters of one mould that one read brought, written, published, confirmed and acked together.

Nothing is kept of a letter but its delivery and its new header table, as long as all goes well. Whatever else happens
to one (returned, nacked, asked for, in doubt) happens to the job that is made of it then, as if it had come alone.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import islice
from struct import Struct
from typing import Final, NamedTuple
from zlib import crc32

from dlx_router.broker.consumer import Consumer
from dlx_router.core import record as records
from dlx_router.core.letter import PLAIN_BODY_BYTES
from dlx_router.core.record import CRC32, END, SERIAL, SIZE
from dlx_router.core.words import Action
from dlx_router.journal.batch import Batch
from dlx_router.journal.encoding import string
from dlx_router.journal.entry import Entry
from dlx_router.journal.events import POSSIBLE_COPY, ROW_END, ROW_SERIAL
from dlx_router.service.inflight.decoder import PROPERTIES_AT, Place
from dlx_router.service.inflight.in_force import InForce
from dlx_router.service.inflight.job import Job
from dlx_router.service.inflight.moulds import ID, RECORD, Common, Mould
from dlx_router.wire import frames, properties

_MAC: Final = b',"mac":"'
_MAC_END: Final = b'"}'
_MAC_BYTES: Final = len(_MAC) + 32 + len(_MAC_END)
_NOBODY: Final = frames.Delivery(0, b"", 0, False, b"", b"", b"", b"")  # noqa: FBT003 - AMQP order
_pack_long: Final = Struct(">I").pack


Outlet = tuple[int, int, int]
"""Where copies leave: a channel, the number of its next publish, and the most that a frame may hold."""


class Outlets(NamedTuple):
    """Where copies to queues of ours leave, and where those to targets; and who we are."""

    own: Outlet
    targets: Outlet
    user: bytes


class Written(NamedTuple):
    """Letters that were written: their moulds, header tables but for the number, all frames in parts, and events.

    `batches` of the journal have these, each so many; none: it hears nothing of them.
    """

    moulds: list[Mould]
    deliveries: Sequence[frames.Delivery]
    tables: list[bytes]
    parts: list[frames.Buffer]
    entries: list[Entry]
    batches: list[tuple[Batch, int]]

    def decided(self) -> Mapping[tuple[str, str, str], int]:
        """How often each was decided, as metrics have it."""
        first = self.moulds[0]
        if self.moulds.count(first) == len(self.moulds):
            return {first.route.decided: len(self.moulds)}
        return Counter([mould.route.decided for mould in self.moulds])

    def runs(self, consumer: Consumer, in_force: InForce, started_s: float) -> Iterator["Run"]:
        """The runs that they are, in their order: one for each batch."""
        if not self.batches:
            yield Run(self.moulds, in_force, consumer, self.deliveries, self.tables, started_s, None)
            return
        at = 0
        for batch, count in self.batches:
            stop = at + count
            some, tables = self.deliveries[at:stop], self.tables[at:stop]
            yield Run(self.moulds[at:stop], in_force, consumer, some, tables, started_s, batch)
            at = stop


class Run:
    """Letters with tags and numbers one behind the other, and one batch of the journal (None: it hears nothing)."""

    __slots__ = (
        "_deliveries", "_moulds", "_tables", "batch", "consumer", "first_tag", "in_force", "started_s", "weight",
    )  # fmt: skip

    def __init__(  # noqa: PLR0913, PLR0917 - what letters have in common, and keywords cost time in the hot path
        self,
        moulds: list[Mould],
        in_force: InForce,
        consumer: Consumer,
        deliveries: Sequence[frames.Delivery],
        tables: list[bytes],
        started_s: float,
        batch: Batch | None,
    ) -> None:
        self.in_force, self.consumer = in_force, consumer
        self._moulds, self._deliveries, self._tables = moulds, [*deliveries], tables
        self.started_s, self.batch = started_s, batch
        self.first_tag = deliveries[0].tag
        self.weight = sum([len(header) + len(body) for _, _, _, _, _, _, header, body in deliveries])  # as `_weight`

    def __len__(self) -> int:
        return len(self._deliveries)

    def actions(self, start: int, stop: int) -> Mapping[str, int]:
        """How often each action is that of these letters."""
        moulds = self._moulds[start:stop]
        if moulds.count(moulds[0]) == len(moulds):
            return {moulds[0].action: len(moulds)}
        return Counter([mould.action for mould in moulds])

    def jobs(self, start: int, stop: int) -> list[Job]:
        """These letters as they would be had they come alone; the run knows nothing of them any more."""
        jobs = [self._job(at) for at in range(start, stop)]
        self.forget(start, stop)
        return jobs

    def _job(self, at: int) -> Job:
        delivery, route = self._deliveries[at], self._moulds[at].route
        job = Job(self.consumer, delivery, self.started_s, self.in_force)
        job.props = properties.parse(delivery.header, PROPERTIES_AT)
        job.route, job.action, job.resource = route, route.action, route.resource
        job.added = self._tables[at]
        job.batches = () if self.batch is None else (self.batch,)
        return job

    def forget(self, start: int, stop: int) -> int:
        """Keep nothing of these letters; → how many bytes they had."""
        if stop - start == len(self._deliveries):
            return self.weight  # nobody refers to the run any more
        gone = self._deliveries[start:stop]
        self._deliveries[start:stop] = [_NOBODY] * len(gone)
        self._tables[start:stop] = [b""] * len(gone)
        return _weight(gone)


def _weight(deliveries: Sequence[frames.Delivery]) -> int:
    return sum([len(header) + len(body) for _, _, _, _, _, _, header, body in deliveries])


def written(
    find: Callable[[frames.Delivery], Mould | None],
    deliveries: Sequence[frames.Delivery],
    place: Place,
    outlets: Outlets,
    now_ms: int,
) -> Written | None:
    """As many of these as have a mould, as `compiled.write` and `section` would write each; tells nobody.

    It ends before one without a body, and one whose header no frame can hold, or whose record would be too long: alone
    that is seen to. None: that is the first. Either all or none of them are told to the journal, and they leave by one
    outlet.
    """
    moulds: list[Mould] = []
    tables: list[bytes] = []
    entries: list[Entry] = []
    key, outlet = place.key, outlets.targets
    begin = records.signer(key)
    while len(tables) < len(deliveries):
        at = len(tables)
        mould = find(deliveries[at])
        if mould is None:
            break
        if not moulds:
            outlet = outlets.own if mould.route.action is Action.RETRY else outlets.targets
        elif mould.route.action is not moulds[0].route.action or (moulds[0].shared is None) != (mould.shared is None):
            break
        _write(mould.common(now_ms, outlet[2], key, begin), place.serials, deliveries, tables, entries)
        if len(tables) == at:
            break
        moulds += [mould] * (len(tables) - at)
    if not tables:
        return None
    some = deliveries[: len(tables)]
    return Written(moulds, some, tables, _framed(moulds, some, tables, outlet), entries, [])


def _write(
    common: Common,
    serials: int,
    deliveries: Sequence[frames.Delivery],
    tables: list[bytes],
    entries: list[Entry],
) -> None:
    """Header tables, but for the number, and events of the next that are alike; where most of a letter's time goes."""
    (
        length, unpack, fixed, exchange, routing_key, table_at, pieces, rest_at, message_id_at, correlation_id_at,
        timestamp_at, ids, longest, most, (lead, behind_id), new_mac, (start, between, behind, stop), shared,
    ) = common  # fmt: skip
    new_id, last_size, lead_bytes = ids.begin, ids.size, len(lead) + _MAC_BYTES
    size_text, size_row = f"{SIZE}{last_size}{END}", f",{last_size}{behind}"
    for _, _, tag, redelivered, came_by, came_as, header, body in islice(deliveries, len(tables), None):
        size = len(body)
        if len(header) != length or unpack(header) != fixed or came_as != routing_key or came_by != exchange:
            break
        if size != last_size:
            if not size:
                break
            new_id, last_size = ids.of_size(size), size
            size_text, size_row = f"{SIZE}{size}{END}", f",{size}{behind}"
        headers = header[table_at] if pieces is None else b"".join([header[piece] for piece in pieces])
        digest, mac = new_id(), new_mac()
        digest.update(header[rest_at])
        digest.update(headers)
        digest.update(body if size <= PLAIN_BODY_BYTES else sha256(body).digest())
        letter_id, checksum, serial = digest.hexdigest(), str(crc32(body)), serials + tag
        message_id = "" if message_id_at is None else string(str(header[message_id_at], "utf-8", "surrogateescape"))
        payload = f"{message_id}{behind_id}{letter_id}{SERIAL}{serial}{CRC32}{checksum}{size_text}".encode()
        mac.update(payload)
        record_size, signed = _pack_long(lead_bytes + len(payload)), mac.hexdigest().encode()
        table = b"".join((headers, ID, letter_id.encode(), RECORD, record_size, lead, payload, _MAC, signed, _MAC_END))
        if len(payload) > longest or len(table) > most:
            break
        tables.append(table)
        if shared is None:
            continue
        own = f',"message_id":{message_id}' if message_id else ""
        if correlation_id_at is not None:
            own = f'{own},"correlation_id":{string(str(header[correlation_id_at], "utf-8", "surrogateescape"))}'
        if timestamp_at is not None:
            own = f'{own},"timestamp_s":{int.from_bytes(header[timestamp_at])}'
        end = f"{POSSIBLE_COPY if redelivered else ''}{ROW_SERIAL}{serial}{ROW_END}"
        entries.append((shared, f"{start}{letter_id}{between}{checksum}{size_row}{own[1:]}{stop}{end}"))


def _framed(
    moulds: Sequence[Mould], deliveries: Sequence[frames.Delivery], tables: Sequence[bytes], outlet: Outlet
) -> list[frames.Buffer]:
    """The frames that publish them, in parts."""
    parts: list[frames.Buffer] = []
    channel, number, largest = outlet
    last = moulds[0]
    octets, tail, only, publish = last.octets, last.tail, last.only_tail, last.frames_on(channel)
    for mould, (_, _, _, _, _, _, header, body), table in zip(moulds, deliveries, tables, strict=True):
        if mould is not last:
            last = mould
            octets, tail, only, publish = last.octets, last.tail, last.only_tail, last.frames_on(channel)
        size, own = len(body), len(table)
        lead, start, table_end, pack_lead, pack_back, header_bytes, table_bytes = publish
        rest = header[only] if only is not None else b"".join([header[piece] for piece in tail])
        parts += pack_lead(lead, header_bytes + own, 60, 0, size, start, table_bytes + own), table
        if size <= largest:
            parts += pack_back(table_end, number, octets + rest, 0xCE, 3, channel, size), body, b"\xce"
        else:
            parts.append(pack_back(table_end, number, octets + rest, 0xCE, 3, channel, largest))
            parts += frames.bodies(channel, body, largest)[1:]
        number += 1
    return parts
