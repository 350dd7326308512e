"""Parts of an event, encoded: some members of the line each, a comma behind, cached where letters share them."""

import json
from json.encoder import encode_basestring_ascii
from typing import Any, Final, NamedTuple

from dlx_router.core.bounded import MIB, Remembered
from dlx_router.core.letter import HISTORIES, Death, First, History
from dlx_router.wire.properties import Properties

string = encode_basestring_ascii
encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode


class Deaths(NamedTuple):
    """Members that tell of deaths: `told` all of it; `common` without their times, which are `times` (seconds)."""

    told: str
    common: str
    times: str


def deaths(history: History, fresh: History, first: First | None) -> Deaths:
    """The deaths; which of them are new, and which was the first, only where it is not the plain thing."""
    document: dict[str, Any] = {}
    document["deaths"] = [
        death(entry) | ({} if entry.original_expiration is None else {"original_expiration": entry.original_expiration})
        for entry in history
    ]
    new = [{"queue": entry.queue, "reason": entry.reason, "count": entry.times} for entry in fresh]
    if new != [{name: entry[name] for name in ("queue", "reason", "count")} for entry in document["deaths"]]:
        document["fresh"] = new
    if first != oldest(history):
        document["first"] = None if first is None else first._asdict()
    timeless = [{name: entry[name] for name in entry if name != "time_ms"} for entry in document["deaths"]]
    times = encode([entry.time_s for entry in history])
    return Deaths(members(document), members(document | {"deaths": timeless}), times)


DEATHS: Final = Remembered[tuple[History, History, First | None], Deaths](
    lambda key: deaths(*key), most=HISTORIES, most_bytes=4 * MIB
)


def death(entry: Death) -> dict[str, Any]:
    """What is told of every death."""
    return {
        "queue": entry.queue,
        "reason": entry.reason,
        "count": entry.times,
        "time_ms": entry.time_s * 1000,
        "exchange": entry.exchange,
        "routing_keys": entry.routing_keys,
    }


def oldest(history: History) -> First | None:
    """Where a letter failed first, as far as the order of its deaths tells it."""
    if not history:
        return None
    last = history[-1]
    return First(last.queue, last.exchange, last.routing_keys, last.reason)


def members(document: dict[str, Any]) -> str:
    """The members of an object, with a comma behind each; "" for none. Raises ValueError on a number JSON lacks."""
    return f"{encode(document)[1:-1]}," if document else ""


def properties(props: Properties) -> tuple[str, str]:
    """Members of `props`: those that are a letter's own, and those that letters of one producer share (cached).

    No comma behind them; "" where none is set.
    """
    rest = _PROPERTIES[
        props.content_type,
        props.content_encoding,
        props.type,
        props.app_id,
        props.reply_to,
        props.user_id,
        props.expiration,
        props.priority,
        props.delivery_mode,
    ]
    own = ""
    if props.message_id is not None:
        own = f',"message_id":{string(str(props.message_id, "utf-8", "surrogateescape"))}'
    if props.correlation_id is not None:
        own = f'{own},"correlation_id":{string(str(props.correlation_id, "utf-8", "surrogateescape"))}'
    if props.timestamp is not None:
        own = f'{own},"timestamp_s":{props.timestamp}'
    return own[1:], rest


_NAMES: Final = (
    "content_type",
    "content_encoding",
    "type",
    "app_id",
    "reply_to",
    "user_id",
    "expiration",
    "priority",
    "delivery_mode",
)


def _properties(values: tuple[bytes | int | None, ...]) -> str:
    """The members without a comma behind."""
    props = {
        name: value.decode(errors="surrogateescape") if isinstance(value, bytes) else value
        for name, value in zip(_NAMES, values, strict=True)
        if value is not None
    }
    return members(props)[:-1]


_PROPERTIES: Final = Remembered(_properties, most=4096, most_bytes=4 * MIB)
