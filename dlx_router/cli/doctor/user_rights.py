"""What `doctor` says of the rights of the router's user, where somebody who may know it can be asked."""

import re
from collections.abc import AsyncIterator
from typing import Final

from dlx_router.broker.address import Tls
from dlx_router.broker.administration import Administration, ManagementError
from dlx_router.cli.doctor.diagnosis import Diagnosis, Level
from dlx_router.cli.permissions import grants_of
from dlx_router.config.environment.settings import Settings
from dlx_router.config.policy_files.loader import LoadedPolicies
from dlx_router.core.policy import PolicySet
from dlx_router.broker.rights import may

SHOWN: Final = 4
FIX: Final = "`dlx-router permissions` prints the rights that it needs"


async def lacking(settings: Settings, tls: Tls, vhost: str, loaded: LoadedPolicies | None) -> AsyncIterator[Diagnosis]:
    """The rights that the user of AMQP_URL lacks; nothing where the management user is no administrator.

    Rights on names that policies leave open are not looked at: the broker's expression may be another and fit as well.
    """
    user = settings.broker_address().user
    api = Administration(settings.management_credentials, tls)
    try:
        has = await api.permissions(vhost, user)
    except ManagementError:
        return
    finally:
        await api.close()
    (grant,) = grants_of(settings, loaded or LoadedPolicies(PolicySet(())), [vhost])
    named = [(need.right.value, _name(need.names)) for need in grant.needs if not need.looks]
    lacks = [f"{right} {name}" for right, name in named if name and not may((has or {}).get(right, ""), name)]
    if lacks:
        more = f" and {len(lacks) - SHOWN} more" if len(lacks) > SHOWN else ""
        said = f"user {user!r} lacks rights in vhost {vhost!r}: {', '.join(lacks[:SHOWN])}{more}"
        yield Diagnosis("rights", Level.ERROR, said, FIX)


def _name(expression: str) -> str:
    """The one name that an escaped expression fits; empty where it fits several."""
    plain = re.sub(r"\\(.)", "", expression)
    return "" if re.search(r"[.^$*+?{}\[\]|()]", plain) else re.sub(r"\\(.)", r"\1", expression)
