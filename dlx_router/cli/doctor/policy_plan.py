"""What `doctor` says of policies and broker together: what `plan` says is in the way, in the same words."""

import contextlib
from collections.abc import AsyncIterator
from typing import Final

from dlx_router.broker.address import Tls
from dlx_router.broker.administration import Administration, ManagementError
from dlx_router.cli.doctor.diagnosis import Diagnosis, Level
from dlx_router.config.environment.settings import Settings
from dlx_router.config.policy_files.loader import LoadedPolicies
from dlx_router.core.names import Names
from dlx_router.provisioning import ledger
from dlx_router.provisioning.plan import plan

FIX: Final = "as it says; `dlx-router plan` says whether it is done, docs/lint.md tells more of each code"


async def conflicts(settings: Settings, tls: Tls, vhost: str, loaded: LoadedPolicies) -> AsyncIterator[Diagnosis]:
    """Each conflict of the plan; nothing where the management API does not tell, which others say."""
    names, api = Names(settings.prefix), Administration(settings.management_credentials, tls)
    owned = frozenset[str]()
    try:
        snapshot = await api.snapshot(vhost)
        with contextlib.suppress(ManagementError):  # who may only look: ours are known by their names then
            owned = ledger.read(await api.parameter(ledger.parameter(names, vhost)))
    except ManagementError:
        return
    finally:
        await api.close()
    journal = settings.journal in {"best-effort", "required"}
    found = plan(
        loaded.policies,
        snapshot,
        names,
        owned,
        journal=journal,
        delayed=loaded.delayed,
        attachments=loaded.attachments,
    )
    for note in found.conflicts:
        yield Diagnosis("plan", Level.WARNING, f"{note.code}: {note.text}", FIX)
