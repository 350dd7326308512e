"""`dlx-router permissions`: the least rights for a command's user, and who else has such rights.

Nothing is changed. No running router is needed, and no broker: who else has rights is asked of the management API,
where there is one.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import unquote, urlsplit

from dlx_router.broker.address import Tls
from dlx_router.broker.management import Management, ManagementError
from dlx_router.cli import output
from dlx_router.config.environment.settings import Settings, SettingsError
from dlx_router.config.policy_files.attachments import Attachment
from dlx_router.config.policy_files.delayed_exchanges import Delayed
from dlx_router.config.policy_files.loader import LoadedPolicies, PolicyErrors, load_policies
from dlx_router.config.rights.permissions import DEFAULT_EXCHANGE, Grant, Right, Setup, needed
from dlx_router.config.rights.purpose import Purpose
from dlx_router.core.policy import SelectorKind
from dlx_router.provisioning.command_rights import needs_of

ORDER: Final = (Right.CONFIGURE, Right.WRITE, Right.READ)
REPLACES: Final = "RabbitMQ replaces the rights that a user has in a vhost: give the router a user of its own."
MONITORING: Final = "monitoring"
EVERY_QUEUE: Final = frozenset({"#", ".*", ""})


def run(given: Mapping[str, str], user: str | None, purpose_name: str = Purpose.RUN, *, as_json: bool) -> int:
    """Print the rights; 1 where the policies have errors, 2 where settings, files or a broker cannot be used."""
    try:
        settings = Settings.load(given)
        loaded = load_policies(settings.policies, settings.names)
        vhosts = asyncio.run(_vhosts(settings))
        loaded.require_served(vhosts)
    except PolicyErrors as error:
        return output.refuse(error)
    except (SettingsError, ManagementError) as error:
        return output.wrong_use(error)
    purpose = Purpose(purpose_name)
    name = user or _user(settings, purpose)
    grants = grants_of(settings, loaded, vhosts, purpose)
    tag = purpose.tag or (MONITORING if settings.has_management() else "")
    output.warn(REPLACES)
    if as_json:
        output.as_json(definitions(grants, name))
        if purpose.tag:
            output.warn(f"user {name} needs the tag {purpose.tag} too")
        return output.OK
    _print(grants, name, tag, purpose)
    if purpose is Purpose.RUN:
        _wide(loaded)
        asyncio.run(_strangers(settings, loaded, vhosts, name))
    return output.OK


def grants_of(
    settings: Settings, loaded: LoadedPolicies, vhosts: Sequence[str], purpose: Purpose = Purpose.RUN
) -> list[Grant]:
    """What the user needs in each vhost."""
    setup = Setup(
        settings.names,
        declare=settings.declare == "auto",
        key_file=settings.provenance_key_file is not None,
        index=settings.index_path is not None,
        journal=settings.journal in {"best-effort", "required"},
    )
    if purpose is not Purpose.RUN:
        return [needs_of(purpose, setup, vhost, loaded.delayed) for vhost in vhosts]
    wanted: tuple[Attachment | Delayed, ...] = (*loaded.attachments, *loaded.delayed)
    attached = {vhost: [entry for entry in wanted if entry.vhost in {None, vhost}] for vhost in vhosts}
    return [needed(loaded.policies, (), setup, vhost, attached[vhost]) for vhost in vhosts]


def definitions(grants: Sequence[Grant], user: str) -> dict[str, list[dict[str, str]]]:
    """A definitions file; `rabbitmqctl import_definitions` reads it. The user has to be there."""
    return {
        "permissions": [
            {"user": user, "vhost": grant.vhost, **{right.value: grant.regex(right) for right in ORDER}}
            for grant in grants
        ]
    }


def _user(settings: Settings, purpose: Purpose) -> str:
    """Whose rights are meant where nobody is named: who provisions is known to the management API."""
    if purpose.tag and settings.has_management():
        return unquote(urlsplit(settings.management_credentials()).username or "guest")
    return settings.broker_address().user


def _print(grants: Sequence[Grant], user: str, tag: str, purpose: Purpose) -> None:
    if tag:
        output.say(f"User {user} needs the tag {tag}, to ask the management API.")
    if purpose is Purpose.DESTROY:
        output.say("The same user in AMQP_URL tells how full queues are; --drain runs a router: --for run too.")
    for grant in grants:
        output.say(f"\nUser {user} in vhost {grant.vhost}:")
        for right in ORDER:
            output.say(f"{right.value} {grant.regex(right)}")
    order = [*Right]
    for grant in grants:
        output.say(f"\nWhat for, in vhost {grant.vhost}:")
        needs = sorted(grant.needs, key=lambda need: order.index(need.right))
        if not needs:
            output.say("no right on any queue or exchange, only access to the vhost")
            continue
        output.table(("right", "names", "why"), [(need.right.value, need.names, need.why) for need in needs])
    if any(need.names == DEFAULT_EXCHANGE for grant in grants for need in grant.needs):
        output.say(f"\n{DEFAULT_EXCHANGE} is the default exchange: by it a user reaches every queue of the vhost.")


def _wide(loaded: LoadedPolicies) -> None:
    """Who selects every queue has the router bind every queue."""
    for policy in loaded.policies.policies:
        if policy.selector.kind is not SelectorKind.QUEUE and policy.selector.text in EVERY_QUEUE:
            output.warn(
                f"policy {policy.name} ({policy.source}) selects every queue, so the router needs write on every queue"
                "; select fewer to grant less",
            )


async def _vhosts(settings: Settings) -> list[str]:
    vhosts = settings.vhost_list()
    if vhosts != ["*"]:
        return vhosts
    rights = _rights(settings)
    try:
        return await rights.vhosts()
    finally:
        await rights.close()


async def _strangers(settings: Settings, loaded: LoadedPolicies, vhosts: Sequence[str], user: str) -> None:
    """Say who else has rights that only the router needs. Others can read this, so it is no finding."""
    if not settings.has_management():
        output.warn("Who else has such rights is not known: no MANAGEMENT_URL.")
        return
    rights, names = _rights(settings), settings.names
    try:
        by_vhost = [await rights.strangers(vhost, names, user, loaded.believed(vhost)) for vhost in vhosts]
        strangers = [stranger for group in by_vhost for stranger in group]
    except ManagementError as error:
        output.warn(f"Who else has such rights is not known (it takes an administrator to ask): {error}")
        return
    finally:
        await rights.close()
    heading = "Nobody but the router needs these rights:" if strangers else "Nobody else has rights that only it needs."
    output.say("", heading)
    for stranger in strangers:
        output.say(f"- {stranger}")


def _rights(settings: Settings) -> Management:
    return Management(settings.management_credentials(), Tls(*settings.tls_files))
