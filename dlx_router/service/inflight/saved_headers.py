"""Saved headers: what a delayed message brings under names of ours or the broker's comes out again as it went in.

A message may be published to a delayed exchange with deaths, CC keys or a record of its own; the end of a rung would
write over them (docs/architecture.md, "What the broker does"). So their bytes travel in one header of their own, and
are put back at the end.
"""

from typing import Final

from dlx_router.core import delaying
from dlx_router.service.inflight.decoder import DELIVERY_HEADERS, Envelope
from dlx_router.wire import table

HEADER: Final = b"dlx-router-aside"
_DELAY: Final = delaying.HEADER.encode()
_BROKERS: Final = frozenset(
    {
        b"x-death",
        b"x-first-death-queue",
        b"x-first-death-exchange",
        b"x-first-death-reason",
        b"x-last-death-queue",
        b"x-last-death-exchange",
        b"x-last-death-reason",
    }
)
_KEPT: Final = _BROKERS | {b"CC", b"BCC", b"dlx-router", b"dlx-router-id", HEADER}
_STALE: Final = DELIVERY_HEADERS | {b"dlx-router-pub"}


def asked_ms(envelope: Envelope) -> int | None:
    """The wait that the message asks for; None where it asks for none."""
    at = envelope.found.get(_DELAY)
    if at is None:
        return None
    headers = envelope.props.headers
    tag = chr(headers[at[1]])
    return None if tag in "FA" else delaying.asked_ms(tag, table.decode_value(headers, at[1]))


def is_sound(envelope: Envelope) -> bool:
    """Whether what was put aside can be put back: else the broker would end the connection of who tries."""
    try:
        table.entries(_put_back(envelope))
    except table.TableError:
        return False
    return True


def waiting(envelope: Envelope, entries: bytes, *, over: bool) -> bytes:
    """The header table of a copy that rests; `entries` are ours. `over`: the wait is behind it."""
    headers, spans = envelope.props.headers, envelope.found
    remove, added = {*_STALE, *_KEPT}, entries
    if envelope.record is not None:  # ours since an earlier rung
        remove.discard(HEADER)
    elif kept := b"".join(_entries(envelope, _KEPT)):
        added = table.longstr(HEADER, kept) + entries
    if over:
        added = _obeyed(envelope, remove) + added
    return table.splice(headers, spans, remove & spans.keys(), added)


def onward(envelope: Envelope, stamp: bytes) -> bytes:
    """The header table of the copy that goes on: as it was published, but that the wait was obeyed."""
    headers, spans = envelope.props.headers, envelope.found
    remove = {*_STALE} if envelope.record is None else {*_STALE, *_KEPT}
    added = _obeyed(envelope, remove)
    return table.splice(headers, spans, remove & spans.keys(), _put_back(envelope) + added + stamp)


def _obeyed(envelope: Envelope, remove: set[bytes]) -> bytes:
    after = delaying.obeyed(asked_ms(envelope))
    if after is None:
        return b""
    remove.add(_DELAY)
    return table.encode([(delaying.HEADER, *after)])


def _put_back(envelope: Envelope) -> bytes:
    at = envelope.found.get(HEADER)
    if envelope.record is None or at is None:
        return b""
    return envelope.props.headers[at[1] + 5 : at[2]]


def _entries(envelope: Envelope, names: frozenset[bytes]) -> list[bytes]:
    """Their bytes; of a name that comes twice, both."""
    headers, spans = envelope.props.headers, envelope.found
    extents = [spans[name] for name in names & spans.keys()]
    if isinstance(spans, table.Entries):
        extents += [extent for name, extent in spans.twins if name in names]
    return [headers[start:stop] for start, _, stop in sorted(extents)]
