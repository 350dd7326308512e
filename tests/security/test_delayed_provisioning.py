"""`dlx-router permissions --for apply|destroy` where policies name delayed exchanges: each right is needed."""

from typing import Final

import pytest

from dlx_router.broker.address import Tls
from dlx_router.broker.management import Management, ManagementError
from dlx_router.config.policy_files.delayed_exchanges import Delayed
from dlx_router.config.rights.permissions import Grant, Setup
from dlx_router.config.rights.purpose import POLICYMAKER, Purpose
from dlx_router.core.names import Names
from dlx_router.core.policy import PolicySet, Source
from dlx_router.provisioning import apply_plan, removal
from dlx_router.provisioning.command_rights import needs_of
from tests.security.conftest import Admit, allow, rights_of
from tests.security.test_other_commands import as_user, uncounted
from tests.support.vhost import Vhost

pytestmark = pytest.mark.usefixtures("newest")
ENTRY: Final = Delayed("shop.delayed", "amq.topic", 0, None, Source("", "p.yaml", 3))


async def attempt(vhost: Vhost, user: str, purpose: Purpose, grant: Grant) -> str:
    """What a user with these rights is refused, "" where nothing is."""
    allow(vhost, user, *rights_of(grant))
    api = Management(lambda: as_user(vhost, user)["MANAGEMENT_URL"], Tls())
    names, none = Names(), PolicySet(())

    try:
        if purpose is Purpose.APPLY:
            changes = await apply_plan.planned(api, none, names, vhost.name, journal=True, delayed=[ENTRY])
            await apply_plan.apply(api, changes, names)
        else:
            remains = await removal.remaining(api, none, names, vhost.name, uncounted)
            await removal.close_inlets(api, remains, names)
            await removal.remove_exchanges(api, remains)
            await removal.remove_rest(api, remains, names)
    except ManagementError as error:
        return str(error)
    finally:
        await api.close()
    return ""


async def test_permissions_for_apply_and_destroy_name_what_delayed_exchanges_need(vhost: Vhost, admit: Admit) -> None:
    user = admit("^$", "^$", "^$", tags=POLICYMAKER)
    setup = Setup(Names(), journal=True)
    apply, destroy = (needs_of(purpose, setup, "/", [ENTRY]) for purpose in (Purpose.APPLY, Purpose.DESTROY))
    of_delayed = [need for need in apply.needs if "delayed" in need.names]
    assert len(of_delayed) == 5
    of_delayed.sort(key=lambda need: (need.right, need.names) != ("configure", r"shop\.delayed"))
    for need in of_delayed:  # as they are declared: each attempt comes up to its own
        assert "may not" in await attempt(vhost, user, Purpose.APPLY, apply.without(need)), f"{need} is not needed"
    assert await attempt(vhost, user, Purpose.APPLY, apply) == ""
    of_delayed = [need for need in destroy.needs if "delayed" in need.names]
    assert len(of_delayed) == 4
    unbinding = [need for need in of_delayed if "unbinds" in need.why]
    for need in [*unbinding, *(need for need in reversed(of_delayed) if need not in unbinding)]:
        assert "may not" in await attempt(vhost, user, Purpose.DESTROY, destroy.without(need)), f"{need} is not needed"
    assert await attempt(vhost, user, Purpose.DESTROY, destroy) == ""
