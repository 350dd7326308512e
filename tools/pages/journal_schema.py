"""docs/journal.schema.json, from the table of fields: `python -m tools.pages.journal_schema` (`make pages`)."""

import json
from pathlib import Path
from typing import Any, Final

from dlx_router.core.breaker import Breaker
from dlx_router.core.leases import Ended
from dlx_router.core.letter import Arrival
from dlx_router.journal.fields import FIELDS, KINDS, ROW, Field

FILE: Final = Path(__file__).parents[2] / "docs" / "journal.schema.json"
Schema = dict[str, Any]
_INT: Final[Schema] = {"type": "integer"}
_TEXT: Final[Schema] = {"type": "string"}
_BOOL: Final[Schema] = {"type": "boolean"}
_COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
_OCTET: Final[Schema] = {"type": "integer", "minimum": 0, "maximum": 255}
_CRC32: Final[Schema] = {"type": "integer", "minimum": 0, "maximum": (1 << 32) - 1}
_TEXTS: Final[Schema] = {"type": "array", "items": _TEXT}
_PLAIN: Final = {"int": _INT, "string": _TEXT, "bool": _BOOL}
_COMMON: Final = ("v", "event_id", "kind", "router_id", "vhost", "ts_ms")  # of what tells of no letter, too
_SHARED: Final = ("v", "kind", "router_id", "vhost", "deaths", "body_mode")


def _object(needed: str = "", /, **members: Schema) -> Schema:
    return {"type": "object", "properties": members, **({"required": needed.split()} if needed else {})}


_DEATH: Final = _object(
    "queue reason count exchange routing_keys",
    queue=_TEXT,
    reason=_TEXT,
    count=_INT,
    time_ms=_INT,
    exchange=_TEXT,
    routing_keys=_TEXTS,
    original_expiration=_TEXT,
)
_TEXT_PROPS: Final = (
    "message_id", "correlation_id", "content_type", "content_encoding", "type", "app_id", "reply_to", "user_id",
    "expiration",
)  # fmt: skip
_PROPS: Final = _object(priority=_OCTET, delivery_mode=_OCTET, timestamp_s=_INT, **dict.fromkeys(_TEXT_PROPS, _TEXT))
_OWN: Final[dict[str, Schema]] = {
    "kind": {"enum": [*KINDS]},
    "arrival": {"enum": [arrival.value for arrival in Arrival]},
    "breaker": {"enum": [breaker.value for breaker in Breaker]},
    "target": _object("exchange routing_key", exchange=_TEXT, routing_key=_TEXT),
    "deaths": {"type": "array", "items": {"$ref": "#/$defs/death"}},
    "fresh": {"type": "array", "items": _object("queue reason count", queue=_TEXT, reason=_TEXT, count=_INT)},
    "first": _object(
        "queue exchange routing_keys reason", queue=_TEXT, exchange=_TEXT, routing_keys=_TEXTS, reason=_TEXT
    )
    | {"type": ["object", "null"]},
    "draw": {"type": "number", "minimum": -1, "maximum": 1},
    "props": {"$ref": "#/$defs/props"},
    "digest": _object("crc32 size", crc32=_CRC32, size=_COUNT),
    "headers": {"type": "object", "additionalProperties": _TEXT},
    "body_values": {"type": "object", "additionalProperties": _TEXT},
    "redacted": _TEXTS,
    "declared": _object(never=_BOOL, retry_after_ms=_INT, tag=_TEXT),
    "error": _object(type=_TEXT, message=_TEXT, frame=_TEXT),
    "body_mode": {"enum": ["none", "hash", "head", "inline"]},
    "body": {"type": "string", "contentEncoding": "base64"},
    "lease": _object("id by receives", id=_TEXT, by=_TEXT, receives=_COUNT, ended={"enum": [*Ended]}, key=_TEXT),
    "details": {"type": "object"},
}
_OF_ROW: Final[dict[str, Schema]] = {
    "shared": _COUNT,
    "due": {"type": ["integer", "null"]},
    "crc32": _CRC32,
    "size": _COUNT,
    "times": {"type": "array", "items": _INT},
    "props": {"$ref": "#/$defs/props"},
    "more": {"$ref": "#/$defs/members"},
}


def schema() -> Schema:
    """Of a line: an event, what rows share, or a row."""
    always = [field.name for field in FIELDS if not field.when]
    row = [{"description": f"{field.name}: {field.meaning}", **_of_row(field)} for field in ROW]
    event: Schema = {
        "description": "A whole event: each line of format 1, some of format 2, and what a row of format 2 is read as.",
        "$ref": "#/$defs/members",
        "required": [*_COMMON],
        **_if("gap", "events from_ms to_ms", _if("audit", "actor action details", {"required": always})),
    }
    shared: Schema = {
        "description": "Format 2: members that the rows behind it have in common; of deaths without their times.",
        "$ref": "#/$defs/members",
        "required": [*_SHARED],
        "not": {"required": ["event_id"]},
    }
    whole = {"description": "Format 2: an event, as a list of values.", "type": "array", "minItems": len(ROW) - 1}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A line of a message of dlx-router's journal, unpacked",
        "description": "docs/journal.md tells the formats. Members that are not named here may come: ignore them.",
        "anyOf": [{"$ref": f"#/$defs/{name}"} for name in ("event", "shared", "row")],
        "$defs": {
            "event": event,
            "shared": shared,
            "row": whole | {"prefixItems": row, "items": False},
            "members": {"type": "object", "properties": {field.name: _member(field) for field in FIELDS}},
            "death": _DEATH,
            "props": _PROPS,
        },
    }


def _if(kind: str, needed: str, otherwise: Schema) -> Schema:
    """Of this kind these are needed."""
    return {"if": {"properties": {"kind": {"const": kind}}}, "then": {"required": needed.split()}, "else": otherwise}


def _member(field: Field) -> Schema:
    when = f" There when: {field.when}." if field.when else ""
    return {"description": f"{field.meaning}.{when}", **(_OWN.get(field.name) or _PLAIN[field.type])}


def _of_row(field: Field) -> Schema:
    return _OF_ROW.get(field.name) or _PLAIN[field.type]


def text() -> str:
    """The file."""
    return f"{json.dumps(schema(), indent=1, ensure_ascii=False)}\n"


if __name__ == "__main__":
    FILE.write_text(text(), encoding="utf-8")
