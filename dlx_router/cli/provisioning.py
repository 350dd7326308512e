"""`dlx-router plan`, `apply`, `destroy`: what the broker should hold for the policies, and the way there and back."""

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer

from dlx_router.broker.address import Host, Login, Tls
from dlx_router.broker.management import Management
from dlx_router.broker.topology import Topology
from dlx_router.cli import output
from dlx_router.cli.options import Json, Policies, Yes
from dlx_router.cli.permissions import management, vhosts_of
from dlx_router.config.dialects.import_result import as_yaml
from dlx_router.config.environment.settings import Settings, SettingsError
from dlx_router.config.policy_files.loader import LoadedPolicies, load_policies
from dlx_router.core.policy import PolicySet
from dlx_router.core.printable import printable_lines
from dlx_router.provisioning import apply_plan, plan_text, removal
from dlx_router.provisioning.adopt import adopted
from dlx_router.provisioning.plan import Plan, as_rows, changes
from dlx_router.provisioning.removal import Remains
from dlx_router.provisioning.steps import Step
from dlx_router.telemetry import logs

PASSES_S: Final = 15.0  # for a router that ends, for deaths on their way; and new queues are counted within 10 s
FRESH_S: Final = 6.0  # the broker counts pending deaths every 5 s
EVERY_S: Final = 1.0
_FOLDER: Final = Path("policies")
Uncounted = Annotated[
    bool,
    typer.Option(
        "--uncounted",
        help="Go on where the broker counts nothing (statistics off): you have looked that nothing is there.",
    ),
]


class Site:
    """The broker, the policies and the vhosts that a command is about."""

    def __init__(self, settings: Settings, loaded: LoadedPolicies, api: Management, vhosts: Sequence[str]) -> None:
        self.settings, self.loaded, self.api, self.vhosts = settings, loaded, api, vhosts
        self.names = settings.names
        self.uncounted = False  # whether what the broker does not count is nothing: somebody looked

    async def plan(self, vhost: str, patience_s: float = 0.0) -> Plan:
        """Return the plan; look again for some time where only what the broker has not counted yet is in the way."""
        deadline = time.monotonic() + patience_s
        while True:
            vhost_plan = await apply_plan.planned(
                self.api,
                self.loaded.policies,
                self.names,
                vhost,
                journal=self.settings.journal in {"best-effort", "required"},
                delayed=self.loaded.delayed,
                attachments=self.loaded.attachments,
                uncounted=self.uncounted,
            )
            if not vhost_plan.may_pass or time.monotonic() >= deadline:
                return vhost_plan
            await asyncio.sleep(EVERY_S)

    async def remaining(self, vhost: str, *, with_journal: bool) -> Remains:
        """Return what of ours stands in a vhost, its letters and consumers counted now."""
        return await removal.remaining(
            self.api,
            self.loaded.policies,
            self.names,
            vhost,
            partial(self._counts, vhost),
            with_journal=with_journal,
            uncounted=self.uncounted,
        )

    async def _counts(self, vhost: str, queues: Sequence[str]) -> dict[str, tuple[int, int]]:
        """Letters and consumers of each of these queues now, those that are there."""
        address = self.settings.broker_address()
        login = Login(address.user, address.password.get_secret_value(), vhost)
        tls = Tls(*self.settings.tls_files) if address.tls else None
        topology = Topology(Host(*address.hosts[0]), login, tls, self.names, declare=False)
        try:
            return await topology.censuses(queues)
        finally:
            await topology.close()


def _run(folder: Path, work: Callable[[Site], Awaitable[int]], *, without_policies: bool = False) -> None:
    """Do the work on the broker that the settings name; 1 for bad policies, 2 for what cannot be reached."""
    logs.quieten()
    settings = Settings.load({"policies": str(folder)})
    if not settings.has_management():
        raise SettingsError("DLX_ROUTER_MANAGEMENT_URL is missing; write https://user:password@host:15671")
    none = LoadedPolicies(PolicySet(()))
    loaded = none if without_policies else load_policies(settings.policies, settings.names)

    async def run() -> int:
        vhosts = await vhosts_of(settings)
        loaded.require_served(vhosts)
        async with management(settings) as api:
            return await work(Site(settings, loaded, api, vhosts))

    try:
        code = asyncio.run(run())
    except OSError as error:
        code = output.wrong_use(error)
    raise typer.Exit(code)


def plan(
    *,
    policies: Policies = _FOLDER,
    as_json: Json = False,
    adopt: Annotated[
        bool, typer.Option("--adopt", help="Write policies for retry loops that were made by hand with TTL and DLX.")
    ] = False,
) -> None:
    """Show what the broker lacks for the policies, and what differs; 1 where something does. Changes nothing."""

    async def work(site: Site) -> int:
        plans = [await site.plan(vhost) for vhost in site.vhosts]
        print_plans(plans, as_json=as_json)
        return output.FINDINGS if any(vhost_plan.steps or vhost_plan.conflicts for vhost_plan in plans) else output.OK

    async def adopting(site: Site) -> int:
        for vhost in site.vhosts:
            carried = adopted(await site.api.snapshot(vhost), site.names)
            print(as_yaml(carried, f"the retry loops of vhost {vhost}"), end="")
        return output.OK

    _run(policies, adopting if adopt else work, without_policies=adopt)


class _Outcome(NamedTuple):
    """The plan as it was at last, and the steps that were taken; None where none was, which is said on stderr.

    `is_refused`: the broker refused one of them.
    """

    plan: Plan
    steps: list[Step] | None
    is_refused: bool = False


def apply(
    *, policies: Policies = _FOLDER, as_json: Json = False, yes: Yes = False, uncounted: Uncounted = False
) -> None:
    """Make the broker send dead letters to the router, as the policies say; shows what it changes, and asks."""

    async def work(site: Site) -> int:
        site.uncounted = uncounted
        seen = [await site.plan(vhost, PASSES_S) for vhost in site.vhosts]
        if not as_json:
            print_plans(seen, as_json=False)
        outcomes = list[_Outcome]()
        try:
            for vhost_plan in seen:
                outcome = await _applied(site, vhost_plan, asks=not yes and _is_asked(), is_shown=not as_json)
                outcomes.append(outcome)
                if not as_json and outcome.steps is not None:
                    output.say(plan_text.done(outcome.plan, outcome.steps))
        finally:  # what was done in one vhost is said whatever befalls the next
            if as_json:
                print_plans([its.plan for its in outcomes], as_json=True, taken=[its.steps for its in outcomes])
        failed = any(its.plan.conflicts or its.steps is None or its.is_refused for its in outcomes)
        return output.FINDINGS if failed else output.OK

    _run(policies, work)


async def _applied(site: Site, seen: Plan, *, asks: bool, is_shown: bool) -> _Outcome:
    """What is done is what stands in the plan of this moment: whoever is asked is asked again where it is another one.

    `is_shown`: whoever is asked has seen the plan. Else it is written beside the question, and not to the document.
    """
    if asks and seen.steps and not is_shown and not seen.is_refused:
        output.warn(plan_text.text(seen))
    while not seen.is_refused and not (asks and seen.steps and not _is_confirmed(seen)):
        now = await site.plan(seen.vhost, PASSES_S)  # others were planned, or somebody thought about it meanwhile
        is_same = changes(now) == changes(seen)
        if now.is_refused or not is_same:
            output.warn(f"the broker changed meanwhile; now\n{plan_text.text(now)}")
        if not now.is_refused and (is_same or not asks):
            return await _taken(site, now)
        seen = now
    output.warn(f"vhost {seen.vhost}: nothing was changed")
    return _Outcome(seen, None)


async def _taken(site: Site, vhost_plan: Plan) -> _Outcome:
    steps, refusal = await apply_plan.apply(site.api, vhost_plan, site.names)
    if refusal:
        output.warn(f"vhost {vhost_plan.vhost}: {refusal}")
    return _Outcome(vhost_plan, steps, bool(refusal))


def _is_confirmed(vhost_plan: Plan) -> bool:
    return output.confirmed(f"vhost {vhost_plan.vhost}: make {output.number(len(vhost_plan.steps), 'change')}?")


def _is_asked() -> bool:
    """Whether somebody sits there. Scripts and pipelines ran these commands before they asked, and go on doing so."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def destroy(
    *,
    policies: Policies = _FOLDER,
    as_json: Json = False,
    with_journal: Annotated[
        bool, typer.Option("--with-journal", help="Remove the journal too, which explains every letter.")
    ] = False,
    yes: Yes = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would go and what is in the way, remove nothing.")
    ] = False,
    uncounted: Uncounted = False,
) -> None:
    """Take all of the router's but the journal away from the broker, or nothing where that would cost letters."""

    async def work(site: Site) -> int:
        site.uncounted = uncounted
        by_vhost = await _remains(site, with_journal=with_journal, dry_run=dry_run)
        print_removal(by_vhost, as_json=as_json)
        blocked = any(remains.blockers for remains in by_vhost)
        if dry_run:
            return output.FINDINGS if blocked else output.OK
        asks = not yes and _is_asked() and not all(remains.is_empty for remains in by_vhost)
        if blocked or (asks and not output.confirmed("Remove this?")):
            output.warn("nothing was removed")
            return output.FINDINGS
        codes = [await _destroyed(site, remains, with_journal=with_journal) for remains in by_vhost]
        return max(codes, default=output.OK)

    _run(policies, work)


async def _remains(site: Site, *, with_journal: bool, dry_run: bool) -> list[Remains]:
    """What stands; looked at again for some time where only what may have gone by then is in the way."""
    deadline, has_warned, is_fresh = time.monotonic() + PASSES_S, False, False
    while True:
        by_vhost = [await site.remaining(vhost, with_journal=with_journal) for vhost in site.vhosts]
        blocked = [remains for remains in by_vhost if remains.blockers]
        if dry_run:
            return by_vhost
        if not blocked:
            if is_fresh or not any(remains.policies for remains in by_vhost):
                return by_vhost
            is_fresh = True  # deaths of some seconds ago may not be counted yet: one more look
            await asyncio.sleep(FRESH_S)
            continue
        if not all(remains.may_pass for remains in blocked) or time.monotonic() > deadline:
            return by_vhost
        if not has_warned:
            has_warned = True
            text = printable_lines(blocked[0].blockers[0])
            output.warn(f"{text}; looking again for {PASSES_S:g} s, for it may pass")
        await asyncio.sleep(EVERY_S)


async def _destroyed(site: Site, remains: Remains, *, with_journal: bool) -> int:
    """Nothing goes with its queue: exchanges go before it, and it is counted again."""
    await removal.close_inlets(site.api, remains, site.names)
    now = await site.remaining(remains.vhost, with_journal=with_journal)
    if now.blockers:
        return _stopped(now, "only that by which they come was removed (policies, delayed exchanges)")
    await removal.remove_exchanges(site.api, now)
    await asyncio.sleep(FRESH_S)  # what came until then is counted: the number of a moment ago may be of before
    now = await site.remaining(remains.vhost, with_journal=with_journal)
    if now.blockers:
        return _stopped(now, "all queues stay, and only policies and exchanges were removed")
    await removal.remove_rest(site.api, now, site.names)
    return output.OK


def _stopped(now: Remains, removed: str) -> int:
    output.warn(
        f"vhost {now.vhost}: letters came meanwhile, or it is not known any more that none did, so {removed}; run a "
        f"router until they are gone, then destroy again\n" + "\n".join(f"  ! {blocker}" for blocker in now.blockers)
    )
    return output.FINDINGS


def print_plans(plans: Sequence[Plan], *, as_json: bool, taken: Sequence[Sequence[Step] | None] = ()) -> None:
    """Print the plans of vhosts. `taken`: the steps that apply has made, of each plan."""
    if not as_json:
        output.say("\n\n".join(map(plan_text.text, plans)))
        return
    rows: list[dict[str, Any]] = [
        {
            "vhost": vhost_plan.vhost,
            "steps": as_rows(vhost_plan),
            "notes": [{"code": note.code, "text": note.text, "conflict": note.conflict} for note in vhost_plan.notes],
        }
        for vhost_plan in plans
    ]
    for row, steps in zip(rows, taken, strict=False):
        row["done"] = plan_text.as_done(steps or ())
    output.as_json({"vhosts": rows})


def print_removal(by_vhost: Sequence[Remains], *, as_json: bool) -> None:
    """Print what destroy removes, and what is in the way."""
    if as_json:
        output.as_json({"vhosts": [remains.as_row() for remains in by_vhost]})
    else:
        output.say("\n\n".join(map(plan_text.removal, by_vhost)))
