"""Encoder: a publication + the envelope it came in → the bytes to send. What we do not own is not touched."""

import struct
from typing import Final

from dlx_router.core import record as records
from dlx_router.core.bounded import MIB, Remembered
from dlx_router.core.decision import passes
from dlx_router.core.letter import HISTORIES, Death, History, Letter
from dlx_router.core.publication import ALIASES, Publication, Way
from dlx_router.core.words import Action, State
from dlx_router.service.inflight import saved_headers
from dlx_router.service.inflight.admissible import DIRECT_REPLY, admissible
from dlx_router.service.inflight.decoder import DELIVERY_HEADERS, PROPERTIES_AT, Envelope
from dlx_router.service.inflight.job import Job
from dlx_router.telemetry.logs import Once
from dlx_router.wire import properties, table

_OURS: Final = DELIVERY_HEADERS | {b"dlx-router", b"dlx-router-id", b"dlx-router-pub"}
_FIRST: Final = frozenset({b"x-first-death-queue", b"x-first-death-exchange", b"x-first-death-reason"})
_LAST: Final = frozenset({b"x-last-death-queue", b"x-last-death-exchange", b"x-last-death-reason"})
_DEATHS: Final = _FIRST | _LAST | {b"x-death"}
# A name over 255 bytes, a number that does not fit its type, text that no bytes stand for.
UNWRITABLE: Final = (ValueError, struct.error)
LAST_DEATHS_SINCE: Final = (3, 13)  # versions of RabbitMQ that write x-last-death-*
CONSUMER_HEADER_BYTES: Final = 4096
NEWEST: Final = 8
QUARANTINE_HEADER_BYTES: Final = 131_072
_FATES: Final = {
    Action.QUARANTINE: "kept in the quarantine queue as it came; others of this kind are not logged again",
    Action.PARK: "kept in the parking queue; others of this kind are not logged again",
    Action.HOLD: "waits and is tried again, without using an attempt; others of this kind are not logged again",
}
_ROUTING: Final = frozenset({b"CC", b"BCC", b"dlx-router-pub"}) | DELIVERY_HEADERS


def encoded(value: str) -> bytes:
    """Text → the bytes that it came from."""
    return value.encode(errors="surrogateescape")


class Encoder:
    """Writes copies for one link: who we are, what the broker writes itself, and the key that signs."""

    def __init__(self, *, user: str, last_deaths: bool, key: bytes, quarantine: str) -> None:
        self.user = user.encode()
        self._last_deaths = last_deaths
        self._key = key
        self._quarantine = quarantine.encode()
        self._once = Once()

    def write(self, job: Job, stamp: bytes) -> tuple[bytes, bytes, bytes]:
        """(exchange, routing key, property section) of the job's copy; `stamp` is the header with its number."""
        copy, letter, envelope = job.copy, job.letter, job.envelope
        if job.raw or copy is None or letter is None or envelope is None:
            return b"", self._quarantine, self._as_it_came(job, stamp)
        if copy.way is Way.FORWARD:
            return encoded(copy.exchange), encoded(copy.routing_key), self._relayed(copy, letter, envelope, stamp)
        headers = self.headers(copy, letter, envelope)
        if copy.way is Way.RETURN and len(headers) > CONSUMER_HEADER_BYTES and len(letter.history) > NEWEST:
            headers = self.headers(copy, letter, envelope, newest=NEWEST)
        section = envelope.props.replaced(
            headers=headers + stamp,
            delivery_mode=copy.delivery_mode,
            priority=copy.priority,
            expiration=None,
            user_id=self._user_id(envelope.props),
        )
        return encoded(copy.exchange), encoded(copy.routing_key), section

    def _relayed(self, copy: Publication, letter: Letter, envelope: Envelope, stamp: bytes) -> bytes:
        """As it came, but for what the broker writes at each delivery, and our note where it had to wait."""
        if copy.aside:
            return self._with_properties(envelope, saved_headers.onward(envelope, stamp))
        remove, added = DELIVERY_HEADERS | {b"dlx-router-pub"}, stamp
        if passes(letter):  # its rung is no death of it
            remove, added = _OURS | _FIRST | _LAST | {b"x-death"}, _death_headers(letter.history) + stamp
        remove = remove | {b"CC"} if copy.cc is not None else remove
        headers = envelope.props.headers
        return self._with_properties(
            envelope, table.splice(headers, envelope.found, remove & envelope.found.keys(), added)
        )

    def _with_properties(self, envelope: Envelope, headers: bytes) -> bytes:
        """All properties as they came, also those that a rung does not let through."""
        props, kept = envelope.props, envelope.content.props
        return props.replaced(
            headers=headers,
            delivery_mode=kept.delivery_mode,
            priority=kept.priority,
            expiration=None if kept.expiration is None else encoded(kept.expiration),
            user_id=self._user_id(props),
        )

    def tell(self, job: Job) -> None:
        """Log the fate of a letter that did not take the plain way; once for each place and cause."""
        if job.action is Action.QUARANTINE or job.action is Action.PARK or (job.action is Action.HOLD and job.cause):
            place = job.letter.failed_queue if job.letter is not None else job.consumer.queue
            self._once.warn(
                f"{job.action} {place}",
                f"letter.{job.action}",
                queue=place,
                cause=job.cause,
                error=job.why or None,
                letter=job.letter.id if job.letter is not None else "",
                fate=_FATES[job.action],
                target=job.copy.record.target if job.copy is not None else None,
            )

    def _user_id(self, props: properties.Properties) -> bytes | None:
        return props.user_id if props.user_id == self.user else None

    def bare(self, job: Job, _stamp: bytes) -> tuple[bytes, bytes, bytes]:
        """As `write` of what goes to quarantine, without what the broker wrote of its deaths: so it fits a frame.

        Whoever published it had no larger frames than we have. Its event tells the deaths. It carries no number.
        """
        props = properties.parse(job.delivery.header, PROPERTIES_AT)
        props, entries = admissible(props, table.entries(props.headers))
        kept = table.splice(props.headers, entries, (_ROUTING | _DEATHS) & entries.keys(), b"")
        section = props.replaced(headers=kept, delivery_mode=2, expiration=None, user_id=self._user_id(props))
        return b"", self._quarantine, section

    def _as_it_came(self, job: Job, stamp: bytes) -> bytes:
        props = properties.parse(job.delivery.header, PROPERTIES_AT)
        try:
            props, entries = admissible(props, table.entries(props.headers))
            kept = table.splice(props.headers, entries, _ROUTING & entries.keys(), b"")
        except table.TableError:
            if props.reply_to == DIRECT_REPLY:
                props = properties.parse(props.without("reply_to"), 0)
            kept, stamp, extra = props.headers, b"", b""  # what cannot be walked cannot be added to
        else:
            letter_id = job.letter.id.encode() if job.letter is not None else b""
            extra = table.longstr(b"dlx-router-cause", job.cause.encode(errors="replace")[:200])
            extra += table.longstr(b"dlx-router-id", letter_id) if letter_id else b""
            if len(kept) + len(extra) + 4096 > QUARANTINE_HEADER_BYTES:
                stamp, extra = b"", b""
        return props.replaced(
            headers=kept + extra + stamp,
            delivery_mode=2,
            priority=props.priority,
            expiration=None,
            user_id=self._user_id(props),
        )

    def headers(self, copy: Publication, letter: Letter, envelope: Envelope, newest: int | None = None) -> bytes:
        """The header table's payload: foreign entries as they came, ours behind them."""
        if copy.aside:
            return saved_headers.waiting(envelope, self._record(copy, letter), over=copy.way is Way.PARKING)
        history = letter.history[:newest]
        remove = {*_OURS}
        added: list[bytes] = []
        if history != envelope.broker_deaths:
            remove.add(b"x-death")
            remove |= _FIRST
            added.append(_X_DEATHS[history])
            added.append(_first(letter))
            if self._last_deaths and history:
                remove |= _LAST
                added.append(_last(history[0]))
        if copy.cc is not None:
            self._cc(copy, envelope, remove, added)
        if copy.way is Way.RETURN or (copy.way is Way.TARGET and copy.record.state == State.RETRYING):
            remove.add(b"dlx-death")  # it is about a death that is over
        if copy.bcc is not None:
            remove.add(b"BCC")
            added.append(table.array_of_longstr(b"BCC", (encoded(copy.bcc),)))
        for kind in copy.aliases:
            remove.update(name.encode() for name in ALIASES[kind])
        added += aliases(copy.aliases, letter, envelope, copy.record.attempts)
        added.append(self._record(copy, letter))
        return table.splice(envelope.props.headers, envelope.found, remove & envelope.found.keys(), b"".join(added))

    def _record(self, copy: Publication, letter: Letter) -> bytes:
        """The entries by which we know the letter again."""
        written = records.encode(copy.record, self._key, copy.record_bytes)
        return table.longstr(b"dlx-router-id", letter.id.encode()) + table.longstr(b"dlx-router", written)

    @staticmethod
    def _cc(copy: Publication, envelope: Envelope, remove: set[bytes], added: list[bytes]) -> None:
        at = envelope.found.get(b"CC")
        wanted = table.array_of_longstr(b"CC", tuple(encoded(key) for key in copy.cc or ())) if copy.cc else b""
        if at is not None and envelope.props.headers[at[0] : at[2]] == wanted:
            return
        if at is not None:
            remove.add(b"CC")
        if wanted:
            added.append(wanted)


def _x_death(history: History) -> bytes:
    return table.field_array(b"x-death", [_entry(death) for death in history])


_X_DEATHS: Final = Remembered(_x_death, most=HISTORIES, most_bytes=4 * MIB)


def _entry(death: Death) -> bytes:
    fields = [
        table.long_(b"count", death.times),
        table.longstr(b"reason", encoded(death.reason)),
        table.longstr(b"queue", encoded(death.queue)),
        table.timestamp(b"time", death.time_s),
        table.longstr(b"exchange", encoded(death.exchange)),
        table.array_of_longstr(b"routing-keys", tuple(encoded(key) for key in death.routing_keys)),
    ]
    if death.original_expiration is not None:
        fields.append(table.longstr(b"original-expiration", encoded(death.original_expiration)))
    return b"".join(fields)


def _death_headers(history: History) -> bytes:
    """What a message told of deaths before it had to wait; nothing where it had none."""
    if not history:
        return b""
    oldest = min(reversed(history), key=lambda death: death.time_s)
    return _X_DEATHS[history] + _three(b"x-first-death-", oldest.queue, oldest.exchange, oldest.reason)


def _first(letter: Letter) -> bytes:
    first = letter.first
    if first is None:
        return b""
    return _three(b"x-first-death-", first.queue, first.exchange, first.reason)


def _last(death: Death) -> bytes:
    return _three(b"x-last-death-", death.queue, death.exchange, death.reason)


def _three(prefix: bytes, queue: str, exchange: str, reason: str) -> bytes:
    return (
        table.longstr(prefix + b"queue", encoded(queue))
        + table.longstr(prefix + b"exchange", encoded(exchange))
        + table.longstr(prefix + b"reason", encoded(reason))
    )


def aliases(kinds: tuple[str, ...], letter: Letter, envelope: Envelope, attempts: int) -> list[bytes]:
    """The headers of other systems on a final copy. See docs/policies.md."""
    out: list[bytes] = []
    message_id = envelope.content.props.message_id
    queue = encoded(letter.failed_queue)
    if "emq" in kinds:
        out += [
            table.longstr(b"sourceQueueName", queue),
            table.long_(b"deadTimestamp", letter.last_death_ms),
            table.long_(b"originalReceiveCount", attempts),
            table.longstr(b"DLQ.sourceQueue", queue),
        ]
        if letter.declared is not None and letter.declared.tag is not None:
            out.append(table.longstr(b"sourceTag", encoded(letter.declared.tag)))
        if message_id is not None:
            out.append(table.longstr(b"originalMessageID", encoded(message_id)))
    if "artemis" in kinds:
        address = letter.history[0].exchange if letter.history else ""
        out += [
            table.longstr(b"_AMQ_ORIG_ADDRESS", encoded(address or letter.failed_queue)),
            table.longstr(b"_AMQ_ORIG_QUEUE", queue),
        ]
        if message_id is not None:
            out.append(table.longstr(b"_AMQ_ORIG_MESSAGE_ID", encoded(message_id)))
    return out
