"""`dlx-router permissions`: the least rights for a command's user, and who else has such rights.

Nothing is changed. No running router is needed, and no broker: who else has rights is asked of the management API,
where there is one.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import unquote, urlsplit

import typer

from dlx_router.broker.address import Tls
from dlx_router.broker.management import Management, ManagementError
from dlx_router.cli import output
from dlx_router.cli.options import Policies
from dlx_router.config.environment.settings import Settings
from dlx_router.config.policy_files.attachments import Attachment
from dlx_router.config.policy_files.delayed_exchanges import Delayed
from dlx_router.config.policy_files.loader import LoadedPolicies, load_policies
from dlx_router.config.rights.permissions import DEFAULT_EXCHANGE, Grant, Right, Setup, needed
from dlx_router.config.rights.purpose import Purpose
from dlx_router.core.policy import SelectorKind
from dlx_router.provisioning.command_rights import needs_of

ORDER: Final = (Right.CONFIGURE, Right.WRITE, Right.READ)
REPLACES: Final = "RabbitMQ replaces the rights that a user has in a vhost: give the router a user of its own."
EVERY_QUEUE: Final = frozenset({"#", ".*", ""})


class Format(StrEnum):
    """How rights are printed."""

    TEXT = "text"
    JSON = "json"


def permissions(
    *,
    policies: Policies = Path("policies"),
    user: Annotated[
        str | None,
        typer.Option(help="The user; without it that of AMQP_URL; for plan, apply, destroy of MANAGEMENT_URL."),
    ] = None,
    purpose: Annotated[
        Purpose, typer.Option("--for", help="What the user is to do; observe is run --observe.")
    ] = Purpose.RUN,
    form: Annotated[Format, typer.Option("--format", help="text: for people; json: a definitions file.")] = Format.TEXT,
) -> None:
    """Show the least rights that the user of a command needs, as the settings and policies ask for them."""
    settings = Settings.load({"policies": str(policies)})
    loaded = load_policies(settings.policies, settings.names)
    vhosts = asyncio.run(vhosts_of(settings))
    loaded.require_served(vhosts)
    if user is None and purpose.tag and settings.has_management():  # who provisions is known to the management API
        user = unquote(urlsplit(settings.management_credentials()).username or "guest")
    user = user or settings.broker_address().user
    grants = grants_of(settings, loaded, vhosts, purpose)
    output.warn(REPLACES)
    if form is Format.JSON:
        output.as_json(_definitions(grants, user))
        if purpose.tag:
            output.warn(f"user {user} needs the tag {purpose.tag} too")
        return
    if tag := purpose.tag or ("monitoring" if settings.has_management() else ""):
        output.say(f"User {user} needs the tag {tag}, to ask the management API.")
    if purpose is Purpose.DESTROY:
        output.say("The same user in AMQP_URL tells how full queues are.")
    _print(grants, user)
    if purpose is Purpose.RUN:
        _warn_of_selectors(loaded)
        asyncio.run(_print_strangers(settings, loaded, vhosts, user))


def grants_of(
    settings: Settings, loaded: LoadedPolicies, vhosts: Sequence[str], purpose: Purpose = Purpose.RUN
) -> list[Grant]:
    """Return what the user needs in each vhost."""
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


def _definitions(grants: Sequence[Grant], user: str) -> dict[str, list[dict[str, str]]]:
    """A definitions file; `rabbitmqctl import_definitions` reads it. The user has to be there."""
    rights = [{"vhost": grant.vhost, **{right.value: grant.regex(right) for right in ORDER}} for grant in grants]
    return {"permissions": [{"user": user, **row} for row in rights]}


def _print(grants: Sequence[Grant], user: str) -> None:
    for grant in grants:
        output.say(f"\nUser {user} in vhost {grant.vhost}:")
        output.say(*(f"{right.value} {grant.regex(right)}" for right in ORDER))
    order = [*Right]
    for grant in grants:
        output.say(f"\nWhat for, in vhost {grant.vhost}:")
        needs = sorted(grant.needs, key=lambda need: order.index(need.right))
        if needs:
            output.table(("right", "names", "why"), [(need.right.value, need.names, need.why) for need in needs])
        else:
            output.say("no right on any queue or exchange, only access to the vhost")
    if any(need.names == DEFAULT_EXCHANGE for grant in grants for need in grant.needs):
        output.say(f"\n{DEFAULT_EXCHANGE} is the default exchange: by it a user reaches every queue of the vhost.")


def _warn_of_selectors(loaded: LoadedPolicies) -> None:
    """Who selects every queue has the router bind every queue."""
    for policy in loaded.policies.policies:
        if policy.selector.kind is not SelectorKind.QUEUE and policy.selector.text in EVERY_QUEUE:
            output.warn(
                f"policy {policy.name} ({policy.source}) selects every queue, so the router needs write on every queue"
                "; select fewer to grant less",
            )


@asynccontextmanager
async def management(settings: Settings) -> AsyncIterator[Management]:
    """Ask the management API as long as the block lasts."""
    api = Management(settings.management_credentials, Tls(*settings.tls_files))
    try:
        yield api
    finally:
        await api.close()


async def vhosts_of(settings: Settings) -> list[str]:
    """Return the vhosts that the settings name; those of the broker for *."""
    vhosts = settings.vhost_list()
    if vhosts != ["*"]:
        return vhosts
    async with management(settings) as api:
        return await api.vhosts()


async def _print_strangers(settings: Settings, loaded: LoadedPolicies, vhosts: Sequence[str], user: str) -> None:
    """Say who else has rights that only the router needs. Others can read this, so it is no finding."""
    if not settings.has_management():
        output.warn("Who else has such rights is not known: no MANAGEMENT_URL.")
        return
    async with management(settings) as api:
        try:
            by_vhost = [await api.strangers(vhost, settings.names, user, loaded.believed(vhost)) for vhost in vhosts]
        except ManagementError as error:
            output.warn(f"Who else has such rights is not known (it takes an administrator to ask): {error}")
            return
    strangers = [f"- {stranger}" for group in by_vhost for stranger in group]
    heading = "Nobody but the router needs these rights:" if strangers else "Nobody else has rights that only it needs."
    output.say("", heading, *strangers)
