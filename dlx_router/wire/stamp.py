"""The publish number that each publication carries, and that a return brings back."""

from dlx_router.wire import table
from dlx_router.wire.properties import PROPERTIES_AT, parse


def find_pub(header: bytes) -> int | None:
    """The publish number that we stamped on a publication, from its header frame's payload; None when there is none.

    The broker may have sorted the headers, so the table is walked. Raises WireError or TableError.
    """
    headers = parse(header, PROPERTIES_AT).headers
    span = table.entries(headers).get(table.PUB)
    if span is None or headers[span[1]] != table.LONG_TAG:
        return None
    number = table.decode_value(headers, span[1])
    return number if isinstance(number, int) else None
