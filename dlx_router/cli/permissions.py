"""`dlx-router permissions`: the least rights for a command's user, ready to paste, and who else has such rights.

Nothing is changed. No running router is needed, and no broker: what the user has already and who else has rights is
asked of the management API, where there is one.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import unquote, urlsplit

from dlx_router.broker.address import Tls
from dlx_router.broker.every_vhost import every_vhost
from dlx_router.broker.management import ManagementError
from dlx_router.broker.rights import Rights
from dlx_router.cli import output, permission_script
from dlx_router.cli.permission_script import User
from dlx_router.config.environment.settings import Settings, SettingsError
from dlx_router.config.policy_files.attachments import Attachment
from dlx_router.config.policy_files.delayed_exchanges import Delayed
from dlx_router.config.policy_files.loader import LoadedPolicies, PolicyErrors, load_policies
from dlx_router.config.rights.merge import MONITORING, ORDER
from dlx_router.config.rights.permissions import DEFAULT_EXCHANGE, Grant, Right, Setup, needed
from dlx_router.config.rights.purpose import Purpose
from dlx_router.core.policy import SelectorKind
from dlx_router.provisioning.command_rights import needs_of

EVERY_QUEUE: Final = frozenset({"#", ".*", ""})


def run(given: Mapping[str, str], user: str | None, purpose_name: str = Purpose.RUN, *, as_json: bool) -> int:
    """Print the recipe; 1 where the policies have errors, 2 where settings, files or a broker cannot be used."""
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
    users = asyncio.run(_users(settings, name))
    if as_json:
        output.as_json(definitions(grants, users[0]))
        _warn(permission_script.written(users[0], grants, purpose.tag).warnings)
        if purpose.tag:
            output.warn(f"user {name} needs the tag {purpose.tag} too")
        return output.OK
    _print(grants, users, settings, purpose)
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


def definitions(grants: Sequence[Grant], user: User) -> dict[str, list[dict[str, str]]]:
    """A definitions file; `rabbitmqctl import_definitions` reads it. The user has to be there."""
    rights = [right.value for right in ORDER]
    return {
        "permissions": [
            {
                "user": user.name,
                "vhost": grant.vhost,
                **dict(zip(rights, permission_script.expressions(user, grant), strict=True)),
            }
            for grant in grants
        ]
    }


def _user(settings: Settings, purpose: Purpose) -> str:
    """Whose rights are meant where nobody is named: who provisions is known to the management API."""
    return _asks(settings) if purpose.tag and settings.has_management() else settings.broker_address().user


def _asks(settings: Settings) -> str:
    return unquote(urlsplit(settings.management_credentials()).username or "guest")


async def _users(settings: Settings, name: str) -> tuple[User, User | None]:
    """The user that is meant, and the one that asks the management API, where that is another."""
    if not settings.has_management():
        return await permission_script.known(None, name, ""), None
    rights, asks = _rights(settings), _asks(settings)
    try:
        user = await permission_script.known(rights, name, asks)
        return user, await permission_script.known(rights, asks, asks) if asks != name else None
    finally:
        await rights.close()


def _print(grants: Sequence[Grant], users: tuple[User, User | None], settings: Settings, purpose: Purpose) -> None:
    user, other = users
    reads = not purpose.tag and settings.has_management()
    tag = MONITORING if reads and other is None else purpose.tag
    recipes = [
        permission_script.written(user, grants, tag),
        *([permission_script.reading(other, grants)] if other and reads else []),
    ]
    for recipe in recipes:
        _warn(recipe.warnings)
        output.say(*recipe.lines)
    if purpose is Purpose.DESTROY:
        output.say("# the same user in AMQP_URL, which tells how full queues are; --drain runs a router: --for run too")
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


def _warn(warnings: Sequence[str]) -> None:
    for warning in warnings:
        output.warn(warning)


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
        return await every_vhost(rights)
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


def _rights(settings: Settings) -> Rights:
    return Rights(settings.management_credentials(), Tls(*settings.tls_files))
