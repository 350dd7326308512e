"""Reading the record back: signature first, then the shape."""

import json
from collections.abc import Mapping
from hmac import compare_digest
from typing import Any, Final

from dlx_router.core.letter import Death, Declared, First, Props
from dlx_router.core.record import VERSION, Record, RecordError, mac

_MAC: Final = b',"mac":"'
_KNOWN: Final = frozenset((
    "v", "id", "state", "vhost", "failed_queue", "first", "attempts", "redrives", "tries", "reason", "cause", "policy",
    "revision", "target", "due_ms", "first_death_ms", "last_death_ms", "deaths", "props", "error", "redrive_id",
    "parent", "shadowed", "cut", "since_ms", "wait_ms", "declared", "serial", "refusals", "digest", "mac",
))  # fmt: skip


def decode(data: bytes, key: bytes) -> Record:
    """The record, or RecordError where the signature or the shape is not ours. Accepts v ± 1.

    Members of a document that this version does not know are kept in `more`, and written again by `encode`.
    """
    head, separator, tail = data.rpartition(_MAC)
    expected = mac(head, key).encode() + b'"}'
    if not separator or not compare_digest(tail, expected):
        raise RecordError("the signature is not ours")
    try:
        return _record(json.loads(head + b"}"))
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        raise RecordError(f"signed, but not readable: {error!r}") from error


def _record(document: dict[str, Any]) -> Record:
    if abs(document["v"] - VERSION) > 1:
        raise RecordError(f"version {document['v']} is not readable by version {VERSION}")
    first, props, digest = document.get("first"), document.get("props", {}), document["digest"]
    cc = props.pop("cc", None)
    return Record(
        id=document["id"],
        state=document["state"],
        vhost=document["vhost"],
        failed_queue=document["failed_queue"],
        attempts=document["attempts"],
        redrives=document["redrives"],
        tries=document["tries"],
        reason=document["reason"],
        policy=document["policy"],
        revision=document["revision"],
        first_death_ms=document["first_death_ms"],
        last_death_ms=document["last_death_ms"],
        deaths=tuple(_death(entry) for entry in document["deaths"]),
        crc32=digest["crc32"],
        size=digest["size"],
        first=None
        if first is None
        else First(first["queue"], first["exchange"], tuple(first["routing_keys"]), first.get("reason", "")),
        cause=document.get("cause"),
        due_ms=document.get("due_ms"),
        props=Props(**{name: props.get(name) for name in Props._fields}),
        cc=None if cc is None else tuple(cc),
        error=document.get("error"),
        redrive_id=document.get("redrive_id"),
        parent=document.get("parent"),
        shadowed=document.get("shadowed"),
        target=document.get("target"),
        cut=document.get("cut", False),
        since_ms=document.get("since_ms"),
        wait_ms=document.get("wait_ms"),
        declared=None if (declared := document.get("declared")) is None else _declared(declared),
        serial=document.get("serial"),
        refusals=document.get("refusals", 0),
        more=None if _KNOWN.issuperset(document) else {name: document[name] for name in document.keys() - _KNOWN},
    )


def _declared(members: Mapping[str, Any]) -> Declared:
    return Declared(never=members.get("never", False), tag=members.get("tag"))


def _death(entry: list[Any]) -> Death:
    queue, reason, count, time_s, exchange, keys, *expiration = entry
    return Death(queue, reason, count, time_s, exchange, tuple(keys), expiration[0] if expiration else None)
