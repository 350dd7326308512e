"""A letter that is leased: its delivery, read, on the channel that holds it; and what tells it from all others."""

from dataclasses import dataclass
from hashlib import blake2b

from dlx_router.broker.holder import Holder
from dlx_router.core.letter import Letter
from dlx_router.core.record import HEADER
from dlx_router.service.inflight.decoder import Envelope
from dlx_router.service.inflight.in_force import InForce
from dlx_router.service.inflight.job import Job
from dlx_router.wire import table

_RECORD = HEADER.encode()
_COUNTS = (b"x-acquired-count", b"x-delivery-count")


@dataclass(slots=True, eq=False)
class HeldLetter:
    """`holder` is the channel; the body is kept, because what is sent back is sent from here."""

    holder: Holder
    queue: str
    job: Job
    since_s: float  # by the monotonic clock
    epoch: int  # of the connection that holds it
    turn: int = 0  # of the channel: the consumer that it came to

    @property
    def letter(self) -> Letter:
        """It was read before it was leased."""
        assert self.job.letter is not None
        return self.job.letter

    @property
    def envelope(self) -> Envelope:
        """As `letter`."""
        assert self.job.envelope is not None
        return self.job.envelope


def held_letter(
    holder: Holder, letter: Letter, envelope: Envelope, in_force: InForce, *, since_s: float, epoch: int
) -> HeldLetter:
    """As it was read."""
    job = Job(holder, envelope.delivery, 0.0, in_force)
    job.letter, job.envelope, job.policy = letter, envelope, in_force.resolve(letter)
    return HeldLetter(holder, holder.queue, job, since_s, epoch, holder.turn)


def key_of(letter: Letter, envelope: Envelope) -> str:
    """Of this letter in this queue: id, content, and the record with its times; only a twin of it shares that."""
    headers, at = envelope.props.headers, envelope.found.get(_RECORD)
    record = headers[at[1] : at[2]] if at is not None else b""
    text = f"{letter.source}\0{letter.id}\0{envelope.content.crc32}\0{envelope.content.size}\0"
    return blake2b(text.encode(errors="surrogateescape") + record, digest_size=16).hexdigest()


def delivered_before(envelope: Envelope) -> int:
    """How often the broker says that it was delivered before; 0 where it does not count."""
    headers, counts = envelope.props.headers, [0]
    for name in _COUNTS:
        if (at := envelope.found.get(name)) is not None:
            value = table.decode_value(headers, at[1])
            counts.append(value if isinstance(value, int) else 0)
    return max(counts)


def failed_before(envelope: Envelope) -> int:
    """The count by which a quorum queue ends letters."""
    at = envelope.found.get(_COUNTS[1])
    value = 0 if at is None else table.decode_value(envelope.props.headers, at[1])
    return value if isinstance(value, int) else 0
