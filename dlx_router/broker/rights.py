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
    async def strangers(self, vhost: str, names: Names, user: str, believed: Iterable[str] = ()) -> list[Stranger]:
        """Everybody but `user` with a right on what only the router needs. Raises ManagementError.

        `believed`: the exchanges by which attachments say that the broker brings dead letters.
        """
        exchanges = sorted({*believed})
        permissions = await self._get(f"vhosts/{quote(vhost, safe='')}/permissions")
        others = [permission for permission in permissions if permission["user"] != user]
        strangers = [
            Stranger(vhost, permission["user"], (*_powers(permission, names), *_deaths(permission, exchanges)))
            for permission in others
        ]
        return sorted((stranger for stranger in strangers if stranger.can), key=lambda stranger: stranger.user)


def _powers(permission: Mapping[str, Any], names: Names) -> Iterator[str]:
    exchanges = [names.inbox, names.fifo, names.release]
    if may(permission["write"], DEFAULT_EXCHANGE):
        yield f"publish to any queue by its name, {names.state} too (write on {DEFAULT_EXCHANGE})"
    if writable := [name for name in exchanges if may(permission["write"], name)]:
        yield f"publish to {', '.join(writable)}"
    if any(may(permission["write"], names.delay(rung)) for rung in RUNGS):
        yield f"publish to {names.prefix}.delay.*"
    if may(permission["read"], names.state):
        yield f"read the key that signs records (read on {names.state})"
    own = [*exchanges, names.declared, names.return_, names.parking, names.quarantine, names.state]
    own += map(names.delay, RUNGS)
    if any(may(permission["configure"], name) for name in own):
        yield f"delete what the router owns (configure on {names.prefix}.*)"


def _deaths(permission: Mapping[str, Any], exchanges: Iterable[str]) -> Iterator[str]:
    """What comes by these exchanges is believed to have died where its x-death says."""
    if writable := [name for name in exchanges if may(permission["write"], name or DEFAULT_EXCHANGE)]:
        shown = ", ".join(name or DEFAULT_EXCHANGE for name in writable)
        yield f"say by x-death where a letter failed (write on {shown}, named by dead-letter-exchanges)"


def may(expression: str, name: str) -> bool:
    """As the broker: unanchored, and the empty one fits nothing. What only the broker understands is taken to fit."""
    try:
        return re.search(expression or "^$", name) is not None
    except re.error:
        return True
