"""`dlx-router doctor`: looks at everything a router depends on, changes nothing, and needs no running router.

Exit: 0 nothing to correct, 1 warnings or errors, 2 settings that cannot be used, or no broker.
"""

import asyncio
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import typer

from dlx_router.broker.address import Host, Login, Tls
from dlx_router.broker.amqp10 import described, first_found
from dlx_router.broker.answers import ChannelClosed, LinkError
from dlx_router.broker.control import Forbidden, TopologyError
from dlx_router.broker.link import open_link
from dlx_router.broker.management import Management, ManagementError, may
from dlx_router.broker.topology import Topology, TopologyMissing
from dlx_router.cli import output
from dlx_router.cli.api import Api
from dlx_router.cli.groups import unverified
from dlx_router.cli.options import Json, Policies
from dlx_router.cli.permissions import grants_of, management
from dlx_router.config.environment.settings import Settings, SettingsError
from dlx_router.config.policy_files.loader import LoadedPolicies, PolicyErrors, load_policies
from dlx_router.config.rights.permissions import escaped
from dlx_router.core.attending import RAISE, delivery_limit, facts_of, remedy, vanishes
from dlx_router.core.names import RUNGS, Names
from dlx_router.core.policy import PolicySet
from dlx_router.index.reader import IndexAway, Reader, TooLong
from dlx_router.index.schema import place_of
from dlx_router.provisioning import ownership
from dlx_router.provisioning.plan import has_been_applied, plan
from dlx_router.service.vhost.attention import DECLARE, missing_exchanges, set_aside

Place = tuple[Host, Login, Tls | None]
Row = Mapping[str, Any]  # a queue as the management API has it
OLDEST: Final = (3, 10)
NEEDED_FLAGS: Final = frozenset({"quorum_queue", "stream_queue"})
MAX_SKEW_S: Final = 5.0
ROOM: Final = 50  # queues that should still fit: those for delays, and some dead-letter queues
SHOWN: Final = 4
ANSWERS_S: Final = 10.0  # a node has so long to answer about queues
LOOKED: Final = 500  # messages at the head of a queue
NO_API: Final = "set MANAGEMENT_URL: without it queues, policies, alarms, flags and clocks cannot be looked at"
BAD_API: Final = "correct MANAGEMENT_URL or its user: until then queues, policies, flags and clocks cannot be looked at"
FIX_RIGHTS: Final = "`dlx-router permissions` prints the rights that it needs"
FIX_PLAN: Final = "as it says; `dlx-router plan` says whether it is done, docs/lint.md tells more of each code"
_ALARMS: Final = {
    "memory": "let consumers empty queues, or give the node memory (vm_memory_high_watermark); `rabbitmq-diagnostics "
    "memory_breakdown` says what uses it",
    "disk": "free space on the node's disk, more than disk_free_limit; `rabbitmq-diagnostics status` shows both",
    "file": "raise the number of files that the node may open (ulimit -n, LimitNOFILE)",
}


class Level(StrEnum):
    """How much it matters: `error` costs letters or stops the router, `warning` may, `note` is to be known."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"


OK, NOTE, WARNING, ERROR = Level


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One finding. `fix` is empty only where nothing has to be done."""

    check: str
    level: Level
    found: str
    fix: str = ""


class Unreachable(Exception):
    """No broker answered; the findings so far say why."""


def doctor(*, policies: Policies = Path("policies"), as_json: Json = False) -> None:
    """Look at broker, rights and queues, and say what is wrong and what mends it; needs no running router."""
    settings = Settings.load({"policies": str(policies)})
    settings.broker_address()
    findings, reached = asyncio.run(examined(settings))
    show(findings, as_json=as_json)
    is_wrong = any(finding.level in {WARNING, ERROR} for finding in findings)
    raise typer.Exit(output.WRONG_USE if not reached else output.FINDINGS if is_wrong else output.OK)


async def examined(settings: Settings) -> tuple[list[Diagnosis], bool]:
    """Return all findings, worst first, and whether a broker answered."""
    doctor, reached = _Doctor(settings), True
    try:
        await doctor.everything()
    except Unreachable:
        reached = False
    order = [*Level]
    return sorted(doctor.findings, key=lambda finding: -order.index(finding.level)), reached


def show(findings: Sequence[Diagnosis], *, as_json: bool) -> None:
    """Print findings as a table or JSON."""
    if as_json:
        output.as_json([asdict(finding) for finding in findings])
        return
    rows = [(finding.level.value, finding.check, finding.found, finding.fix) for finding in findings]
    output.table(("", "check", "found", "fix"), rows)


class _Doctor:
    """Collects findings, so that those made before a broker fails are kept."""

    def __init__(self, settings: Settings) -> None:
        self.findings: list[Diagnosis] = []
        self._settings, self._names, self._tls = settings, settings.names, Tls(*settings.tls_files)
        self._loaded: LoadedPolicies | None = None
        self._indexed: list[dict[str, Any]] = []  # places where the index knows letters

    def _add(self, check: str, level: Level, found: str, fix: str = "") -> None:
        self.findings.append(Diagnosis(check, level, found, fix))

    async def everything(self) -> None:
        """Check files, the running router, the broker and each vhost. Unreachable where no broker answers."""
        settings = self._settings
        try:
            self._loaded = load_policies(settings.policies, self._names)
            count = output.number(len(self._loaded.policies.policies), "policy", "policies")
            self._add("policies", OK, count)
        except PolicyErrors as error:
            self._add("policies", ERROR, str(error), "dlx-router policy lint shows each with its line")
        for warning in settings.warnings():
            self._add("settings", WARNING, warning, "see dlx-router run --help")
        self._files()
        self._router()
        if settings.has_management():
            async with management(settings) as api:
                vhosts = await self._broker(api)
                for vhost in vhosts:
                    await self._vhost(vhost, api)
        else:
            self._add("management", WARNING, "the management API is not asked", NO_API)
            for vhost in settings.vhost_list():
                await self._vhost(vhost, None)

    def _files(self) -> None:
        if self._settings.journal == "off":
            fix = "set JOURNAL=best-effort: without it nothing can be explained later, and there are no redrive tasks"
            self._add("journal", WARNING, "JOURNAL=off", fix)
        if not (path := self._settings.index_path):
            return
        folder = Path(path).absolute().parent
        if folder.is_dir() and os.access(folder, os.W_OK):
            self._add("index", OK, f"{path} can be written")
        else:
            fix = "make the folder, and let the router's user write there"
            self._add("index", ERROR, f"{folder} cannot be written", fix)
        with suppress(IndexAway, TooLong):
            index = Reader(place_of(path))
            signatures, self._indexed = index.signatures(), index.places()
            fix = "a journal from before routers signed has them; else `dlx-router permissions` says who else may write"
            for line in unverified(signatures):
                self._add("journal", WARNING, line, fix)

    def _router(self) -> None:
        """What a running router reports of itself; that none answers is no fault."""
        try:
            api = Api()
            answer = api.readiness()
        except SettingsError as error:
            self._add("router", NOTE, f"what a router would report is unknown: {error}", "set DLX_ROUTER_API_URL")
            return
        fix = f"reported by the router at {api.address}; `dlx-router status` shows it again"
        for level, of in ((WARNING, "reasons"), (NOTE, "notes")):
            for text in answer[of]:
                self._add("router", level, str(text), fix)

    async def _broker(self, api: Management) -> list[str]:
        """Look at the cluster; return the vhosts."""
        vhosts = self._settings.vhost_list()
        try:
            vhosts = await api.vhosts() if vhosts == ["*"] else vhosts
            self.findings.append(clock(await api.clock_ahead_s() or 0.0))
            if missing := await api.disabled_flags():
                level = ERROR if NEEDED_FLAGS & {*missing} else WARNING
                text = f"not enabled: {', '.join(missing)}"
                self._add("feature flags", level, text, "rabbitmqctl enable_feature_flag all")
            else:
                self._add("feature flags", OK, "all stable ones are enabled")
            self.findings.append(alarms(await api.alarms()))
        except ManagementError as error:
            self._add("management", WARNING, str(error), BAD_API)
        if vhosts == ["*"]:
            self._add("vhosts", ERROR, "VHOSTS=* cannot be resolved", "name the vhosts")
        return [vhost for vhost in vhosts if vhost != "*"]

    async def _vhost(self, vhost: str, api: Management | None) -> None:
        """Each node of the URL is asked; the first that answers for what a connection tells."""
        address = self._settings.broker_address()
        login = Login(address.user, address.password.get_secret_value(), vhost)
        places = [(Host(name, port), login, self._tls if address.tls else None) for name, port in address.hosts]
        reached = [(place, number) for place in places if (number := await self._node(place)) is not None]
        if not reached:
            raise Unreachable
        (first, number), *others = reached
        for place, _ in others:
            await self._answers(place)
        await self._connection(first)
        if api is not None:
            await self._rights(vhost, api)
            await self._queues(vhost, api, parsed(number))
            await self._plan(vhost, api)

    async def _node(self, place: Place) -> str | None:
        """Return the version of a node that can be connected to."""
        host, login, tls = place
        try:
            link = await open_link(host, login, tls=tls, heartbeat=10, name="dlx-router doctor")
        except (LinkError, ChannelClosed, TimeoutError, OSError) as error:
            self._add("connection", ERROR, str(error), "look at AMQP_URL, at the user, and at the broker's log")
            return None
        number = str(link.server.get("version", "0"))
        await link.close()
        self._add("connection", OK, f"vhost {login.vhost!r} at {host.name}:{host.port}")
        if parsed(number) < OLDEST:
            self._add("version", ERROR, f"RabbitMQ {number} is too old", "upgrade to 3.10 or later")
        else:
            self._add("version", OK, f"RabbitMQ {number}")
        return number

    async def _answers(self, place: Place) -> None:
        """Ask another node what lies in the router's queues: it may not hear the node that leads them."""
        topology = Topology(*place, self._names, declare=False)
        try:
            async with asyncio.timeout(ANSWERS_S):
                await topology.connect()
                await topology.censuses((self._names.inbox, self._names.release))
        except (TimeoutError, TopologyError, OSError) as error:
            text = f"{place[0].name}:{place[0].port} does not say what lies in the router's queues: {error}"
            fix = "look at the cluster's network: its nodes may not hear each other; a router there does not work"
            self._add("connection", WARNING, text.removesuffix(": "), fix)
        finally:
            await topology.close()

    async def _connection(self, place: Place) -> None:
        """What a connection tells: messages that AMQP 0-9-1 cannot carry, own queues, missing targets."""
        names = self._names
        queues = (names.quarantine, names.parking, names.inbox, names.release)
        fix = "take it out with an AMQP 1.0 client; a running router moves what stands in its way to quarantine"
        for message in await first_found(place, [(queue, LOOKED) for queue in queues]):
            self._add("AMQP 1.0", WARNING, described(message), fix)
        topology = Topology(*place, names, declare=False)
        try:
            await self._own(topology)
            with suppress(TopologyError):  # _own says why
                policies = PolicySet(()) if self._loaded is None else self._loaded.policies
                for text in await missing_exchanges(topology, policies):
                    self._add("targets", WARNING, text, DECLARE)
                for text, fix in await set_aside(topology):
                    self._add("parked", WARNING, text, fix)
        finally:
            await topology.close()

    async def _own(self, topology: Topology) -> None:
        """What the router owns is there, or can be made; looked at passively."""
        names = topology.names
        try:
            await topology.ensure_core()
            self._add("own queues", OK, f"all of {names.prefix}.* that a start needs is there")
            if self._settings.journal != "off" and not await topology.queue_exists(names.journal):
                self._add("journal", NOTE, f"stream {names.journal!r} is not there yet", "a start declares it")
        except TopologyMissing as error:
            if self._settings.declare == "auto":
                things = _first([definition.partition(":")[0] for definition in error.definitions])
                self._add("own queues", NOTE, f"not there yet: {things}", "a start of the router declares them")
            else:
                self._add("own queues", ERROR, str(error), "declare them by hand, or set DECLARE=auto")
        except Forbidden as error:
            self._add("rights", ERROR, str(error), FIX_RIGHTS)
        except TopologyError as error:
            self._add("own queues", ERROR, str(error), "look at the broker's log")

    async def _rights(self, vhost: str, api: Management) -> None:
        """The rights that the user of AMQP_URL lacks, and who else has such rights.

        Rights on names that policies leave open are not looked at: the broker's expression may be another and fit as
        well. Of names that share an expression those are looked at that are surely used: the first rung, one queue
        that has names of new queues written.
        """
        user, loaded = self._settings.broker_address().user, self._loaded or LoadedPolicies(PolicySet(()))
        try:
            has = await api.permissions(vhost, user) or {}
            strangers = await api.strangers(vhost, self._names, user, loaded.believed(vhost))
        except ManagementError:
            text = "who has which rights takes an administrator to ask; whether "
            self._add("rights", NOTE, f"{text}{user!r} has all that it needs is not known", FIX_RIGHTS)
            return
        (grant,) = grants_of(self._settings, loaded, [vhost])
        needs = [(need.right.value, need.names) for need in grant.needs if not need.looks]
        named = [(right, name) for right, expression in needs for name in _surely_used(expression, self._names)]
        if lacks := [f"{right} {name}" for right, name in named if not may(has.get(right, ""), name)]:
            self._add("rights", ERROR, f"user {user!r} lacks rights in vhost {vhost!r}: {_first(lacks)}", FIX_RIGHTS)
        for stranger in strangers:
            self._add("rights", NOTE, str(stranger), "take away what it does not need; see docs of `permissions`")

    async def _queues(self, vhost: str, api: Management, broker: tuple[int, ...]) -> None:
        names, loaded = self._names, self._loaded
        attachments = () if loaded is None else loaded.attachments
        try:
            for problem in (*await api.check_own_queues(vhost, names), *await api.check_own_exchanges(vhost, names)):
                fix = "change that policy; the router consumes nothing"
                self._add(f"own {problem.on}s", ERROR, str(problem), fix)
            rows = [row async for row in api.every_queue(vhost)]
            limit = None
            with suppress(ManagementError):  # takes a policymaker or a monitoring user
                limit = await api.queue_limit(vhost)
        except ManagementError as error:
            self._add("management", WARNING, str(error), BAD_API)
            return
        for row in (row for row in rows if not names.is_own(row["name"])):
            self.findings += queue(row, names, selected=is_selected(loaded, vhost, row))
            if any(entry.vhost in {None, vhost} and entry.selector.fits(row["name"]) for entry in attachments):
                self.findings += source(row, broker)
        self.findings += queue_limit(vhost, limit, len(rows))
        self.findings += index_counts(vhost, self._indexed, rows)

    async def _plan(self, vhost: str, api: Management) -> None:
        """Each conflict of the plan, in its words, and what apply would change; nothing where the API does not tell."""
        names, loaded, owned = self._names, self._loaded, frozenset[str]()
        if loaded is None:
            return
        try:
            snapshot = await api.snapshot(vhost)
            with suppress(ManagementError):  # who may only look: ours are known by their names then
                owned = ownership.read_ledger(await api.parameter(ownership.ledger_name(names, vhost)))
        except ManagementError:
            return
        journal, attachments = self._settings.journal != "off", loaded.attachments
        planned = plan(
            loaded.policies, snapshot, names, owned, journal=journal, delayed=loaded.delayed, attachments=attachments
        )
        for note in planned.conflicts:
            self._add("plan", WARNING, f"{note.code}: {note.text}", FIX_PLAN)
        if planned.steps and has_been_applied(planned, snapshot, names):
            text = f"vhost {vhost!r} is not as `apply` left it: {output.number(len(planned.steps), 'change')}"
            self._add("plan", WARNING, text, "`dlx-router plan` shows what `apply` would change")


def parsed(number: str) -> tuple[int, ...]:
    """Return major and minor; (0,) where it is no version."""
    try:
        return tuple(int(part) for part in number.split(".")[:2])
    except ValueError:
        return (0,)


def clock(ahead_s: float) -> Diagnosis:
    """Judge how far the broker's clock is ahead: ages are told and runs are cut off by clocks."""
    if abs(ahead_s) <= MAX_SKEW_S:
        return Diagnosis("clock", OK, "the broker's clock and this one agree")
    text = f"the broker's clock is {abs(ahead_s):.0f} s {'ahead' if ahead_s > 0 else 'behind'} of this one"
    return Diagnosis("clock", WARNING, text, "let both follow NTP: ages and cutoffs are told by them")


def alarms(raised: Sequence[tuple[str, str]]) -> Diagnosis:
    """Judge what blocks all publishers of a cluster: node and resource of each."""
    if not raised:
        return Diagnosis("alarms", OK, "none")
    where = ", ".join(f"{resource} ({node})" for node, resource in raised)
    text = f"the broker has an alarm: {where}; it takes no messages until it is over, so letters wait where they are"
    fixes = [fix for word, fix in _ALARMS.items() if any(word in resource for _, resource in raised)]
    return Diagnosis("alarms", ERROR, text, "; ".join(fixes) or "look at the broker's log")


def queue(row: Row, names: Names, *, selected: bool) -> Iterator[Diagnosis]:
    """Judge one queue that is not ours. `selected`: a policy of ours applies to it."""
    name, kind = row["name"], row.get("type", "classic")
    target = _setting(row, "dead-letter-exchange")
    if target is None and selected and kind != "stream":
        text = f"queue {name!r} has a policy of ours, but its dead letters are dropped by the broker"
        fix = f"`dlx-router apply`, or a RabbitMQ policy of yours with dead-letter-exchange {names.inbox!r}"
        yield Diagnosis("dead-lettering", WARNING, text, fix)
    if target not in names.inlets:
        return
    if kind == "quorum" and _setting(row, "dead-letter-strategy") == "at-least-once":
        if _setting(row, "overflow") != "reject-publish":
            text = f"queue {name!r}: at-least-once has no effect without overflow reject-publish"
            yield Diagnosis("hop", WARNING, text, "add overflow: reject-publish to its policy")
        return
    fix = "accept it (docs/limits.md), or make it a quorum queue with dead-letter-strategy: at-least-once"
    if kind == "quorum":
        fix = "add dead-letter-strategy: at-least-once and overflow: reject-publish to its policy"
    text = f"queue {name!r} ({kind}) dead-letters at most once: what the broker drops on that hop nobody has"
    yield Diagnosis("hop", NOTE, text, fix)


def queue_limit(vhost: str, limit: int | None, queues: int) -> Iterator[Diagnosis]:
    """Judge whether the vhost may have more queues: dead-letter and delay queues are declared as needed."""
    if limit is None or limit < 0:
        return
    text = f"vhost {vhost!r} has {queues} of at most {limit} queues (max-queues)"
    if limit - queues > ROOM:
        yield Diagnosis("queue limit", OK, text)
        return
    text += ": the router cannot declare the dead-letter queues and delay queues that it needs; messages are parked"
    raised = f"rabbitmqctl set_vhost_limits -p {shlex.quote(vhost)} '{{\"max-queues\": {queues + 1000}}}'"
    yield Diagnosis(
        "queue limit", ERROR if limit <= queues else WARNING, text, f"{raised}, or share dead-letter queues"
    )


def source(row: Row, broker: tuple[int, ...]) -> Iterator[Diagnosis]:
    """Judge an attached queue: would a read delete it, does the broker end what was given back too often."""
    facts = facts_of(row)
    if why := vanishes(facts):
        text = f"source {row['name']!r} is not attached: {why}"
        yield Diagnosis("lifetime", ERROR, text, "as it says; until then its messages stay where they are")
    elif (limit := delivery_limit(facts, broker)) is not None:
        drops = not facts.has_dlx
        text = f"source {row['name']!r} has delivery limit {limit}"
        text += ": beyond it the broker deletes the letter" if drops else ""
        can_rise = remedy(facts, broker) is RAISE
        fix = f"{RAISE} (2147483647), or " if can_rise else "no policy raises its argument x-delivery-limit: "
        yield Diagnosis("delivery limit", ERROR if drops else NOTE, text, f"{fix}give the queue a dead-letter-exchange")


def index_counts(vhost: str, places: Iterable[Mapping[str, Any]], rows: Iterable[Row]) -> Iterator[Diagnosis]:
    """Report queues that hold another number of messages than the index counts, or that do not exist."""
    held = {row["name"]: row.get("messages") for row in rows}
    for place in places:
        if place["vhost"] != vhost or place["exchange"]:
            continue
        name = place["routing_key"]
        text = f"the index counts {output.number(place['n'], 'letter')} in queue {name!r} of vhost {vhost!r}, which "
        if name not in held:
            fix = "the running leader marks them as gone within some seconds"
            yield Diagnosis("index", NOTE, f"{text}does not exist", fix)
        elif isinstance(messages := held[name], int) and messages != place["n"]:
            fix = "look again: counts are some seconds old. Where it lasts, other programs take from or publish to it; "
            fix += "POST /api/v1/queues/import makes what lies there known"
            yield Diagnosis("index", NOTE, f"{text}holds {messages}", fix)


def is_selected(loaded: LoadedPolicies | None, vhost: str, row: Row) -> bool:
    """Return whether a policy says by more than a catch-all that it is about this queue."""
    if loaded is None:
        return False
    name, queue_type = row["name"], row.get("type", "classic")
    policy = loaded.policies.resolve(vhost=vhost, queue=name, reason="rejected", queue_type=queue_type)
    return policy is not None and policy.named_exactly


def _setting(row: Row, key: str) -> Any:  # noqa: ANN401 - as RabbitMQ has it
    """Of a queue: its argument, or else its policy."""
    argument = (row.get("arguments") or {}).get(f"x-{key}")
    return argument if argument is not None else (row.get("effective_policy_definition") or {}).get(key)


def _first(things: Sequence[str]) -> str:
    more = f" and {len(things) - SHOWN} more" if len(things) > SHOWN else ""
    return f"{', '.join(things[:SHOWN])}{more}"


def _surely_used(expression: str, names: Names) -> list[str]:
    """The one name that an escaped expression fits; where it is ours and fits several, those that are surely used."""
    plain = re.sub(r"\\(.)", "", expression)
    if not re.search(r"[.^$*+?{}\[\]|()]", plain):
        return [name] if (name := re.sub(r"\\(.)", r"\1", expression)) else []
    if not expression.startswith(escaped(f"{names.prefix}.")):
        return []  # a policy's, as the broker reads it
    used = (names.delay(RUNGS[0]), names.flush("0" * 16))
    return [name for name in used if re.fullmatch(expression, name)]
