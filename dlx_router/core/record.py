"""The record: the header `dlx-router`, our own memory on the letter.

One longstr of compact JSON, because it survives streams and AMQP 1.0; signed, because release and rungs obey it; bound
to its content, because consumers copy headers onto new messages. See docs/architecture.md ("Headers").
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from hashlib import blake2b
from json.encoder import encode_basestring_ascii
from typing import Any, Final

from dlx_router.core.bounded import MIB, Remembered
from dlx_router.core.letter import HISTORIES, Death, Declared, First, History, Props
from dlx_router.core.value import value

VERSION: Final = 1
HEADER: Final = "dlx-router"
ID_HEADER: Final = "dlx-router-id"
TOWARDS_CONSUMERS_BYTES: Final = 1024
AT_REST_BYTES: Final = 8192
_MAC_BYTES: Final = 41
SERIAL: Final = '","serial":'
CRC32: Final = ',"digest":{"crc32":'
SIZE: Final = ',"size":'
END: Final = "}"
_EMPTY_ID: Final = '"message_id":""'
_ID: Final = '"id":"'
_SHARED_DEATHS: Final = 8  # longer histories are one letter's own and too large to be kept
_string = encode_basestring_ascii
_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=True).encode


class RecordError(ValueError):
    """The bytes are no record of ours: not JSON, another shape, another version, or another signature."""


@value(frozen=True, slots=True)
class Record:
    """What we know about a letter. Times in epoch milliseconds; `deaths` most recent first."""

    id: str
    state: str
    vhost: str
    failed_queue: str
    attempts: int
    redrives: int
    tries: int
    reason: str
    policy: str
    revision: str
    first_death_ms: int
    last_death_ms: int
    deaths: History
    crc32: int
    size: int
    first: First | None = None
    cause: str | None = None
    due_ms: int | None = None
    props: Props = Props()
    cc: tuple[str, ...] | None = None
    error: Mapping[str, Any] | None = None
    redrive_id: str | None = None
    parent: str | None = None
    shadowed: Mapping[str, str] | None = None
    target: str | None = None
    cut: bool = False
    since_ms: int | None = None  # first death since the last redrive, where that is not first_death_ms
    wait_ms: int | None = None  # what was left of its wait when it went into its rung
    declared: Declared | None = None
    serial: int | None = None
    refusals: int = 0  # of a letter that is held: how often it was sent and not confirmed
    more: Mapping[str, Any] | None = None  # members that a newer version wrote: carried, as long as there is room

    def is_about(self, *, crc32: int, size: int, message_id: str | None) -> bool:
        """Whether the record belongs to this content; a consumer may have copied the header onto another message."""
        return self.crc32 == crc32 and self.size == size and self.props.message_id == message_id


def encode(record: Record, key: bytes, limit: int) -> bytes:
    """The header's bytes, signed, at most `limit` long: the error goes first, then `more`, then the oldest deaths.

    The newest death and the first are kept longest.
    Where that is not enough, what the message tells as well goes too. Only names that are long by themselves pass it.
    """
    text = _document(record, record.deaths, record.error, cut=record.cut)
    if len(text) + _MAC_BYTES > limit:
        text = _cut(record, limit - _MAC_BYTES)
    return sign(text.encode(), key)


def sign(document: bytes, key: bytes) -> bytes:
    """The document with its `mac` as the last member."""
    head = document[:-1]
    digest = blake2b(head, digest_size=16, key=key).hexdigest()  # `mac`, which would be one more call for each letter
    return b'%s,"mac":"%s"}' % (head, digest.encode())


def signer(key: bytes) -> Callable[[], Any]:
    """What makes the digest that `mac` tells, for many documents."""
    return blake2b(digest_size=16, key=key).copy


def signer_of(begin: Callable[[], Any], start: bytes) -> Callable[[], Any]:
    """As `begin`, of documents that begin so: what makes their digest wants the rest of each."""
    digest = begin()
    digest.update(start)
    made: Callable[[], Any] = digest.copy
    return made


def mac(data: bytes, key: bytes) -> str:
    """What only who has the key can say of these bytes: keyed blake2b, 128 bits, in hex."""
    return blake2b(data, digest_size=16, key=key).hexdigest()


def _cut(record: Record, limit: int) -> str:
    text = _document(record, record.deaths, None, cut=True)
    if len(text) > limit and record.more:  # a death is counted by the next decision; what nobody here knows is not
        record = replace(record, more=None)
        text = _document(record, record.deaths, None, cut=True)
    deaths = list(record.deaths)
    excess = len(text) - limit
    while excess > 0 and len(deaths) > 1:
        gone = deaths.pop(_oldest_but_first(deaths, record.first))
        excess -= len(_encode(_entry(gone))) + 1
    if excess > 0:
        return _lean(record, deaths, limit)
    return _document(record, tuple(deaths), None, cut=True)


def _lean(record: Record, deaths: list[Death], limit: int) -> str:
    """One step poorer at a time: x-death and x-first-death-* tell the same, and the keys can be learnt again."""
    poorer = replace(record, shadowed=None if record.shadowed is None else {}, cc=None)
    text = _document(poorer, tuple(deaths), None, cut=True)
    for keys in (None, 1, 0):
        if len(text) <= limit:
            break
        kept = tuple(death._replace(routing_keys=death.routing_keys[:keys]) for death in deaths)
        text = _document(replace(poorer, first=None, shadowed=None), kept, None, cut=True)
    return text


def _oldest_but_first(deaths: list[Death], first: First | None) -> int:
    """The newest stays whatever happens, the place of the first failure as long as anything else can go."""
    for at in range(len(deaths) - 1, 0, -1):
        if first is None or (deaths[at].queue, deaths[at].reason) != (first.queue, first.reason):
            return at
    return len(deaths) - 1


def _document(record: Record, deaths: History, error: Mapping[str, Any] | None, *, cut: bool) -> str:
    """The document without its mac. Written in fragments, because letters of one queue share most of them."""
    rare = error or cut or record.redrive_id or record.since_ms or record.shadowed is not None
    rarer = record.declared is not None or record.refusals or record.more
    rest = _rest(record, error, cut=cut) if rare or rarer else ""
    parent = "" if record.parent is None else f'"parent":{_string(record.parent)},'
    return assembled(
        record.id,
        standing(record),
        told(deaths),
        due_ms=record.due_ms,
        wait_ms=record.wait_ms,
        first_ms=record.first_death_ms,
        last_ms=record.last_death_ms,
        props=_properties(record.props, record.cc),
        rest=parent + rest,
        crc32=record.crc32,
        size=record.size,
        serial=record.serial,
    )


def assembled(  # noqa: PLR0913 - the document's parts, written in one place for both ways
    letter_id: str,
    standing_part: str,
    deaths_part: str,
    *,
    due_ms: int | None,
    first_ms: int,
    last_ms: int,
    props: str,
    crc32: int,
    size: int,
    serial: int | None,
    rest: str = "",
    wait_ms: int | None = None,
) -> str:
    """The document without its mac, from the fragments that letters share, and behind them what is a letter's own.

    In that order, so that the digest over what many letters share is taken once (`signer`).
    """
    due = "" if due_ms is None else f'"due_ms":{due_ms},'
    if wait_ms is not None:
        due += f'"wait_ms":{wait_ms},'
    own_serial = '"' if serial is None else f"{SERIAL}{serial}"
    return (
        f'{{"v":{VERSION},{standing_part}{due}"first_death_ms":{first_ms},"last_death_ms":{last_ms},'
        f"{deaths_part}{rest}{props}{_ID}{_string(letter_id)[1:-1]}{own_serial}{CRC32}{crc32}{SIZE}{size}{END}}}"
    )


def run_of(  # noqa: PLR0913 - as `assembled`
    standing_part: str,
    deaths_part: str,
    *,
    due_ms: int | None,
    wait_ms: int | None,
    first_ms: int,
    last_ms: int,
    props: str,
    has_id: bool,
) -> tuple[bytes, str]:
    """What `assembled` writes for letters that differ in message id, id and content: before and behind the first.

    Behind that come the id, `SERIAL`, the serial, `CRC32`, the checksum, `SIZE`, the size, and `END`, as a document
    ends that is to be signed. `props`: of a letter whose message id, where they have one, is empty.
    """
    text = assembled(
        "",
        standing_part,
        deaths_part,
        due_ms=due_ms,
        wait_ms=wait_ms,
        first_ms=first_ms,
        last_ms=last_ms,
        props=props,
        crc32=0,
        size=0,
        serial=None,
    )
    text = text[: -len(f'"{CRC32}0{SIZE}0{END}}}')]
    if not has_id:
        return text.encode(), ""
    at = text.rindex(_EMPTY_ID) + len(_EMPTY_ID)
    return text[: at - 2].encode(), text[at:]


def standing(record: Record) -> str:
    """The fragment that letters of one queue, decision and policy share."""
    return _STANDINGS[
        record.state,
        record.vhost,
        record.failed_queue,
        record.first,
        record.attempts,
        record.redrives,
        record.tries,
        record.reason,
        record.cause,
        record.policy,
        record.revision,
        record.target,
    ]


def told(deaths: History) -> str:
    """The fragment of the deaths."""
    return _DEATHS[deaths] if len(deaths) <= _SHARED_DEATHS else _deaths(deaths)


def _standing(  # noqa: PLR0913, PLR0917 - the fields that letters of one queue share
    state: str,
    vhost: str,
    failed_queue: str,
    first: First | None,
    attempts: int,
    redrives: int,
    tries: int,
    reason: str,
    cause: str | None,
    policy: str,
    revision: str,
    target: str | None,
) -> str:
    document: dict[str, Any] = {"state": state, "vhost": vhost, "failed_queue": failed_queue}
    if first is not None:
        document["first"] = first._asdict()
    document |= {"attempts": attempts, "redrives": redrives, "tries": tries, "reason": reason}
    if cause is not None:
        document["cause"] = cause
    document |= {"policy": policy, "revision": revision}
    if target is not None:
        document["target"] = target
    return _members(document)


def _deaths(deaths: History) -> str:
    return _members({"deaths": [_entry(death) for death in deaths]})


def _mode(props: tuple[str | None, str | None, int | None, int | None], cc: tuple[str, ...] | None) -> str:
    members = dict(zip(("user_id", "expiration", "priority", "delivery_mode"), props, strict=True)) | {"cc": cc}
    return _members({name: value for name, value in members.items() if value is not None})


def _properties(props: Props, cc: tuple[str, ...] | None) -> str:
    shared = _MODES[(props.user_id, props.expiration, props.priority, props.delivery_mode), cc]
    return _with_id(shared, props.message_id)


def _with_id(shared: str, message_id: str | None) -> str:
    if message_id is not None:
        shared += f'"message_id":{_string(message_id)},'
    return f'"props":{{{shared[:-1]}}},' if shared else ""


def properties_of(
    message_id: str | None, user_id: bytes | None, expiration: bytes | None, priority: int | None, mode: int | None
) -> str:
    """The fragment of a letter's own properties, from its bytes."""
    return _with_id(_RAW_MODES[user_id, expiration, priority, mode], message_id)


def _raw_mode(user_id: bytes | None, expiration: bytes | None, priority: int | None, mode: int | None) -> str:
    user, expires = (None if raw is None else raw.decode(errors="surrogateescape") for raw in (user_id, expiration))
    return _MODES[(user, expires, priority, mode), None]


def _rest(record: Record, error: Mapping[str, Any] | None, *, cut: bool) -> str:
    members: dict[str, Any] = {
        "refusals": record.refusals or None,
        "error": error,
        "redrive_id": record.redrive_id,
        "shadowed": record.shadowed,
        "cut": cut or None,
    }
    members["since_ms"] = record.since_ms or None
    members["declared"] = None if record.declared is None else _asked(record.declared)
    known = {name: value for name, value in members.items() if value is not None}
    return _members({**known, **(record.more or {})})


def _asked(declared: Declared) -> dict[str, Any]:
    """A wait that was asked for is in due_ms."""
    members: dict[str, Any] = {"never": True} if declared.never else {}
    return members if declared.tag is None else {**members, "tag": declared.tag}


def _members(document: dict[str, Any]) -> str:
    """The members with a comma behind each, to be put together in one object."""
    return _encode(document)[1:-1] + "," if document else ""


def _entry(death: Death) -> tuple[Any, ...]:
    entry = (death.queue, death.reason, death.times, death.time_s, death.exchange, death.routing_keys)
    return entry if death.original_expiration is None else (*entry, death.original_expiration)


_STANDINGS: Final = Remembered[tuple[Any, ...], str](lambda key: _standing(*key), most=4096, most_bytes=4 * MIB)
_DEATHS: Final = Remembered(_deaths, most=HISTORIES, most_bytes=4 * MIB)
_MODES: Final = Remembered[tuple[Any, tuple[str, ...] | None], str](lambda key: _mode(*key), most=256, most_bytes=MIB)
_RAW_MODES: Final = Remembered[tuple[bytes | None, bytes | None, int | None, int | None], str](
    lambda key: _raw_mode(*key), most=256, most_bytes=MIB
)
