"""Whether another node of the URL answers what ours does not. See docs/decisions/0061.

Two nodes that both run may not hear each other for up to 75 s, until the broker calls that connection dead. A node then
answers its clients, but not about queues that the other one leads; a third node reaches both.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from dlx_router.broker.address import Host, Login, Tls
from dlx_router.broker.control import HEARTBEAT_S, TopologyError
from dlx_router.broker.topology import Topology
from dlx_router.config.environment.settings import SettingsError
from dlx_router.core.names import Names
from dlx_router.service.vhost.attempts import Attempts
from dlx_router.service.vhost.connect import Addresses

ANSWERS_S: Final = 4.0  # a connection, and what lies in the queues


class OtherNodes:
    """Of one vhost."""

    def __init__(self, vhost: str, addresses: Addresses, names: Names, attempts: Attempts) -> None:
        self._vhost, self._addresses, self._names, self._attempts = vhost, addresses, names, attempts

    async def answering(self, queues: Sequence[str]) -> str:
        """A node that says what lies in all of these queues: the next session begins there. "": none of them does."""
        try:
            hosts, login, tls = self._addresses(self._vhost)
        except SettingsError:  # a file may be gone for a moment while a secret is renewed
            return ""
        ours = self._attempts.host(hosts)
        others = [host for host in hosts if host != ours]
        answers = await asyncio.gather(*(self._answers(host, login, tls, queues) for host in others))
        for host, does in zip(others, answers, strict=True):
            if does:
                self._attempts.next_is(host, hosts)
                return f"{host.name}:{host.port}"
        return ""

    async def _answers(self, host: Host, login: Login, tls: Tls | None, queues: Sequence[str]) -> bool:
        topology = Topology(host, login, tls, self._names, declare=False, heartbeat_s=HEARTBEAT_S)
        try:
            async with asyncio.timeout(ANSWERS_S):
                await topology.connect()
                await topology.censuses(queues)
        except (TimeoutError, TopologyError, OSError):  # a certificate's file may be gone as well
            return False
        finally:
            await topology.close()
        return True
