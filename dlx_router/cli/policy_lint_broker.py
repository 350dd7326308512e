"""`dlx-router policy lint --broker`: the policies beside the broker that the settings name."""

import asyncio

from dlx_router.broker.management import ManagementError
from dlx_router.cli.permissions import management, vhosts_of
from dlx_router.config.environment.settings import Settings, SettingsError
from dlx_router.config.findings import Finding
from dlx_router.config.lint import selector_scope
from dlx_router.config.policy_files.loader import LoadedPolicies
from dlx_router.provisioning.broker_lint import Checks
from dlx_router.provisioning.plan import without_queues


def findings(loaded: LoadedPolicies) -> list[Finding]:
    """Return what the broker has against the policies. SettingsError, ManagementError."""
    settings = Settings.load({})
    if not settings.has_management():
        raise SettingsError("--broker needs DLX_ROUTER_MANAGEMENT_URL; write https://user:password@host:15671")
    return asyncio.run(_findings(settings, loaded))


async def _findings(settings: Settings, loaded: LoadedPolicies) -> list[Finding]:
    names, user = settings.names, settings.broker_address().user
    problems: list[Finding] = []
    unmatched: dict[str, list[str]] = {}  # policy → vhosts where its selector matches no queue
    vhosts = await vhosts_of(settings)
    async with management(settings) as api:
        for vhost in vhosts:
            snapshot = await api.snapshot(vhost)
            for policy in without_queues(loaded.policies, snapshot):
                unmatched.setdefault(policy.name, []).append(vhost)
            try:
                rights = await api.permissions(vhost, user) or {}
            except ManagementError:
                rights = None  # only an administrator may ask
            problems += Checks(loaded.policies, loaded.attachments, snapshot, names, rights).findings()
    return problems + [
        selector_scope.unmatched(policy, f"matches no queue now{selector_scope.exact_hint(policy.selector)}")
        for policy in loaded.policies.policies
        if unmatched.get(policy.name) in (vhosts, [policy.vhost])
    ]
