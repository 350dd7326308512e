"""What the broker lets in by another road and refuses from a 0-9-1 publisher, put under a name that it lets pass.

A property CC or BCC of AMQP 1.0 that is no list arrives as a header that closes the channel of who publishes it again,
and with it all that is in flight there; the number in x-stream-filter-value ends the connection where a stream is the
target (4.x). Such an entry gets the prefix `dlx-router-` and keeps type and value; so does a reply-to that asks the
broker to answer to a consumer whom we do not have. Tried on 3.10.8, 4.0.5 and 4.3.6: every other header passes.
"""

from typing import Final

from dlx_router.wire import properties, table

PREFIX: Final = b"dlx-router-"
DIRECT_REPLY: Final = b"amq.rabbitmq.reply-to"
_FILTER: Final = b"x-stream-filter-value"
_TAGS: Final = {b"CC": ord("A"), b"BCC": ord("A"), _FILTER: ord("S")}
NAMES: Final = frozenset(_TAGS)
Read = tuple[properties.Properties, dict[bytes, table.Span]]


def admissible(props: properties.Properties, entries: dict[bytes, table.Span]) -> Read:
    """The properties as the broker takes them from us, and where their headers are; as they came where nothing is odd.

    Raises TableError or WireError as reading does.
    """
    direct = props.reply_to == DIRECT_REPLY
    if not direct and NAMES.isdisjoint(entries):
        return props, entries
    spans = [(name, at) for name, at in _all(entries) if name in NAMES and props.headers[at[1]] != _TAGS[name]]
    if not spans and not direct:
        return props, entries
    odd = {name for name, _ in spans}
    added = b"".join(_renamed(props.headers, name, at) for name, at in _all(entries) if name in odd)
    if direct:
        added += table.longstr(PREFIX + b"reply-to", DIRECT_REPLY)
    headers = table.splice(props.headers, entries, odd, added)
    changed = properties.parse(props.without("reply_to" if direct else "", headers=headers), 0)
    return changed, table.entries(changed.headers)


def _all(entries: dict[bytes, table.Span]) -> list[tuple[bytes, table.Span]]:
    """Entries and their twins: the broker may look at another one than we do."""
    return [*entries.items(), *(entries.twins if isinstance(entries, table.Entries) else ())]


def _renamed(headers: bytes, name: bytes, at: table.Span) -> bytes:
    _, value, stop = at
    return bytes((len(PREFIX) + len(name),)) + PREFIX + name + headers[value:stop]
