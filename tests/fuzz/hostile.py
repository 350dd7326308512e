"""Strategies of what somebody writes who wants to break the router: header tables of every type, names, histories,
records, declared deaths; as bytes, by an encoder of the tests' own.
"""

import json
import struct
from decimal import Decimal
from typing import Any, Final

from hypothesis import strategies as st

from tests.wire.wire_samples import fields as any_fields

Field = tuple[bytes, str, Any]
OWN: Final = (
    *("inbox", "inbox.fifo", "declared", "release", "return", "parking", "quarantine", "retired", "state", "journal"),
    *("delay.100", "delay.1000", "delay.86400000"),
)
_BREAKS: Final = ("", "\r", "\n", "\r\n", "\x00", " ", "\u2028", "\u202e")

own_names = st.builds(
    lambda name, what, at: f"dlx-router.{name}"[:at] + what + f"dlx-router.{name}"[at:],
    st.sampled_from(OWN), st.sampled_from(_BREAKS), st.integers(0, 30),
)  # fmt: skip
names = (
    own_names
    | st.sampled_from(["", "fuzz.attached", "fuzz.work", "fuzz.secret", "DLQ.fuzz.work"])
    | st.sampled_from(["amq.direct", "amq.default", "x" * 255])
    | st.text(max_size=30)
    | st.binary(max_size=30).map(lambda raw: raw.decode(errors="surrogateescape"))
)  # fmt: skip


def raw(text: str) -> bytes:
    """As it stands on the wire; a short string takes 255 bytes."""
    return text.encode(errors="surrogateescape")[:255]


_FORMATS: Final = dict(zip("bBsuIilLTfd", ("b", "B", "h", "H", "i", "I", "q", "q", "Q", "f", "d"), strict=True))


def encoded(tag: str, value: Any) -> bytes:
    """A value with its type."""
    match tag:
        case "S" | "x":
            data = _counted(value.encode(errors="surrogateescape") if isinstance(value, str) else bytes(value))
        case "A":
            data = _counted(b"".join(encoded(*item) for item in value))
        case "F":
            data = _counted(table(value))
        case "V":
            data = b""
        case "t":
            data = bytes([bool(value)])
        case "D":
            _, digits, exponent = Decimal(value).as_tuple()
            data = struct.pack(">BI", -int(exponent) & 255, int("".join(map(str, digits))) & 0x7FFFFFFF)
        case _:
            data = struct.pack(f">{_FORMATS[tag]}", value)
    return tag.encode() + data


def _counted(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def table(rows: Any) -> bytes:
    """A table without its length; entries are (name, type, value)."""
    parts = []
    for name, tag, value in rows:
        short = raw(name) if isinstance(name, str) else name[:255]
        parts.append(bytes([len(short)]) + short + encoded(tag, value))
    return b"".join(parts)


strings = names.map(lambda name: ("S", name))
numbers = (
    st.sampled_from("bBsuIilLT").flatmap(lambda tag: st.tuples(st.just(tag), st.integers(0, 100)))
    | st.tuples(st.just("l"), st.integers(-(2**63), 2**63 - 1))
    | st.tuples(st.just("T"), st.integers(0, 2**63 - 1))
)
odd: st.SearchStrategy[tuple[str, Any]] = st.sampled_from(
    [
        ("V", None),
        ("t", True),
        ("d", float("nan")),
        ("f", float("inf")),
        ("S", "\r\n"),
        ("x", b"\xff\x00"),
        ("A", []),
        ("F", []),
    ]
)
reasons = st.sampled_from(["rejected", "expired", "maxlen", "delivery_limit", "application:x", "unknown", ""]).map(
    lambda reason: ("S", reason)
)
keys = st.lists(strings, max_size=4).map(lambda some: ("A", some))


def _entry(  # noqa: PLR0917 - an entry has so many fields
    queue: Any, reason: Any, count: Any, when: Any, exchange: Any, routing: Any, left: int
) -> tuple[str, Any]:
    whole = [
        ("count", *count), ("reason", *reason), ("queue", *queue), ("time", *when), ("exchange", *exchange),
        ("routing-keys", *routing), ("original-expiration", "S", "1000"),
    ]  # fmt: skip
    return ("F", [field for at, field in enumerate(whole) if left & 1 << at])


# Mostly whole, for what is refused at first sight shows nothing of what comes behind.
_parts = st.sampled_from([0b0111111] * 6 + [0b1111111, 0b0000111, 0b0111110, 0b0111011])
deaths = st.builds(
    _entry, strings | odd, reasons | odd, numbers | odd, numbers | odd, strings | odd, keys | odd, _parts
)
sound = st.builds(
    _entry, strings, reasons, st.just(("l", 1)), st.just(("T", 1_700_000_000)), strings, keys, st.just(0b0111111)
)
histories = (
    st.lists(sound, min_size=1, max_size=6).map(lambda some: ("A", some))
    | st.lists(deaths | odd, max_size=4).map(lambda some: ("A", some))
    | st.integers(1, 200).flatmap(lambda many: sound.map(lambda death: ("A", [death] * many)))
    | odd
)  # fmt: skip

_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | names,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=8,
)
_MEMBERS: Final = (
    *("v", "id", "state", "vhost", "failed_queue", "first", "attempts", "redrives", "tries", "reason", "cause"),
    *("policy", "revision", "due_ms", "first_death_ms", "last_death_ms", "deaths", "props", "error", "redrive_id"),
    *(
        "parent",
        "shadowed",
        "digest",
        "mac",
        "target",
        "serial",
        "since_ms",
        "declared",
        "cut",
        "trace",
        "wait_ms",
        "queue",
    ),
    *("exchange", "routing_keys", "description", "retry", "retry_after_ms", "tag", "kind", "event_id", "time_ms"),
)
_PLAIN: Final[dict[str, Any]] = {
    "v": 1, "id": "ab" * 16, "state": "retrying", "vhost": "/", "failed_queue": "fuzz.work", "attempts": 1,
    "redrives": 0, "tries": 0, "reason": "rejected", "policy": "p", "revision": "0" * 12, "first_death_ms": 1,
    "last_death_ms": 1, "deaths": [["fuzz.work", "rejected", 1, 1, "", ["fuzz.work"]]],
    "digest": {"crc32": 0, "size": 0}, "mac": "0" * 32,
}  # fmt: skip
_member = st.sampled_from(_MEMBERS)


def _varied(changes: dict[str, Any], gone: set[str]) -> str:
    whole = {**_PLAIN, **changes}
    return json.dumps(
        {name: value for name, value in whole.items() if name not in gone}, ensure_ascii=False, default=str
    )


documents = st.builds(_varied, st.dictionaries(_member, _json, max_size=5), st.sets(_member, max_size=3))
texts = (
    documents.map(lambda text: text.encode(errors="surrogatepass"))
    | _json.map(lambda document: json.dumps(document, default=str).encode(errors="surrogatepass"))
    | st.binary(max_size=60)
    | st.sampled_from([b"[" * 5000, b'{"v":1e999}', b"NaN", b'{"v":NaN}', b"9" * 5000, b'{"v":1,"v":2}', b"\xff{}"])
)  # fmt: skip
strange = texts.map(lambda data: ("S", data)) | texts.map(lambda data: ("x", data)) | odd

_known_headers = st.one_of(
    st.tuples(st.just("x-death"), histories),
    st.tuples(st.just("dlx-router"), strange),
    st.tuples(st.just("dlx-death"), strange),
    st.tuples(st.sampled_from(["dlx-router-id", "dlx-router-pub", "x-first-death-queue", "x-first-death-exchange",
                               "x-first-death-reason", "x-last-death-queue", "x-delivery-count", "x-acquired-count",
                               "x-stream-offset", "x-delay", "x-error-type", "x-exception-stacktrace", "traceparent",
                               "NServiceBus.ExceptionInfo.StackTrace", "MT-Fault-Message",
                               "timestamp_in_ms", "dlx-router-headers"]), strings | numbers | odd | strange),
    st.tuples(st.sampled_from(["CC", "BCC"]), keys | keys.map(lambda key: key)),
)  # fmt: skip
_foreign = any_fields.map(lambda rows: [(name, tag, value) for name, tag, value in rows])
headers = st.builds(
    lambda known, other: [*((name, *value) for name, value in known), *other],
    st.lists(_known_headers, max_size=5),
    _foreign | st.just([]),
)


def properties(rows: Any, message_id: bytes | None = None, expiration: bytes | None = None) -> bytes:
    """Flags and property list of a persistent message with these headers, as a content header has them."""
    data = table(rows)
    flags = 1 << 13 | 1 << 12
    parts = [struct.pack(">I", len(data)), data, b"\x02"]
    for bit, value in ((8, expiration), (7, message_id)):
        if value is not None:
            flags |= 1 << bit
            parts.append(bytes([len(value)]) + value)
    return struct.pack(">H", flags) + b"".join(parts)
