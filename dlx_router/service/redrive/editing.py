"""Editing: a letter's pieces → the same with what a person changed. It keeps its id, its record and its deaths."""

from collections.abc import Mapping
from dataclasses import replace
from zlib import crc32

from dlx_router.redrive.letter_edits import Edit, Value
from dlx_router.service.inflight.decoder import Envelope
from dlx_router.wire import frames, properties, table


def edited(delivery: frames.Delivery, envelope: Envelope, edit: Edit) -> tuple[frames.Delivery, Envelope]:
    """The delivery with the new body, and the envelope that fits it; every byte that is not edited is as it came."""
    body = delivery.body if edit.body is None else edit.body
    props, found = envelope.props, envelope.found
    names = {_bytes(name) for name in edit.headers}
    headers = table.splice(props.headers, found, names & found.keys(), _entries(edit.headers))
    new = properties.parse(props.replaced(headers=headers), 0)
    content = replace(envelope.content, crc32=crc32(body), size=len(body))
    changed = envelope._replace(props=new, found=table.entries(new.headers), content=content)
    return delivery._replace(body=body), changed


def _entries(headers: Mapping[str, Value]) -> bytes:
    return b"".join(_entry(_bytes(name), value) for name, value in headers.items() if value is not None)


def _entry(name: bytes, value: Value) -> bytes:
    if isinstance(value, bool):
        return table.boolean(name, value)
    if isinstance(value, int):
        return table.long_(name, value)
    return table.longstr(name, _bytes(value or ""))


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape")
