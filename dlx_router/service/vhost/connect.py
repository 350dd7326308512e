"""How the broker is reached, read from the settings each time, so that a renewed secret file is used."""

import asyncio
import re
import secrets
from collections.abc import Callable, Sequence
from typing import Final

from dlx_router.broker.address import Host, Login, Tls
from dlx_router.broker.management import Management, ManagementError
from dlx_router.broker.topology import Topology, TopologyError
from dlx_router.config.environment.settings import Settings, SettingsError

ANSWERS_S: Final = 5.0
_ORDINAL: Final = re.compile(r"-([0-9]{1,4})$")
Address = tuple[Sequence[Host], Login, Tls | None]  # the hosts as they are tried
Addresses = Callable[[str], Address]


def first_host(hostname: str) -> int:
    """With which of the nodes this router begins: replicas must not all be on one, which takes all with it.

    Pods of a stateful set are numbered, so they spread evenly; all others by chance.
    """
    numbered = _ORDINAL.search(hostname)
    return int(numbered[1]) if numbered is not None else secrets.randbelow(1 << 16)


def addresses(settings: Settings, first: int = 0) -> Addresses:
    """Reads the broker's address anew at each connect, so that a renewed secret file is used.

    `first`: the host in the URL that comes first; the others follow in their order, as in a ring.
    """

    def read(vhost: str) -> Address:
        address = settings.broker_address()
        tls = Tls(*settings.tls_files) if address.tls else None
        hosts = [Host(name, port) for name, port in address.hosts]
        start = first % len(hosts)
        return [*hosts[start:], *hosts[:start]], Login(address.user, address.password.get_secret_value(), vhost), tls

    return read


def management(settings: Settings) -> Management | None:
    """The client of the management API, where there is one; it reads its URL anew at each request."""

    def read() -> str:
        try:
            return settings.management_credentials()
        except SettingsError as error:  # a file may be gone for a moment while a secret is renewed
            raise ManagementError(str(error)) from None

    return Management(read, Tls(*settings.tls_files)) if settings.has_management() else None


async def reached(topology: Topology, host: Host, *, others: bool) -> None:
    """Connected. Where there are others to try, one that does not answer is not waited for long."""
    try:
        async with asyncio.timeout(ANSWERS_S if others else None):
            await topology.connect()
    except TimeoutError:
        where = f"{host.name}:{host.port}"
        raise TopologyError(f"{where} does not answer within {ANSWERS_S:g} s; the next in the URL is tried") from None
