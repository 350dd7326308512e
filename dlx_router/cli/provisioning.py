"""`dlx-router plan`, `apply`, `destroy`: what the broker should hold for the policies, and the way there and back."""

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, Self

from dlx_router.broker.address import Host, Login, Tls
from dlx_router.broker.management import Management, ManagementError
from dlx_router.broker.topology import Topology, TopologyError
from dlx_router.cli import output
from dlx_router.config.dialects.import_result import as_yaml
from dlx_router.config.environment.settings import Settings, SettingsError
from dlx_router.config.policy_files.loader import LoadedPolicies, PolicyErrors, load_policies
from dlx_router.core.names import RUNGS, Names
from dlx_router.core.policy import PolicySet
from dlx_router.core.printable import printable_lines
from dlx_router.provisioning import apply_plan, plan_text, removal
from dlx_router.provisioning.adopt import adopted
from dlx_router.provisioning.plan import Plan, as_rows, changes
from dlx_router.provisioning.removal import Remains
from dlx_router.provisioning.steps import Step
from dlx_router.telemetry import logs

SETTLES_S: Final = 20.0
PASSES_S: Final = 15.0  # for a router that ends, for deaths on their way; and new queues are counted within 10 s
FRESH_S: Final = 6.0  # the broker counts pending deaths every 5 s
EVERY_S: Final = 1.0
CALM: Final = 3  # so many looks in a row that find nothing: what is in flight between two queues is seen by one of them
STOP_S: Final = 60.0
Work = Callable[["Site"], Awaitable[int]]


class Site:
    """The broker, the policies and the vhosts that a command is about."""

    def __init__(self, settings: Settings, loaded: LoadedPolicies) -> None:
        self.settings, self.policies = settings, loaded.policies
        self.names = settings.names
        self.journal = settings.journal in {"best-effort", "required"}
        self.loaded = loaded
        self.with_journal = False  # whether destroy removes it
        self.uncounted = False  # whether what the broker does not count is nothing: somebody looked
        self._tls = Tls(*settings.tls_files)
        self.api = Management(settings.management_credentials, self._tls)
        self.vhosts: Sequence[str] = ()

    async def open(self) -> None:
        """Learn which vhosts are meant."""
        vhosts = self.settings.vhost_list()
        self.vhosts = await self.api.vhosts() if vhosts == ["*"] else vhosts
        self.loaded.require_served(self.vhosts)

    async def plan(self, vhost: str) -> Plan:
        """The plan of one vhost."""
        loaded = self.loaded
        return await apply_plan.planned(
            self.api,
            self.policies,
            self.names,
            vhost,
            journal=self.journal,
            delayed=loaded.delayed,
            attachments=loaded.attachments,
            uncounted=self.uncounted,
        )

    async def known_plan(self, vhost: str) -> Plan:
        """The plan; looked at again for some time where only what the broker has not counted yet is in the way."""
        deadline = time.monotonic() + PASSES_S
        while True:
            vhost_plan = await self.plan(vhost)
            if not vhost_plan.may_pass or time.monotonic() > deadline:
                return vhost_plan
            await asyncio.sleep(EVERY_S)

    async def remaining(self, vhost: str) -> Remains:
        """What of ours stands in a vhost, its letters and consumers counted now."""
        return await removal.remaining(
            self.api,
            self.policies,
            self.names,
            vhost,
            partial(self.counts, vhost),
            with_journal=self.with_journal,
            uncounted=self.uncounted,
        )

    async def counts(self, vhost: str, queues: Sequence[str]) -> dict[str, tuple[int, int]]:
        """Letters and consumers of each of these queues now, those that are there."""
        address = self.settings.broker_address()
        name, port = address.hosts[0]
        login = Login(address.user, address.password.get_secret_value(), vhost)
        topology = Topology(Host(name, port), login, self._tls if address.tls else None, self.names, declare=False)
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
        names, none = settings.names, LoadedPolicies(PolicySet(()))
        loaded = none if without_policies else load_policies(settings.policies, names)
        return asyncio.run(_on(Site(settings, loaded), work))
    except PolicyErrors as error:
        return output.refuse(error)
    except (SettingsError, ManagementError, TopologyError, OSError) as error:
        message = str(error).removesuffix("; it is tried again")  # a router does that, a command ends
        return output.wrong_use(message)


async def _on(site: Site, work: Work) -> int:
    try:
        await site.open()
        return await work(site)
    finally:
        await site.api.close()


def plan(*, as_json: bool, uncounted: bool = False) -> Work:
    """Show what differs; 1 where something does."""

    async def work(site: Site) -> int:
        site.uncounted = uncounted
        plans = [await site.plan(vhost) for vhost in site.vhosts]
        _print(plans, as_json=as_json)
        return output.FINDINGS if any(vhost_plan.steps or vhost_plan.conflicts for vhost_plan in plans) else output.OK

    return work


def apply(*, as_json: bool, yes: bool = True, uncounted: bool = False) -> Work:
    """Show what differs and change it; 1 where something stays in the way, and nothing that would cost letters.

    `yes` False: a person at a terminal is asked first. `uncounted`: deaths that the broker does not count are none.
    """

    async def work(site: Site) -> int:
        site.uncounted = uncounted
        shown = [await site.known_plan(vhost) for vhost in site.vhosts]
        if not as_json:
            _print(shown, as_json=False)
        outcomes = list[_Outcome]()
        try:
            for vhost_plan in shown:
                outcomes.append(await _applied(site, vhost_plan, yes=yes, is_shown=not as_json))
                if not as_json:
                    _say_done(outcomes[-1])
        finally:  # what was done in one vhost is said whatever befalls the next
            if as_json:
                _print([its.plan for its in outcomes], as_json=True, taken=[its.steps for its in outcomes])
        failed = any(its.plan.conflicts or its.steps is None or its.is_refused for its in outcomes)
        return output.FINDINGS if failed else output.OK

    return work


class _Outcome(NamedTuple):
    """The plan as it was at last, and the steps that were taken; None where none was, which is said on stderr.

    `is_refused`: the broker refused one of them.
    """

    plan: Plan
    steps: list[Step] | None
    is_refused: bool = False


def _say_done(outcome: _Outcome) -> None:
    if outcome.steps is not None:
        output.say(plan_text.done(outcome.plan, outcome.steps))


async def _applied(site: Site, seen: Plan, *, yes: bool, is_shown: bool) -> _Outcome:
    """What is done is what stands in the plan of this moment: whoever is asked is asked again where it is another one.

    `is_shown`: whoever is asked has seen the plan. Else it is written beside the question, and not to the document.
    """
    asks = not yes and _is_asked()
    if asks and seen.steps and not is_shown and not seen.is_refused:
        output.warn(plan_text.text(seen))
    while not seen.is_refused and not (asks and seen.steps and not _is_confirmed(seen)):
        now = await site.known_plan(seen.vhost)  # others were planned, or somebody thought about it meanwhile
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
    number = output.number(len(vhost_plan.steps), "change")
    return output.confirmed(f"vhost {vhost_plan.vhost}: make {number}?")


def _is_asked() -> bool:
    """Whether somebody sits there. Scripts and pipelines ran these commands before they asked, and go on doing so."""
    return sys.stdin.isatty() and sys.stdout.isatty()


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
    queues = flowing(site.names, [definition.exchange for definition in site.loaded.delayed])
    async with Drain(str(site.settings.policies)) as router:
        while router.runs and calm < CALM and time.monotonic() < deadline:
            await asyncio.sleep(EVERY_S)
            counts = [await site.counts(vhost, queues) for vhost in site.vhosts]
            calm = 0 if any(letters for census in counts for letters, _ in census.values()) else calm + 1


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
    deadline, has_warned = time.monotonic() + PASSES_S, False
    while True:
        by_vhost = [await site.remaining(vhost) for vhost in site.vhosts]
        blocked = [remains for remains in by_vhost if remains.blockers]
        if not blocked or not all(remains.may_pass for remains in blocked) or time.monotonic() > deadline:
            return by_vhost
        if not has_warned:
            has_warned = True
            output.warn(
                f"{printable_lines(blocked[0].blockers[0])}; looking again for {PASSES_S:g} s, for it may pass",
            )
        await asyncio.sleep(EVERY_S)


@dataclass(frozen=True, slots=True)
class Removing:
    """How destroy goes about it. `drain_s`: a router works so long first; `yes` False: a person at a terminal is asked.

    `dry_run`: it says what would go and what is in the way, only; `with_journal`: the journal goes too. `uncounted`:
    where the broker does not count, AMQP's number is enough, and no death is on its way.
    """

    drain_s: float | None = None
    yes: bool = True
    dry_run: bool = False
    with_journal: bool = False
    uncounted: bool = False


def destroy(how: Removing, *, as_json: bool) -> Work:
    """Remove all of ours, or nothing where it would cost letters; 1 then."""

    async def work(site: Site) -> int:
        site.with_journal, site.uncounted = how.with_journal, how.uncounted
        asks = not how.yes and not how.dry_run and _is_asked()
        drains = how.drain_s is not None and not how.dry_run
        if (
            drains
            and asks
            and not output.confirmed("Run a router until nothing waits, then remove all of the router's?")
        ):
            return _nothing_removed()
        by_vhost = await _remains(site, how)
        _print_removal(by_vhost, as_json=as_json)
        if how.dry_run:
            return output.FINDINGS if any(remains.blockers for remains in by_vhost) else output.OK
        if any(remains.blockers for remains in by_vhost):
            return _nothing_removed()
        if (
            asks
            and not drains
            and not all(remains.is_empty for remains in by_vhost)
            and not output.confirmed("Remove this?")
        ):
            return _nothing_removed()
        return max([await _destroyed(site, remains) for remains in by_vhost], default=output.OK)

    return work


async def _remains(site: Site, how: Removing) -> list[Remains]:
    """What stands, after all that may still change it."""
    if how.dry_run:
        return [await site.remaining(vhost) for vhost in site.vhosts]
    if how.drain_s is not None:
        await _drained(site, how.drain_s)
        await _settled(site)
    by_vhost = await _looked(site)
    if (
        how.drain_s is None
        and any(remains.policies for remains in by_vhost)
        and not any(remains.blockers for remains in by_vhost)
    ):
        await asyncio.sleep(FRESH_S)
        by_vhost = await _looked(site)
    return by_vhost


def _nothing_removed() -> int:
    output.warn("nothing was removed")
    return output.FINDINGS


async def _destroyed(site: Site, remains: Remains) -> int:
    """Nothing goes with its queue: exchanges go before it, and it is counted again."""
    await removal.close_inlets(site.api, remains, site.names)
    now = await site.remaining(remains.vhost)
    if now.blockers:
        return _stopped(now, "only that by which they come was removed (policies, delayed exchanges)")
    await removal.remove_exchanges(site.api, now)
    await asyncio.sleep(FRESH_S)  # what came until then is counted: the number of a moment ago may be of before
    now = await site.remaining(remains.vhost)
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


def _print(plans: Sequence[Plan], *, as_json: bool, taken: Sequence[Sequence[Step] | None] = ()) -> None:
    """`taken`: the steps that apply has made, of each plan."""
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


def _print_removal(by_vhost: Sequence[Remains], *, as_json: bool) -> None:
    if as_json:
        output.as_json({"vhosts": [remains.as_row() for remains in by_vhost]})
    else:
        output.say("\n\n".join(map(plan_text.removal, by_vhost)))


def flowing(names: Names, delayed: Iterable[str] = ()) -> list[str]:
    """The queues that a router empties by itself; parking and quarantine wait for a person. `delayed`: exchanges."""
    own = [names.inbox, names.fifo, names.release, names.retired, *map(names.delay, RUNGS)]
    return [*own, *map(names.delayed, delayed)]


class Drain:
    """A router of our own, for as long as the block lasts. Its output goes to stderr."""

    def __init__(self, policies: str) -> None:
        self._policies = policies
        self._process: asyncio.subprocess.Process

    async def __aenter__(self) -> Self:
        env = {**os.environ, "DLX_ROUTER_HTTP_PORT": str(_free_port()), "DLX_ROUTER_HTTP_HOST": "127.0.0.1"}
        argv = ("-m", "dlx_router", "run", "--policies", self._policies)
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, *argv, env=env, stdin=asyncio.subprocess.DEVNULL, stdout=sys.stderr, stderr=sys.stderr
        )
        return self

    @property
    def runs(self) -> bool:
        """Whether it still does."""
        return self._process.returncode is None

    async def __aexit__(self, *_: object) -> None:
        if self.runs:
            self._process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_S):
                await self._process.wait()
        except TimeoutError:
            self._process.kill()
            await self._process.wait()


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
    return port
