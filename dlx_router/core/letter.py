"""The letter: one message that failed, as an immutable value.

Raw bytes stay raw: the letter keeps the header table as it came, so that every type and byte we do not own survives.
"""

from collections.abc import Callable, Mapping
from enum import StrEnum
from hashlib import blake2b, sha256
from struct import Struct
from typing import Any, Final, NamedTuple

from dlx_router.core.value import value

PLAIN_BODY_BYTES: Final = 4096  # a longer body is hashed by SHA-256 first: twice as fast where the processor has it
FIRST_SERIAL: Final = 1 << 40  # smaller serials count equal letters that one import found
SERIALS_OF_A_CHANNEL: Final = 1 << 32
_lengths: Final = Struct(">7Q").pack


class Arrival(StrEnum):
    """Which way a letter came to us; it tells how its history is read."""

    INBOX = "inbox"  # a native death: the delivery's exchange is a DLX of ours, or the queue is an attached one
    RELEASE = "release"  # a wait is over
    RETIRED = "retired"  # it left a dead-letter queue by retention


class Death(NamedTuple):
    """One entry of x-death: `times` (on the wire: count) deaths of (queue, reason), the first at `time_s` (epoch)."""

    queue: str
    reason: str
    times: int
    time_s: int
    exchange: str
    routing_keys: tuple[str, ...]
    original_expiration: str | None = None

    @property
    def key(self) -> tuple[str, str]:
        """What RabbitMQ counts by."""
        return (self.queue, self.reason)


History = tuple[Death, ...]
HISTORIES: Final = 1024
"""So many histories a cache keeps: letters that died in one second share one, and later nobody asks for it."""


class First(NamedTuple):
    """Where and why a letter failed first."""

    queue: str
    exchange: str
    routing_keys: tuple[str, ...]
    reason: str


class Declared(NamedTuple):
    """What a consumer that declared a death asks for besides: no retry at all, or a wait (ms); `tag` for aliases."""

    never: bool = False
    retry_after_ms: int | None = None
    tag: str | None = None


class Props(NamedTuple):
    """The properties that we may have to take off a copy and put back on the way home; None means not set."""

    message_id: str | None = None
    user_id: str | None = None
    expiration: str | None = None
    priority: int | None = None
    delivery_mode: int | None = None


@value(frozen=True, slots=True)
class Letter:
    """What a decision may look at: the delivery with its whole history, and what we once wrote on it."""

    id: str
    vhost: str
    source: str
    arrival: Arrival
    exchange: str
    routing_key: str
    history: History
    first: First | None
    failed_queue: str
    reason: str
    fresh: History  # deaths since our last publication, with their counts since then
    base_attempts: int
    redrives: int
    tries: int
    state: str | None = None
    cause: str | None = None
    due_ms: int = 0
    first_death_ms: int = 0
    last_death_ms: int = 0
    parent: str | None = None
    error: Mapping[str, Any] | None = None
    shadowed: dict[str, str] | None = None
    header: Callable[[str], str | None] = lambda _name: None  # a scalar header as text, looked up only when asked for
    known_before: bool = False  # was dead, and died again at a queue that its record already names
    rejected_since: bool = False  # … and something was rejected since that queue's earlier death
    declared: Declared | None = None  # the newest death was declared by a consumer
    since_ms: int = 0  # of the first death since the last redrive; 0: first_death_ms
    body: Callable[[str], Any] = lambda _pointer: None  # a place of a JSON body, looked up only when asked for
    content_type: str = ""
    size: int = 0  # of the body, in bytes
    more: Mapping[str, Any] | None = None  # of the record, and unknown to this version
    serial: int | None = None  # tells it from messages that are equal byte for byte; None: of an older router
    possible_copy: bool = False  # the serial is new, but an earlier session may have handled this very message
    refusals: int = 0  # how often it was sent since its newest death, and not confirmed


def letter_id(  # noqa: PLR0913, PLR0917 - the seven inputs are the identity that the docs list
    vhost: str, failed_queue: str, exchange: bytes, routing_key: bytes, properties: bytes, headers: bytes, body: bytes
) -> str:
    """blake2b-128 in hex over what a letter is; equal for a redelivery after a crash.

    See docs/architecture.md ("Headers"). Each part is prefixed with its length, so that no two lists of parts share a
    digest by concatenation.
    """
    where = vhost.encode(errors="surrogateescape"), failed_queue.encode(errors="surrogateescape")
    return letter_id_of(*where, exchange, routing_key, properties, headers, body)


def letter_id_of(  # noqa: PLR0913, PLR0917 - as letter_id
    vhost: bytes, queue: bytes, exchange: bytes, key: bytes, properties: bytes, headers: bytes, body: bytes
) -> str:
    """As `letter_id`, of names that are bytes already. `LetterIds` says the same of many."""
    size = len(body)
    start = _lengths(len(vhost), len(queue), len(exchange), len(key), len(properties), len(headers), size)
    if size > PLAIN_BODY_BYTES:
        body = sha256(body).digest()
    return blake2b(
        b"".join((start, vhost, queue, exchange, key, properties, headers, body)), digest_size=16
    ).hexdigest()


class LetterIds:
    """`letter_id_of` letters that have names, `properties` up to their last part, and lengths in common.

    `begin()` is the digest of one whose body is as long as `size`, begun; it wants the rest of the properties, the
    headers and the body (its SHA-256 above `PLAIN_BODY_BYTES`). `of_size` is to be called for any other.
    """

    def __init__(self, names: tuple[bytes, bytes, bytes, bytes], properties: bytes, rest: int, headers: int) -> None:
        """`names`: vhost, queue, exchange, key; `rest`, `headers`: how long the letter's own parts are."""
        self._lengths = *map(len, names), len(properties) + rest, headers
        self._names = b"".join((*names, properties))
        self.size, self.begin = -1, blake2b(digest_size=16).copy

    def of_size(self, size: int) -> Callable[[], Any]:
        """From now on `begin` is for bodies of this length."""
        begun = blake2b(_lengths(*self._lengths, size) + self._names, digest_size=16)
        self.size, self.begin = size, begun.copy
        return self.begin
