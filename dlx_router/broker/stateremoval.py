"""What no router wrote is moved out of the state queue into quarantine: confirmed, then acked, never dropped."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from dlx_router.broker.statechannel import StateChannel
from dlx_router.wire import frames, properties, table
from dlx_router.wire.errors import WireError

AGAIN_S: Final = 1.0
MAX_HEADER_BYTES: Final = 120_000  # a frame holds 128 KiB; what has larger ones comes without them
_ROUTING: Final = frozenset({b"CC", b"BCC", b"dlx-router-pub", b"dlx-router-cause", b"x-delivery-count"})


@dataclass(frozen=True, slots=True)
class Moved:
    """Something that no router wrote, and that lies in quarantine now; with what the broker told of its way."""

    why: str
    exchange: str
    routing_key: str
    user: str  # as far as the publisher said it; the broker has verified it then
    body_bytes: int


class Removal:
    """`settle(tag)` is called when the copy was confirmed, `on_moved` then told."""

    def __init__(
        self,
        channel: StateChannel,
        quarantine: str,
        *,
        settle: Callable[[int], None],
        on_moved: Callable[[Moved], None],
    ) -> None:
        self._channel, self._quarantine = channel, quarantine.encode()
        self._settle, self._on_moved = settle, on_moved
        self._moving: dict[int, str] = {}  # by tag: why the quarantine did not take it, so far

    def lies_before(self, tag: int) -> bool:
        """Whether anything that came before this delivery is not settled."""
        return any(other < tag for other in self._moving)

    @property
    def hindrance(self) -> str:
        """What cannot be moved, and why; "" where all can."""
        refused = [why for why in self._moving.values() if why]
        if not refused:
            return ""
        return f"{len(refused)} messages that no router wrote lie in it, and the quarantine queue {refused[0]} them"

    def move(self, delivery: frames.Delivery, why: str) -> None:
        """Into quarantine as it came, as often as it takes."""
        if not self._channel.is_open:
            return  # the broker gives it to whoever comes next
        tag = delivery.tag
        self._moving.setdefault(tag, "")

        def heard(answer: str) -> None:
            if answer:
                self._moving[tag] = answer
                asyncio.get_running_loop().call_later(AGAIN_S, self.move, delivery, why)
                return
            del self._moving[tag]
            self._settle(tag)
            self._on_moved(_moved(delivery, why))

        self._channel.publish(heard, b"", self._quarantine, self._section(delivery, why), delivery.body)

    def _section(self, delivery: frames.Delivery, why: str) -> bytes:
        """Its properties and headers, less what would route it, end it or be refused."""
        stamp, user = self._channel.stamp(), self._channel.user
        try:
            props = properties.parse(delivery.header, properties.PROPERTIES_AT)
            entries = table.entries(props.headers)
        except (WireError, table.TableError):
            return properties.build(headers=stamp, delivery_mode=2)
        kept = table.splice(props.headers, entries, _ROUTING & entries.keys(), b"")
        cause = table.longstr(b"dlx-router-cause", f"state queue: {why}".encode())
        if len(kept) > MAX_HEADER_BYTES:
            kept = b""
        user_id = props.user_id if props.user_id == user else None
        return props.replaced(headers=kept + cause + stamp, delivery_mode=2, expiration=None, user_id=user_id)


def _moved(delivery: frames.Delivery, why: str) -> Moved:
    try:
        user = properties.parse(delivery.header, properties.PROPERTIES_AT).user_id or b""
    except WireError:
        user = b""
    exchange, key = (part.decode(errors="replace") for part in (delivery.exchange, delivery.routing_key))
    return Moved(why, exchange, key, user.decode(errors="replace"), len(delivery.body))
