"""Lines of format 1 → a message of format 2 that says the same, by docs/journal.md and not by the router's writer."""

import json
from collections.abc import Iterable
from typing import Any

from dlx_router.journal.packing import packed

OWN_PROPS = ("message_id", "correlation_id", "timestamp_s")
MORE = (
    "draw", "headers", "body_values", "redacted", "error", "body_sha256", "body", "parent", "since_ms", "lease",
    "serial", "possible_copy",
)  # fmt: skip
NEEDED = {"v", "id", "event_id", "kind", "ts_ms", "first_death_ms", "last_death_ms", "digest", "deaths", "body_mode"}


def rows_of(lines: Iterable[bytes]) -> bytes:
    """Events that can be rows are; all else stands there as it is, in its place."""
    text: list[bytes] = []
    shared: dict[str, int] = {}
    unread = 0
    for line in lines:
        event = _read(line)
        if event is None or not _fits(event):
            unread += event is None or "event_id" not in event  # takes a number
            text.append(line.rstrip(b"\n"))
            continue
        common, row = _parted(event)
        if common not in shared:
            shared[common] = len(shared) + unread
            text.append(common.encode())
        text.append(_encode([shared[common], *row]).encode())
    return packed(b"".join(line + b"\n" for line in text))


def _read(line: bytes) -> Any:
    try:
        document = json.loads(line)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


def _fits(event: dict[str, Any]) -> bool:
    whole = event.keys() >= NEEDED and event["event_id"].startswith(f"{event['id']}-")
    return whole and all(death.get("time_ms", 1) % 1000 == 0 for death in event["deaths"])


def _parted(event: dict[str, Any]) -> tuple[str, list[Any]]:
    """What others share, as its line; and the values of the row behind its number."""
    props, ts_ms = dict(event.get("props", {})), event["ts_ms"]
    own = {name: props.pop(name) for name in OWN_PROPS if name in props}
    more = {name: event[name] for name in MORE if name in event}
    more |= {} if event["body_mode"] == "none" else {"body_mode": event["body_mode"]}
    row_names = {*NEEDED - {"v", "kind"}, *MORE, "due_ms", "props"}
    common = {name: value for name, value in event.items() if name not in row_names}
    common["deaths"] = [{name: death[name] for name in death if name != "time_ms"} for death in event["deaths"]]
    common |= {"props": props} if props else {}
    times = [death["time_ms"] // 1000 for death in event["deaths"]]
    due = event["due_ms"] - ts_ms if "due_ms" in event else None
    first, last, digest = ts_ms - event["first_death_ms"], ts_ms - event["last_death_ms"], event["digest"]
    step = event["event_id"].removeprefix(f"{event['id']}-")
    row = [event["id"], step, ts_ms, due, first, last, digest["crc32"], digest["size"], times, own]
    return _encode(common | {"body_mode": "none"}), [*row, more] if more else row


_encode = json.JSONEncoder(separators=(",", ":")).encode
