"""What `doctor` asks the broker: alarms, rights of the router's user, and what `plan` says is in the way."""

import re
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Final

from dlx_router.broker.address import Host, Login, Tls
from dlx_router.broker.administration import Administration, ManagementError
from dlx_router.broker.alarm import Alarm
from dlx_router.broker.answers import ChannelClosed, LinkError
from dlx_router.broker.examination import Examination
from dlx_router.broker.link import open_link
from dlx_router.broker.rights import may
from dlx_router.broker.topology import Topology, TopologyError
from dlx_router.cli.doctor import diagnosis
from dlx_router.cli.doctor.diagnosis import Diagnosis, Level
from dlx_router.cli.permissions import grants_of
from dlx_router.config.environment.settings import Settings
from dlx_router.config.policy_files.loader import LoadedPolicies
from dlx_router.config.rights.permissions import escaped
from dlx_router.core.names import RUNGS, Names
from dlx_router.core.policy import PolicySet
from dlx_router.provisioning import ledger
from dlx_router.provisioning.plan import plan
from dlx_router.service.vhost.attention import DECLARE, missing_exchanges, set_aside

SHOWN: Final = 4
FIX_RIGHTS: Final = "`dlx-router permissions` prints the rights that it needs"
FIX_PLAN: Final = "as it says; `dlx-router plan` says whether it is done, docs/lint.md tells more of each code"


async def alarms(host: Host, login: Login, tls: Tls | None, examination: Examination | None) -> Diagnosis | None:
    """Those of the cluster: the management API names the node and AMQP does not. None where nobody says."""
    if examination is not None:
        with suppress(ManagementError):  # said already, by who asked it first
            return diagnosis.alarms(await examination.alarms())
    try:
        link = await open_link(host, login, tls=tls, heartbeat=10, name="dlx-router doctor")
        async with Alarm(link) as alarm:
            reason = await alarm.look()
    except (LinkError, ChannelClosed, TimeoutError):
        return None
    return diagnosis.alarms([(f"{host.name}:{host.port}", reason)] if reason else [])


async def attention(topology: Topology, loaded: LoadedPolicies | None) -> AsyncIterator[Diagnosis]:
    """Exchanges that policies name and that do not exist, and messages that wait for a person."""
    with suppress(TopologyError):  # _own says why
        for text in await missing_exchanges(topology, loaded.policies) if loaded is not None else ():
            yield Diagnosis("targets", Level.WARNING, text, DECLARE)
        for text, fix in await set_aside(topology):
            yield Diagnosis("parked", Level.WARNING, text, fix)


async def lacking_rights(settings: Settings, vhost: str, loaded: LoadedPolicies | None) -> AsyncIterator[Diagnosis]:
    """The rights that the user of AMQP_URL lacks; nothing where the management user is no administrator.

    Rights on names that policies leave open are not looked at: the broker's expression may be another and fit as well.
    Of names that share an expression those are looked at that are surely used: the first rung, one queue that has
    names of new queues written.
    """
    user = settings.broker_address().user
    api = Administration(settings.management_credentials, Tls(*settings.tls_files))
    try:
        has = await api.permissions(vhost, user)
    except ManagementError:
        return
    finally:
        await api.close()
    (grant,) = grants_of(settings, loaded or LoadedPolicies(PolicySet(())), [vhost])
    needs = [(need.right.value, need.names) for need in grant.needs if not need.looks]
    named = [(right, name) for right, expression in needs for name in _names(expression, settings.names)]
    lacks = [f"{right} {name}" for right, name in named if not may((has or {}).get(right, ""), name)]
    if lacks:
        more = f" and {len(lacks) - SHOWN} more" if len(lacks) > SHOWN else ""
        text = f"user {user!r} lacks rights in vhost {vhost!r}: {', '.join(lacks[:SHOWN])}{more}"
        yield Diagnosis("rights", Level.ERROR, text, FIX_RIGHTS)


def _names(expression: str, names: Names) -> list[str]:
    """The one name that an escaped expression fits; where it is ours and fits several, those that are surely used."""
    plain = re.sub(r"\\(.)", "", expression)
    if not re.search(r"[.^$*+?{}\[\]|()]", plain):
        return [name] if (name := re.sub(r"\\(.)", r"\1", expression)) else []
    if not expression.startswith(escaped(f"{names.prefix}.")):
        return []  # a policy's, as the broker reads it
    used = (names.delay(RUNGS[0]), names.flush("0" * 16))
    return [name for name in used if re.fullmatch(expression, name)]


async def plan_conflicts(settings: Settings, vhost: str, loaded: LoadedPolicies) -> AsyncIterator[Diagnosis]:
    """Each conflict of the plan, in its words; nothing where the management API does not tell, which others say."""
    names, api = settings.names, Administration(settings.management_credentials, Tls(*settings.tls_files))
    owned = frozenset[str]()
    try:
        snapshot = await api.snapshot(vhost)
        with suppress(ManagementError):  # who may only look: ours are known by their names then
            owned = ledger.read(await api.parameter(ledger.parameter(names, vhost)))
    except ManagementError:
        return
    finally:
        await api.close()
    journal = settings.journal in {"best-effort", "required"}
    broker_plan = plan(
        loaded.policies, snapshot, names, owned, journal=journal, delayed=loaded.delayed, attachments=loaded.attachments
    )
    for note in broker_plan.conflicts:
        yield Diagnosis("plan", Level.WARNING, f"{note.code}: {note.text}", FIX_PLAN)
