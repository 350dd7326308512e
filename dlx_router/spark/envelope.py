"""What of a message's header says how its body is to be read. No Spark in here."""

import json
from typing import Any, Final, NamedTuple

from dlx_router.core.signature import HEADER
from dlx_router.journal.fields import MEDIA_TYPE
from dlx_router.wire import properties, table

_MAC: Final = HEADER.encode()
_VERSION: Final = b"v"
_PLAIN: Final = str | bytes | bool | int | float | None


class Envelope(NamedTuple):
    """Whether it says to be a journal's, who says to have signed it, and its format; None: it does not say."""

    is_journal: bool
    mac: bytes | None
    version: int | None


def envelope(header: bytes) -> Envelope:
    """Of a header as `wire.events` has it. Of a header that comes twice the first counts that has the right type."""
    parsed = properties.parse(header, properties.PROPERTIES_AT)
    entries = table.entries(parsed.headers)
    mac = version = None
    for name, (_, at, _) in [*entries.items(), *(entries.twins if isinstance(entries, table.Entries) else ())]:
        if name == _MAC and mac is None:
            mac = value if isinstance(value := table.decode_value(parsed.headers, at), bytes) else None
        elif name == _VERSION and version is None:
            version = value if (value := table.decode_value(parsed.headers, at)).__class__ is int else None
    return Envelope(parsed.content_type == MEDIA_TYPE, mac, version)


def described(header: bytes) -> tuple[str | None, list[tuple[str, str]], bytes | None, int | None]:
    """Content type, the headers whose value is plain, but for the broker's own, who says to have signed it, format."""
    parsed = properties.parse(header, properties.PROPERTIES_AT)
    kind = None if parsed.content_type is None else parsed.content_type.decode(errors="replace")
    headers: dict[str, str] = {}
    mac = version = None
    for name, _, value in table.decode(parsed.headers):
        if isinstance(value, _PLAIN) and not name.startswith("x-stream-"):
            key = name.encode(errors="surrogateescape").decode(errors="replace")
            headers.setdefault(key, json.dumps(_text(value), allow_nan=True))
            mac = value if name == HEADER and mac is None and isinstance(value, bytes) else mac
            version = value if name == "v" and version is None and value.__class__ is int else version
    return kind, list(headers.items()), mac, version


def _text(value: Any) -> Any:  # noqa: ANN401 - a header's value
    return value.decode(errors="replace") if isinstance(value, bytes) else value
