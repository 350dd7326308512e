"""Who may do what in a vhost, as the management API tells an administrator; nothing is changed.

A record is signed, so whoever can write to our queues can add letters but tell no lies about others; whoever can read
the state queue has the key that signs. Source: rabbitmq.com/docs/access-control.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from dlx_router.broker.management import Management
from dlx_router.broker.management_words import shaped
from dlx_router.core.names import RUNGS, Names

DEFAULT_EXCHANGE: Final = "amq.default"


@dataclass(frozen=True, slots=True)
class Stranger:
    """A user who is not the router, and what it could do that nobody but the router needs."""

    vhost: str
    user: str
    can: tuple[str, ...]

    def __str__(self) -> str:
        return f"user {self.user} in vhost {self.vhost} can {'; '.join(self.can)}"


class Rights(Management):
    """Asks the management API who may do what."""

    @shaped
    async def strangers(self, vhost: str, names: Names, user: str) -> list[Stranger]:
        """Everybody but `user` with a right on what only the router needs. Raises ManagementError."""
        said = await self._get(f"vhosts/{quote(vhost, safe='')}/permissions")
        others = [one for one in said if one["user"] != user]
        found = [Stranger(vhost, one["user"], tuple(_powers(one, names))) for one in others]
        return sorted((one for one in found if one.can), key=lambda one: one.user)


def _powers(one: Mapping[str, Any], names: Names) -> Iterator[str]:
    exchanges = [names.inbox, f"{names.inbox}.fifo", names.release]
    if _any(one["write"], [DEFAULT_EXCHANGE]):
        yield f"publish to any queue by its name, {names.state} too (write on {DEFAULT_EXCHANGE})"
    if writable := [name for name in exchanges if _any(one["write"], [name])]:
        yield f"publish to {', '.join(writable)}"
    if _any(one["write"], map(names.delay, RUNGS)):
        yield f"publish to {names.prefix}.delay.*"
    if _any(one["read"], [names.state]):
        yield f"read the key that signs records (read on {names.state})"
    own = [
        *exchanges,
        names.declared,
        names.return_,
        names.parking,
        names.quarantine,
        names.state,
        *map(names.delay, RUNGS),
    ]
    if _any(one["configure"], own):
        yield f"delete what the router owns (configure on {names.prefix}.*)"


def _any(expression: str, names: Iterable[str]) -> bool:
    """As the broker: unanchored, and the empty one fits nothing. What only the broker understands is taken to fit."""
    try:
        found = re.compile(expression or "^$")
    except re.error:
        return True
    return any(found.search(name) for name in names)
