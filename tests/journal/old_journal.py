"""The journal of a router of version 0.1.0 (commit 203533f), as a program recorded it at that version."""

import gzip
import json
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).parent / "old"
FILE = FOLDER / "journal-0.1.0.ndjson.gz"


class Old(NamedTuple):
    """What was done, and the messages of the stream as they lay there."""

    key: bytes
    vhost: str
    stream: str
    states: dict[str, dict[str, int]]
    deaths: dict[str, int]
    messages: list[tuple[dict[str, Any], bytes]]  # headers, body


@cache
def old() -> Old:
    """Read once."""
    head, *messages = [json.loads(line) for line in gzip.decompress(FILE.read_bytes()).splitlines()]
    assert all(message["encoding"] is None for message in messages), "format 1 has none"
    expected = head["expected"]
    bodies = [(message["headers"], message["body"].encode()) for message in messages]
    key = bytes.fromhex(head["key"])
    return Old(key, head["vhost"], head["stream"], expected["states"], expected["deaths"], bodies)


def events() -> list[dict[str, Any]]:
    """All that it tells, by the standard library alone."""
    return [json.loads(line) for _, body in old().messages for line in body.splitlines()]
