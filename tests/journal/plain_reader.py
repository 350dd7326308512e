"""A reader of the journal as docs/journal.md describes it: it shares no code with the package."""

import hashlib
import json
from pathlib import Path
from typing import Any

import zstandard

DICTIONARY = Path(__file__).parents[2] / "docs/journal-dictionary-40001.zstd"
ROW = ("shared", "id", "step", "ts_ms", "due", "first", "last", "crc32", "size", "times", "props", "more")


def events(content_encoding: str | None, body: bytes) -> list[Any]:
    """The events of one message."""
    if content_encoding == "zstd":
        words = zstandard.ZstdCompressionDict(DICTIONARY.read_bytes())
        body = zstandard.ZstdDecompressor(dict_data=words).decompress(body)
    found: list[Any] = []
    shared: list[dict[str, Any]] = []
    for line in body.splitlines():
        told = json.loads(line)
        if isinstance(told, list):
            found.append(event(shared[told[0]], dict(zip(ROW, told, strict=False))))
        elif "event_id" in told:
            found.append(told)
        else:
            shared.append(told)
    return found


def event(shared: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    """Of a row and of what it shares."""
    told = shared | {name: row[name] for name in ("id", "ts_ms")}
    told["event_id"] = f"{row['id']}-{row['step']}"
    told["deaths"] = [one | {"time_ms": s * 1000} for one, s in zip(shared["deaths"], row["times"], strict=True)]
    told["first_death_ms"], told["last_death_ms"] = row["ts_ms"] - row["first"], row["ts_ms"] - row["last"]
    told["digest"] = {"crc32": row["crc32"], "size": row["size"]}
    if row["due"] is not None:
        told["due_ms"] = row["ts_ms"] + row["due"]
    if props := shared.get("props", {}) | row["props"]:
        told["props"] = props
    return {**told, **row.get("more", {})}


def digest() -> str:
    """Of the dictionary, as docs/journal.md has it."""
    return hashlib.sha256(DICTIONARY.read_bytes()).hexdigest()
