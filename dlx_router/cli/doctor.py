"""`dlx-router doctor`: looks at everything a router depends on, changes nothing, and needs no running router.

Exit: 0 nothing to mend, 1 warnings or errors, 2 settings that cannot be used, or no broker.
"""

import asyncio
import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

import httpx

from dlx_router.broker.address import Host, Login, Tls
from dlx_router.broker.alarm import Alarm
from dlx_router.broker.amqp10 import described, first_found
from dlx_router.broker.answers import ChannelClosed, LinkError
from dlx_router.broker.control import Forbidden, TopologyError
from dlx_router.broker.link import open_link
from dlx_router.broker.management import Management, ManagementError, may
from dlx_router.broker.topology import Topology, TopologyMissing
from dlx_router.cli import output
from dlx_router.cli.groups import unverified
from dlx_router.cli.permissions import grants_of
from dlx_router.config.environment.settings import Settings, SettingsError
from dlx_router.config.policy_files.loader import LoadedPolicies, PolicyErrors, load_policies
from dlx_router.config.rights.permissions import escaped
from dlx_router.core.attending import RAISE, delivery_limit, facts_of, remedy, vanishes
from dlx_router.core.names import RUNGS, Names
from dlx_router.core.policy import PolicySet
from dlx_router.core.printable import redacted
from dlx_router.index.reader import IndexAway, Reader, TooLong
from dlx_router.index.schema import place_of
from dlx_router.provisioning import ownership
from dlx_router.provisioning.plan import has_been_applied, plan
from dlx_router.service.vhost.attention import DECLARE, missing_exchanges, set_aside

Place = tuple[Host, Login, Tls | None]
OLDEST: Final = (3, 10)
NEEDED_FLAGS: Final = frozenset({"quorum_queue", "stream_queue"})
MAX_SKEW_S: Final = 5.0
ROOM: Final = 50  # queues that should still fit: those for delays, and some dead-letter queues
SHOWN: Final = 4
READYZ_S: Final = 5.0
ANSWERS_S: Final = 10.0  # a node has so long to answer about queues
LOOKED: Final = 500  # messages at the head of a queue
NO_API: Final = "set MANAGEMENT_URL: without it queues, policies, flags and clocks cannot be looked at"
BAD_API: Final = "mend MANAGEMENT_URL or its user: until then queues, policies, flags and clocks cannot be looked at"
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


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One finding. `fix` is empty only where nothing has to be done."""

    check: str
    level: Level
    found: str
    fix: str = ""


class Unreachable(Exception):
    """No broker answered; the findings so far say why."""


def run(given: Mapping[str, str], *, as_json: bool) -> int:
    """Print what was found, worst first."""
    try:
        settings = Settings.load(given)
        settings.broker_address()
    except SettingsError as error:
        return output.wrong_use(error)
    findings, reached = asyncio.run(examined(settings))
    show(findings, as_json=as_json)
    if not reached:
        return output.WRONG_USE
    return output.FINDINGS if any(finding.level in {Level.WARNING, Level.ERROR} for finding in findings) else output.OK


async def examined(settings: Settings) -> tuple[list[Diagnosis], bool]:
    """All findings, worst first, and whether a broker answered."""
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
        self._api: Management | None = None

    def _add(self, check: str, level: Level, found: str, fix: str = "") -> None:
        self.findings.append(Diagnosis(check, level, found, fix))

    async def everything(self) -> None:
        """Check files, the running router, the broker and each vhost. Unreachable where no broker answers."""
        settings = self._settings
        try:
            self._loaded = load_policies(settings.policies, self._names)
            count = output.number(len(self._loaded.policies.policies), "policy", "policies")
            self._add("policies", Level.OK, count)
        except PolicyErrors as error:
            self._add("policies", Level.ERROR, str(error), "dlx-router policy lint shows each with its line")
        for warning in settings.warnings():
            self._add("settings", Level.WARNING, warning, "see dlx-router run --help")
        self._files()
        self._router()
        api = Management(settings.management_credentials(), self._tls) if settings.has_management() else None
        self._api = api
        try:
            vhosts = await self._vhosts()
            if api is None:
                self._add("management", Level.WARNING, "the management API is not asked", NO_API)
            else:
                await self._broker(api)
            for vhost in vhosts:
                await self._vhost(vhost)
        finally:
            if api is not None:
                await api.close()

    def _files(self) -> None:
        if self._settings.journal == "off":
            fix = "set JOURNAL=best-effort: without it nothing can be explained later, and there are no redrive tasks"
            self._add("journal", Level.WARNING, "JOURNAL=off", fix)
        if not (path := self._settings.index_path):
            return
        folder = Path(path).absolute().parent
        if folder.is_dir() and os.access(folder, os.W_OK):
            self._add("index", Level.OK, f"{path} can be written")
        else:
            fix = "make the folder, and let the router's user write there"
            self._add("index", Level.ERROR, f"{folder} cannot be written", fix)
        try:
            index = Reader(place_of(path))
            signatures, self._indexed = index.signatures(), index.places()
        except (IndexAway, TooLong):
            return
        fix = "a journal from before routers signed has them; else `dlx-router permissions` says who else may write"
        for line in unverified(signatures):
            self._add("journal", Level.WARNING, line, fix)

    def _router(self) -> None:
        """What a running router reports of itself; that none answers is no fault."""
        url = self._settings.api_url.rstrip("/").removesuffix("/api/v1")
        shown = redacted(url) if "://" in url else url.rpartition("@")[2]
        fix = f"reported by the router at {shown}; `dlx-router status` shows it again"
        try:
            answer = httpx.get(f"{url}/readyz", timeout=READYZ_S, trust_env=False).json()
            reported = [(Level.WARNING, str(text)) for text in answer["reasons"]]
            reported += [(Level.NOTE, str(text)) for text in answer.get("notes", ())]
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, LookupError, TypeError):
            reported = [(Level.NOTE, f"no router answers at {shown}, so what it would report is unknown")]
            fix = "set DLX_ROUTER_API_URL to its address"
        for level, text in reported:
            self._add("router", level, text, fix)

    async def _vhosts(self) -> list[str]:
        vhosts = self._settings.vhost_list()
        if vhosts != ["*"] or self._api is None:
            return vhosts
        try:
            return await self._api.vhosts()
        except ManagementError as error:
            self._add("vhosts", Level.ERROR, f"VHOSTS=* cannot be resolved: {error}", "name the vhosts")
            return []

    async def _broker(self, api: Management) -> None:
        try:
            self.findings.append(clock(await api.clock_ahead_s() or 0.0))
            missing = await api.disabled_flags()
        except ManagementError as error:
            self._add("management", Level.WARNING, str(error), BAD_API)
            return
        if missing:
            level = Level.ERROR if NEEDED_FLAGS & {*missing} else Level.WARNING
            text = f"not enabled: {', '.join(missing)}"
            self._add("feature flags", level, text, "rabbitmqctl enable_feature_flag all")
        else:
            self._add("feature flags", Level.OK, "all stable ones are enabled")

    async def _vhost(self, vhost: str) -> None:
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
        if self._api is None:
            return
        await self._lacking_rights(vhost)
        await self._queues(vhost, self._api, parsed(number))
        if self._loaded is not None:
            await self._plan(vhost, self._loaded)

    async def _node(self, place: Place) -> str | None:
        """Return the version of a node that can be connected to."""
        host, login, tls = place
        try:
            link = await open_link(host, login, tls=tls, heartbeat=10, name="dlx-router doctor")
        except (LinkError, ChannelClosed, TimeoutError, OSError) as error:
            fix = "look at AMQP_URL, at the user, and at the broker's log"
            self._add("connection", Level.ERROR, str(error), fix)
            return None
        number = str(link.server.get("version", "0"))
        await link.close()
        self._add("connection", Level.OK, f"vhost {login.vhost!r} at {host.name}:{host.port}")
        self.findings.append(version(number))
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
            self._add("connection", Level.WARNING, text.removesuffix(": "), fix)
        finally:
            await topology.close()

    async def _connection(self, place: Place) -> None:
        """What a connection tells: alarms, messages that AMQP 0-9-1 cannot carry, own queues, missing targets."""
        await self._alarms(place)
        names = self._names
        queues = (names.quarantine, names.parking, names.inbox, names.release)
        fix = "take it out with an AMQP 1.0 client; a running router moves what stands in its way to quarantine"
        for message in await first_found(place, [(queue, LOOKED) for queue in queues]):
            self._add("AMQP 1.0", Level.WARNING, described(message), fix)
        topology = Topology(*place, names, declare=False)
        try:
            await self._own(topology)
            with suppress(TopologyError):  # _own says why
                policies = PolicySet(()) if self._loaded is None else self._loaded.policies
                for text in await missing_exchanges(topology, policies):
                    self._add("targets", Level.WARNING, text, DECLARE)
                for text, fix in await set_aside(topology):
                    self._add("parked", Level.WARNING, text, fix)
        finally:
            await topology.close()

    async def _alarms(self, place: Place) -> None:
        """Those of the cluster: the management API names the node and AMQP does not."""
        if self._api is not None:
            with suppress(ManagementError):  # reported by _broker
                self.findings.append(alarms(await self._api.alarms()))
                return
        host, login, tls = place
        try:
            link = await open_link(host, login, tls=tls, heartbeat=10, name="dlx-router doctor")
            async with Alarm(link) as alarm:
                reason = await alarm.look()
        except (LinkError, ChannelClosed, TimeoutError):
            return
        self.findings.append(alarms([(f"{host.name}:{host.port}", reason)] if reason else []))

    async def _own(self, topology: Topology) -> None:
        """What the router owns is there, or can be made; looked at passively."""
        names = topology.names
        try:
            await topology.ensure_core()
            self._add("own queues", Level.OK, f"all of {names.prefix}.* that a start needs is there")
            if self._settings.journal != "off" and not await topology.queue_exists(names.journal):
                self._add("journal", Level.NOTE, f"stream {names.journal!r} is not there yet", "a start declares it")
        except TopologyMissing as error:
            if self._settings.declare == "auto":
                things = _first([definition.partition(":")[0] for definition in error.definitions])
                fix = "a start of the router declares them"
                self._add("own queues", Level.NOTE, f"not there yet: {things}", fix)
            else:
                self._add("own queues", Level.ERROR, str(error), "declare them by hand, or set DECLARE=auto")
        except Forbidden as error:
            fix = "`dlx-router permissions` says which rights the router's user needs"
            self._add("rights", Level.ERROR, str(error), fix)
        except TopologyError as error:
            self._add("own queues", Level.ERROR, str(error), "look at the broker's log")

    async def _lacking_rights(self, vhost: str) -> None:
        """The rights that the user of AMQP_URL lacks; nothing where the management user is no administrator.

        Rights on names that policies leave open are not looked at: the broker's expression may be another and fit as
        well. Of names that share an expression those are looked at that are surely used: the first rung, one queue
        that has names of new queues written.
        """
        user = self._settings.broker_address().user
        api = Management(self._settings.management_credentials, self._tls)
        try:
            has = await api.permissions(vhost, user)
        except ManagementError:
            return
        finally:
            await api.close()
        (grant,) = grants_of(self._settings, self._loaded or LoadedPolicies(PolicySet(())), [vhost])
        needs = [(need.right.value, need.names) for need in grant.needs if not need.looks]
        named = [(right, name) for right, expression in needs for name in _names(expression, self._names)]
        if lacks := [f"{right} {name}" for right, name in named if not may((has or {}).get(right, ""), name)]:
            text = f"user {user!r} lacks rights in vhost {vhost!r}: {_first(lacks)}"
            self._add("rights", Level.ERROR, text, FIX_RIGHTS)

    async def _queues(self, vhost: str, api: Management, broker: tuple[int, ...]) -> None:
        names, loaded = self._names, self._loaded
        try:
            for problem in (*await api.check_own_queues(vhost, names), *await api.check_own_exchanges(vhost, names)):
                fix = "change that policy; the router consumes nothing"
                self._add(f"own {problem.on}s", Level.ERROR, str(problem), fix)
            attachments = () if loaded is None else loaded.attachments
            rows = [row async for row in api.every_queue(vhost)]
            for row in (row for row in rows if not names.is_own(row["name"])):
                self.findings += queue(row, names, selected=is_selected(loaded, vhost, row))
                if any(entry.vhost in {None, vhost} and entry.selector.fits(row["name"]) for entry in attachments):
                    self.findings += source(row, broker)
            limit = None
            with suppress(ManagementError):  # takes a policymaker or a monitoring user
                limit = await api.queue_limit(vhost)
            if (room := queue_limit(vhost, limit, len(rows))) is not None:
                self.findings.append(room)
            self.findings += index_counts(vhost, self._indexed, rows)
        except ManagementError as error:
            self._add("management", Level.WARNING, str(error), BAD_API)
            return
        await self._strangers(vhost)

    async def _strangers(self, vhost: str) -> None:
        user, believed = self._settings.broker_address().user, self._loaded.believed(vhost) if self._loaded else ()
        rights = Management(self._settings.management_credentials(), self._tls)
        try:
            for stranger in await rights.strangers(vhost, self._names, user, believed):
                fix = "take away what it does not need; see docs of `permissions`"
                self._add("rights", Level.NOTE, str(stranger), fix)
        except ManagementError:
            text = "who has which rights takes an administrator to ask; whether "
            self._add("rights", Level.NOTE, f"{text}{user!r} has all that it needs is not known", FIX_RIGHTS)
        finally:
            await rights.close()

    async def _plan(self, vhost: str, loaded: LoadedPolicies) -> None:
        """Each conflict of the plan, in its words, and what apply would change; nothing where the API does not tell."""
        names, api = self._names, Management(self._settings.management_credentials(), self._tls)
        owned = frozenset[str]()
        try:
            snapshot = await api.snapshot(vhost)
            with suppress(ManagementError):  # who may only look: ours are known by their names then
                owned = ownership.read_ledger(await api.parameter(ownership.ledger_name(names, vhost)))
        except ManagementError:
            return
        finally:
            await api.close()
        journal, attachments = self._settings.journal != "off", loaded.attachments
        planned = plan(
            loaded.policies, snapshot, names, owned, journal=journal, delayed=loaded.delayed, attachments=attachments
        )
        for note in planned.conflicts:
            self._add("plan", Level.WARNING, f"{note.code}: {note.text}", FIX_PLAN)
        if planned.steps and has_been_applied(planned, snapshot, names):
            text = f"vhost {vhost!r} is not as `apply` left it: {output.number(len(planned.steps), 'change')}"
            self._add("plan", Level.WARNING, text, "`dlx-router plan` shows what `apply` would change")


def version(number: str) -> Diagnosis:
    """Whether this RabbitMQ is one that we know."""
    if parsed(number) < OLDEST:
        return Diagnosis("version", Level.ERROR, f"RabbitMQ {number} is too old", "upgrade to 3.10 or later")
    return Diagnosis("version", Level.OK, f"RabbitMQ {number}")


def parsed(number: str) -> tuple[int, ...]:
    """Major and minor; (0,) where it is no version."""
    try:
        return tuple(int(part) for part in number.split(".")[:2])
    except ValueError:
        return (0,)


def clock(ahead_s: float) -> Diagnosis:
    """Ages are told and runs are cut off by clocks."""
    if abs(ahead_s) <= MAX_SKEW_S:
        return Diagnosis("clock", Level.OK, "the broker's clock and this one agree")
    way = "ahead" if ahead_s > 0 else "behind"
    text = f"the broker's clock is {abs(ahead_s):.0f} s {way} of this one"
    return Diagnosis("clock", Level.WARNING, text, "let both follow NTP: ages and cutoffs are told by them")


def alarms(raised: Sequence[tuple[str, str]]) -> Diagnosis:
    """What blocks all publishers of a cluster: (node, resource or the broker's own words) of each."""
    if not raised:
        return Diagnosis("alarms", Level.OK, "none")
    where = ", ".join(f"{resource} ({node})" for node, resource in raised)
    text = f"the broker has an alarm: {where}; it takes no messages until it is over, so letters wait where they are"
    fixes = [fix for word, fix in _ALARMS.items() if any(word in resource for _, resource in raised)]
    return Diagnosis("alarms", Level.ERROR, text, "; ".join(fixes) or "look at the broker's log")


def queue(row: Mapping[str, Any], names: Names, *, selected: bool) -> Iterator[Diagnosis]:
    """What is to be said of one queue that is not ours. `selected`: a policy of ours applies to it."""
    name, kind = row["name"], row.get("type", "classic")
    target = setting(row, "dead-letter-exchange")
    if target is None and selected and kind != "stream":
        yield Diagnosis(
            "dead-lettering",
            Level.WARNING,
            f"queue {name!r} has a policy of ours, but its dead letters are dropped by the broker",
            f"`dlx-router apply`, or a RabbitMQ policy of yours with dead-letter-exchange {names.inbox!r}",
        )
    if target not in names.inlets:
        return
    if kind == "quorum" and setting(row, "dead-letter-strategy") == "at-least-once":
        if setting(row, "overflow") != "reject-publish":
            text = f"queue {name!r}: at-least-once has no effect without overflow reject-publish"
            yield Diagnosis("hop", Level.WARNING, text, "add overflow: reject-publish to its policy")
        return
    fix = "accept it (docs/limits.md), or make it a quorum queue with dead-letter-strategy: at-least-once"
    if kind == "quorum":
        fix = "add dead-letter-strategy: at-least-once and overflow: reject-publish to its policy"
    text = f"queue {name!r} ({kind}) dead-letters at most once: what the broker drops on that hop nobody has"
    yield Diagnosis("hop", Level.NOTE, text, fix)


def queue_limit(vhost: str, limit: int | None, queues: int) -> Diagnosis | None:
    """Whether the vhost may have more queues: the router declares dead-letter queues and delay queues as needed."""
    if limit is None or limit < 0:
        return None
    text = f"vhost {vhost!r} has {queues} of at most {limit} queues (max-queues)"
    if limit - queues > ROOM:
        return Diagnosis("queue limit", Level.OK, text)
    text += ": the router cannot declare the dead-letter queues and delay queues that it needs; messages are parked"
    raised = f"rabbitmqctl set_vhost_limits -p {shlex.quote(vhost)} '{{\"max-queues\": {queues + 1000}}}'"
    fix = f"{raised}, or share dead-letter queues"
    return Diagnosis("queue limit", Level.ERROR if limit <= queues else Level.WARNING, text, fix)


def source(row: Mapping[str, Any], broker: tuple[int, ...]) -> Iterator[Diagnosis]:
    """Say of an attached queue whether a read would delete it, or the broker ends what was given back too often."""
    facts = facts_of(row)
    if why := vanishes(facts):
        text = f"source {row['name']!r} is not attached: {why}"
        yield Diagnosis("lifetime", Level.ERROR, text, "as it says; until then its messages stay where they are")
        return
    if (limit := delivery_limit(facts, broker)) is None:
        return
    drops = not facts.has_dlx
    text = f"source {row['name']!r} has delivery limit {limit}"
    text += ": beyond it the broker deletes the letter" if drops else ""
    can_rise = remedy(facts, broker) is RAISE
    fix = f"{RAISE} (2147483647), or " if can_rise else "no policy raises its argument x-delivery-limit: "
    fix += "give the queue a dead-letter-exchange"
    yield Diagnosis("delivery limit", Level.ERROR if drops else Level.NOTE, text, fix)


def index_counts(
    vhost: str, places: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]
) -> Iterator[Diagnosis]:
    """Report queues that hold another number of messages than the index counts, or that do not exist."""
    held = {row["name"]: row.get("messages") for row in rows}
    for place in places:
        if place["vhost"] != vhost or place["exchange"]:
            continue
        name, indexed = place["routing_key"], output.number(place["n"], "letter")
        if name not in held:
            text = f"the index counts {indexed} in queue {name!r} of vhost {vhost!r}, which does not exist"
            yield Diagnosis("index", Level.NOTE, text, "the running leader marks them as gone within some seconds")
        elif isinstance(messages := held[name], int) and messages != place["n"]:
            text = f"the index counts {indexed} in queue {name!r} of vhost {vhost!r}, which holds {messages}"
            fix = "look again: counts are some seconds old. Where it lasts, other programs take from or publish to it; "
            fix += "POST /api/v1/queues/import makes what lies there known"
            yield Diagnosis("index", Level.NOTE, text, fix)


def setting(row: Mapping[str, Any], key: str) -> Any:  # noqa: ANN401 - as RabbitMQ has it
    """Of a queue: its argument, or else its policy."""
    argument = (row.get("arguments") or {}).get(f"x-{key}")
    return argument if argument is not None else (row.get("effective_policy_definition") or {}).get(key)


def is_selected(loaded: LoadedPolicies | None, vhost: str, row: Mapping[str, Any]) -> bool:
    """Whether a policy says by more than a catch-all that it is about this queue, as the management API tells it."""
    if loaded is None:
        return False
    name, queue_type = row["name"], row.get("type", "classic")
    policy = loaded.policies.resolve(vhost=vhost, queue=name, reason="rejected", queue_type=queue_type)
    return policy is not None and policy.named_exactly


def _first(things: Sequence[str]) -> str:
    more = f" and {len(things) - SHOWN} more" if len(things) > SHOWN else ""
    return f"{', '.join(things[:SHOWN])}{more}"


def _names(expression: str, names: Names) -> list[str]:
    """The one name that an escaped expression fits; where it is ours and fits several, those that are surely used."""
    plain = re.sub(r"\\(.)", "", expression)
    if not re.search(r"[.^$*+?{}\[\]|()]", plain):
        return [name] if (name := re.sub(r"\\(.)", r"\1", expression)) else []
    if not expression.startswith(escaped(f"{names.prefix}.")):
        return []  # a policy's, as the broker reads it
    used = (names.delay(RUNGS[0]), names.flush("0" * 16))
    return [name for name in used if re.fullmatch(expression, name)]
