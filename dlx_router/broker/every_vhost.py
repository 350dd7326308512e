"""All vhosts, where VHOSTS=* says so: as the management API names them, for the router and for commands alike."""

from typing import Final

from dlx_router.broker.management import Management, ManagementError

_NONE: Final = (
    "the management API names no vhost at all: its user sees those that it may enter, and with the tag monitoring all; "
    "a node that starts may name none for a moment. Give the user a tag or rights, or name the vhosts in VHOSTS"
)


async def every_vhost(api: Management) -> list[str]:
    """The names of all vhosts that the API's user may see, sorted, and at least one.

    ManagementError where there is none: a router that serves nothing, and a command that looks at nothing, would say
    that all is well.
    """
    if not (vhosts := await api.vhosts()):
        raise ManagementError(_NONE)
    return vhosts
