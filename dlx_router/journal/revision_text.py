"""What a revision of the policies is, packed for an event of the journal, and read again. Pure."""

import base64
import json
import zlib
from collections.abc import Mapping
from typing import Any, Final

MOST_PACKED: Final = 96_000  # characters: an audit's details have to fit into an event
MOST_BYTES: Final = 8 << 20  # unpacked: whoever reads may be sent anything
_encode: Final = json.JSONEncoder(separators=(",", ":"), sort_keys=True).encode


def packed(document: Mapping[str, Any]) -> str | None:
    """As text; None where it is too large for an event."""
    data = _encode(document).encode()
    text = base64.b64encode(zlib.compress(data, 9)).decode()
    return text if len(text) <= MOST_PACKED and len(data) <= MOST_BYTES else None


def unpacked(data: bytes | None) -> dict[str, Any] | None:
    """The document behind what `packed` wrote, its base64 taken off; None where it is none that can be read."""
    if data is None:
        return None
    try:
        reader = zlib.decompressobj()
        text = reader.decompress(data, MOST_BYTES)
        document = json.loads(text) if reader.eof else None
    except (zlib.error, ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None
