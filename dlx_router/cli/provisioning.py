"""`dlx-router plan`, `apply`, `destroy`: what the broker should hold for the policies, and the way there and back."""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final

from dlx_router.broker.address import Host, Login, Tls
from dlx_router.broker.administration import Administration, ManagementError
from dlx_router.broker.topology import Topology, TopologyError
from dlx_router.cli import output
from dlx_router.cli.draining import CALM, EVERY_S, Drain, flowing
from dlx_router.config.dialects.carried import as_yaml
from dlx_router.config.policies import LoadedPolicies, PolicyErrors, load_policies
from dlx_router.config.settings import Settings, SettingsError
from dlx_router.core.names import Names
from dlx_router.core.policy import PolicySet
from dlx_router.core.printable import printable_lines
from dlx_router.provisioning import acting, show
from dlx_router.provisioning.acting import Remains
from dlx_router.provisioning.adopt import adopted
from dlx_router.provisioning.plan import Plan, as_rows
from dlx_router.telemetry import logs

SETTLES_S: Final = 20.0
PASSES_S: Final = 10.0  # a router that ends has so long to be gone, deaths on their way to arrive
FRESH_S: Final = 6.0  # the broker counts pending deaths every 5 s
Work = Callable[["Site"], Awaitable[int]]


class Site:
    """The broker, the policies and the vhosts that a command is about."""

    def __init__(self, settings: Settings, loaded: LoadedPolicies) -> None:
        self.settings, self.policies = settings, loaded.policies
        self.names = Names(settings.prefix)
        self.journal = settings.journal in {"best-effort", "required"}
        self.loaded = loaded
        self._tls = Tls(settings.tls_ca, settings.tls_cert, settings.tls_key, settings.tls_server_name)
        self.api = Administration(settings.management_credentials, self._tls)
        self.vhosts: Sequence[str] = ()

    async def open(self) -> None:
        """Learn which vhosts are meant."""
        said = self.settings.vhost_list()
        self.vhosts = await self.api.vhosts() if said == ["*"] else said
        self.loaded.require_served(self.vhosts)

    async def plan(self, vhost: str) -> Plan:
        """The plan of one vhost."""
        loaded = self.loaded
        return await acting.planned(
            self.api,
            self.policies,
            self.names,
            vhost,
            journal=self.journal,
            delayed=loaded.delayed,
            attachments=loaded.attachments,
        )

    async def remaining(self, vhost: str) -> Remains:
        """What of ours stands in a vhost, its letters and consumers counted now."""
        return await acting.remaining(self.api, self.policies, self.names, vhost, partial(self.counts, vhost))

    async def counts(self, vhost: str, queues: Sequence[str]) -> dict[str, tuple[int, int]]:
        """Letters and consumers of each of these queues now, those that are there."""
        found = self.settings.broker_address()
        name, port = found.hosts[0]
        login = Login(found.user, found.password.get_secret_value(), vhost)
        topology = Topology(Host(name, port), login, self._tls if found.tls else None, self.names, declare=False)
        try:
            return await topology.censuses(queues)
        finally:
            await topology.close()


def run(given: Mapping[str, str], work: Work, *, without_policies: bool = False) -> int:
    """Do the work on the broker that the settings name; 1 for bad policies, 2 for what cannot be reached."""
    logs.quieten()
    try:
        settings = Settings.load(given)
        if not settings.has_management():
            raise SettingsError(  # noqa: TRY301 - told below, as all others
                "DLX_ROUTER_MANAGEMENT_URL is missing; write https://user:password@host:15671"
            )
        names, none = Names(settings.prefix), LoadedPolicies(PolicySet(()))
        loaded = none if without_policies else load_policies(settings.policies, names)
        return asyncio.run(_on(Site(settings, loaded), work))
    except PolicyErrors as error:
        return output.refuse(error)
    except (SettingsError, ManagementError, TopologyError, OSError) as error:
        said = str(error).removesuffix("; it is tried again")  # a router does that, a command ends
        print(printable_lines(said), file=sys.stderr)
        return output.WRONG_USE


async def _on(site: Site, work: Work) -> int:
    try:
        await site.open()
        return await work(site)
    finally:
        await site.api.close()


def plan(*, as_json: bool) -> Work:
    """Show what differs; 1 where something does."""

    async def work(site: Site) -> int:
        plans = [await site.plan(vhost) for vhost in site.vhosts]
        _print(plans, as_json=as_json)
        return output.FINDINGS if any(one.steps or one.conflicts for one in plans) else output.OK

    return work


def apply(*, as_json: bool) -> Work:
    """Show what differs and change it; 1 where something stays in the way, and nothing that would cost letters."""

    async def work(site: Site) -> int:
        plans = [await site.plan(vhost) for vhost in site.vhosts]
        _print(plans, as_json=as_json)
        done = output.OK
        for one in plans:
            if one.is_refused:
                print(f"vhost {one.vhost}: nothing was changed", file=sys.stderr)
                done = output.FINDINGS
                continue
            await acting.apply(site.api, one, site.names)
            done = output.FINDINGS if one.conflicts else done
        return done

    return work


def adopt() -> Work:
    """Write policies for the retry loops that somebody made by hand; changes nothing."""

    async def work(site: Site) -> int:
        for vhost in site.vhosts:
            carried = adopted(await site.api.snapshot(vhost), site.names)
            print(as_yaml(carried, f"the retry loops of vhost {vhost}"), end="")
        return output.OK

    return work


async def _drained(site: Site, drain_s: float) -> None:
    """A router empties what flows by itself; what is left then is said as by any destroy."""
    calm, deadline = 0, time.monotonic() + drain_s
    queues = flowing(site.names, [one.exchange for one in site.loaded.delayed])
    async with Drain(str(site.settings.policies)) as router:
        while router.runs and calm < CALM and time.monotonic() < deadline:
            await asyncio.sleep(EVERY_S)
            counts = [await site.counts(vhost, queues) for vhost in site.vhosts]
            calm = 0 if any(letters for one in counts for letters, _ in one.values()) else calm + 1


async def _settled(site: Site) -> None:
    """The API still counts what was there some seconds ago, our own router too; what stays stands in the way."""
    deadline = time.monotonic() + SETTLES_S
    await asyncio.sleep(FRESH_S)
    while time.monotonic() < deadline:
        if not any([(await site.remaining(vhost)).blockers for vhost in site.vhosts]):
            return
        await asyncio.sleep(EVERY_S)


async def _looked(site: Site) -> list[Remains]:
    """What stands; looked at again for some time where only what may have gone by then is in the way."""
    deadline, told = time.monotonic() + PASSES_S, False
    while True:
        found = [await site.remaining(vhost) for vhost in site.vhosts]
        blocked = [one for one in found if one.blockers]
        if not blocked or not all(one.may_pass for one in blocked) or time.monotonic() > deadline:
            return found
        if not told:
            told = True
            print(
                f"{printable_lines(blocked[0].blockers[0])}; looking again for {PASSES_S:g} s, it may be ending",
                file=sys.stderr,
            )
        await asyncio.sleep(EVERY_S)


def destroy(*, as_json: bool, drain_s: float | None = None) -> Work:
    """Remove all of ours, or nothing where it would cost letters; 1 then. `drain_s`: a router works so long first."""

    async def work(site: Site) -> int:
        if drain_s is not None:
            await _drained(site, drain_s)
            await _settled(site)
        found = await _looked(site)
        if drain_s is None and any(one.policies for one in found) and not any(one.blockers for one in found):
            await asyncio.sleep(FRESH_S)
            found = await _looked(site)
        _print_removal(found, as_json=as_json)
        if any(one.blockers for one in found):
            print("nothing was removed", file=sys.stderr)
            return output.FINDINGS
        return max([await _destroyed(site, one) for one in found], default=output.OK)

    return work


async def _destroyed(site: Site, found: Remains) -> int:
    await acting.close_inlets(site.api, found, site.names)
    now = await site.remaining(found.vhost)
    if now.blockers:
        print(
            f"vhost {found.vhost}: letters came meanwhile, so only that by which they come was removed (policies, "
            f"delayed exchanges); run a router until they are gone, then destroy again",
            *(f"  ! {one}" for one in now.blockers),
            sep="\n",
            file=sys.stderr,
        )
        return output.FINDINGS
    await acting.remove_rest(site.api, now, site.names)
    return output.OK


def _print(plans: Sequence[Plan], *, as_json: bool) -> None:
    if not as_json:
        print(printable_lines("\n\n".join(map(show.text, plans))))
        return
    rows = [
        {
            "vhost": one.vhost,
            "steps": as_rows(one),
            "notes": [{"code": note.code, "text": note.text, "conflict": note.conflict} for note in one.notes],
        }
        for one in plans
    ]
    print(json.dumps({"vhosts": rows}, indent=2, ensure_ascii=False))


def _print_removal(found: Sequence[Remains], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps({"vhosts": [one.as_row() for one in found]}, indent=2, ensure_ascii=False))
    else:
        print(printable_lines("\n\n".join(map(show.removal, found))))
