"""`dlx-router doctor`: looks at everything a router depends on, changes nothing, and needs no running router.

Exit: 0 nothing to mend, 1 warnings or errors, 2 settings that cannot be used, or no broker.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import httpx

from dlx_router.broker.address import Host, Login, Tls
from dlx_router.broker.answers import ChannelClosed, LinkError
from dlx_router.broker.control import Forbidden, TopologyError
from dlx_router.broker.every_vhost import every_vhost
from dlx_router.broker.examination import Examination
from dlx_router.broker.link import open_link
from dlx_router.broker.management import ManagementError
from dlx_router.broker.rights import Rights
from dlx_router.broker.topology import Topology, TopologyMissing
from dlx_router.broker.unreadable import described, first_found
from dlx_router.cli import output
from dlx_router.cli.doctor import broker_checks, diagnosis
from dlx_router.cli.doctor.diagnosis import Diagnosis, Level
from dlx_router.cli.groups import unverified
from dlx_router.config.environment.settings import Settings, SettingsError
from dlx_router.config.policy_files.loader import LoadedPolicies, PolicyErrors, load_policies
from dlx_router.core.names import Names
from dlx_router.core.printable import redacted
from dlx_router.index.reader import IndexAway, Reader
from dlx_router.index.schema import place_of

NEEDED_FLAGS: Final = frozenset({"quorum_queue", "stream_queue"})
NO_API: Final = "set MANAGEMENT_URL: without it queues, policies, flags and clocks cannot be looked at"
BAD_API: Final = "mend MANAGEMENT_URL or its user: until then queues, policies, flags and clocks cannot be looked at"
SHOWN: Final = 4
READYZ_S: Final = 5.0
LOOKED: Final = 500  # messages at the head of a queue


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
    _print(findings, as_json=as_json)
    if not reached:
        return output.WRONG_USE
    return output.FINDINGS if any(finding.level in {Level.WARNING, Level.ERROR} for finding in findings) else output.OK


async def examined(settings: Settings) -> tuple[list[Diagnosis], bool]:
    """All findings, worst first, and whether a broker answered."""
    findings: list[Diagnosis] = []
    try:
        async for finding in _everything(settings):
            findings.append(finding)  # noqa: PERF401 - what was found before a broker fails is kept
    except Unreachable:
        return _sorted(findings), False
    return _sorted(findings), True


def _sorted(findings: Sequence[Diagnosis]) -> list[Diagnosis]:
    order = [*Level]
    return sorted(findings, key=lambda finding: -order.index(finding.level))


async def _everything(settings: Settings) -> AsyncIterator[Diagnosis]:
    loaded = None
    try:
        loaded = load_policies(settings.policies, settings.names)
        yield Diagnosis("policies", Level.OK, output.number(len(loaded.policies.policies), "policy", "policies"))
    except PolicyErrors as error:
        yield Diagnosis("policies", Level.ERROR, str(error), "dlx-router policy lint shows each with its line")
    for warning in settings.warnings():
        yield Diagnosis("settings", Level.WARNING, warning, "see dlx-router run --help")
    for finding in (*_files(settings), *_router(settings)):
        yield finding
    examination = (
        Examination(settings.management_credentials(), Tls(*settings.tls_files)) if settings.has_management() else None
    )
    try:
        vhosts, broken = await _vhosts(settings, examination)
        if broken is not None:
            yield broken
        if examination is None:
            yield Diagnosis("management", Level.WARNING, "the management API is not asked", NO_API)
        else:
            async for finding in _broker(examination):
                yield finding
        for vhost in vhosts:
            async for finding in _vhost(settings, vhost, loaded, examination):
                yield finding
    finally:
        if examination is not None:
            await examination.close()


def _files(settings: Settings) -> list[Diagnosis]:
    findings = []
    if settings.journal == "off":
        fix = "set JOURNAL=best-effort: without it nothing can be explained later, and there are no redrive tasks"
        findings.append(Diagnosis("journal", Level.WARNING, "JOURNAL=off", fix))
    path = getattr(settings, "index_path", None)
    if path:
        folder = Path(path).absolute().parent
        if folder.is_dir() and os.access(folder, os.W_OK):
            findings.append(Diagnosis("index", Level.OK, f"{path} can be written"))
        else:
            fix = "make the folder, and let the router's user write there"
            findings.append(Diagnosis("index", Level.ERROR, f"{folder} cannot be written", fix))
        findings += _signatures(path)
    return findings


def _signatures(path: str) -> list[Diagnosis]:
    """What an index that is there says of who wrote the journal."""
    try:
        lines = unverified(Reader(place_of(path)).signatures())
    except IndexAway:
        return []
    fix = "a journal of before routers signed has such events; else `dlx-router permissions` says who else may write"
    return [Diagnosis("journal", Level.WARNING, line, fix) for line in lines]


def _router(settings: Settings) -> list[Diagnosis]:
    """What a running router reports of itself; that none answers is no fault."""
    url = settings.api_url.rstrip("/").removesuffix("/api/v1")
    shown = redacted(url) if "://" in url else url.rpartition("@")[2]
    try:
        answer = httpx.get(f"{url}/readyz", timeout=READYZ_S, trust_env=False).json()
        reported = [(Level.WARNING, str(text)) for text in answer["reasons"]]
        reported += [(Level.NOTE, str(text)) for text in answer.get("notes", ())]
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, LookupError, TypeError):
        text = f"no router answers at {shown}, so what it would report is unknown"
        return [Diagnosis("router", Level.NOTE, text, "set DLX_ROUTER_API_URL to its address")]
    fix = f"reported by the router at {shown}; `dlx-router status` shows it again"
    return [Diagnosis("router", level, text, fix) for level, text in reported]


async def _vhosts(settings: Settings, examination: Examination | None) -> tuple[list[str], Diagnosis | None]:
    vhosts = settings.vhost_list()
    if vhosts != ["*"] or examination is None:
        return vhosts, None
    try:
        return await every_vhost(examination), None
    except ManagementError as error:
        return [], Diagnosis("vhosts", Level.ERROR, f"VHOSTS=* cannot be resolved: {error}", "name the vhosts")


async def _broker(examination: Examination) -> AsyncIterator[Diagnosis]:
    try:
        yield diagnosis.clock(await examination.clock_ahead_s() or 0.0)
        missing = await examination.disabled_flags()
    except ManagementError as error:
        yield Diagnosis("management", Level.WARNING, str(error), BAD_API)
        return
    needed = [name for name in missing if name in NEEDED_FLAGS]
    if missing:
        level = Level.ERROR if needed else Level.WARNING
        fix = "rabbitmqctl enable_feature_flag all"
        yield Diagnosis("feature flags", level, f"not enabled: {', '.join(missing)}", fix)
    else:
        yield Diagnosis("feature flags", Level.OK, "all stable ones are enabled")


async def _vhost(
    settings: Settings, vhost: str, loaded: LoadedPolicies | None, examination: Examination | None
) -> AsyncIterator[Diagnosis]:
    address = settings.broker_address()
    tls = Tls(*settings.tls_files) if address.tls else None
    login = Login(address.user, address.password.get_secret_value(), vhost)
    version: tuple[int, ...] = (0,)
    for host in [Host(name, port) for name, port in address.hosts]:
        try:
            link = await open_link(host, login, tls=tls, heartbeat=10, name="dlx-router doctor")
        except (LinkError, ChannelClosed, TimeoutError, OSError) as error:
            fix = "look at AMQP_URL, at the user, and at the broker's log"
            yield Diagnosis("connection", Level.ERROR, str(error), fix)
            continue
        number = str(link.server.get("version", "0"))
        version = diagnosis.parsed(number)
        await link.close()
        yield Diagnosis("connection", Level.OK, f"vhost {vhost!r} at {host.name}:{host.port}")
        yield diagnosis.version(number)
        async for finding in _here(settings, (host, login, tls), examination, loaded):
            yield finding
        break
    else:
        raise Unreachable
    if examination is None:
        return
    async for finding in broker_checks.lacking_rights(settings, vhost, loaded):
        yield finding
    async for finding in _queues(settings, vhost, loaded, examination, version):
        yield finding
    if loaded is not None:
        async for finding in broker_checks.plan_conflicts(settings, vhost, loaded):
            yield finding


async def _here(
    settings: Settings,
    place: tuple[Host, Login, Tls | None],
    examination: Examination | None,
    loaded: LoadedPolicies | None,
) -> AsyncIterator[Diagnosis]:
    """What a connection tells."""
    if (alarm := await broker_checks.alarms(*place, examination)) is not None:
        yield alarm
    for unreadable in await _unreadable(settings, place):
        yield unreadable
    topology = Topology(*place, settings.names, declare=False)
    try:
        async for finding in _own(settings, topology):
            yield finding
        async for finding in broker_checks.attention(topology, loaded):
            yield finding
    finally:
        await topology.close()


async def _unreadable(settings: Settings, place: tuple[Host, Login, Tls | None]) -> list[Diagnosis]:
    """What RabbitMQ cannot hand to an AMQP 0-9-1 client, in queues that the router or people read by one."""
    names = settings.names
    queues = (names.quarantine, names.parking, names.inbox, names.release)
    messages = await first_found(place, [(queue, LOOKED) for queue in queues])
    fix = "take it out of there with an AMQP 1.0 client; a running router moves what stands in its way to quarantine"
    return [Diagnosis("AMQP 1.0", Level.WARNING, described(message), fix) for message in messages]


async def _own(settings: Settings, topology: Topology) -> AsyncIterator[Diagnosis]:
    """What the router owns is there, or can be made; looked at passively."""
    fix = "`dlx-router permissions` says which rights the router's user needs"
    names = topology.names
    try:
        await topology.ensure_core()
        yield Diagnosis("own queues", Level.OK, f"all of {names.prefix}.* that a start needs is there")
        if settings.journal != "off" and not await topology.queue_exists(names.journal):
            yield Diagnosis("journal", Level.NOTE, f"stream {names.journal!r} is not there yet", "a start declares it")
    except TopologyMissing as error:
        if settings.declare == "auto":
            things = [definition.partition(":")[0] for definition in error.definitions]
            more = f" and {len(things) - SHOWN} more" if len(things) > SHOWN else ""
            text = f"not there yet: {', '.join(things[:SHOWN])}{more}"
            yield Diagnosis("own queues", Level.NOTE, text, "a start of the router declares them")
        else:
            yield Diagnosis("own queues", Level.ERROR, str(error), "declare them by hand, or set DECLARE=auto")
    except Forbidden as error:
        yield Diagnosis("rights", Level.ERROR, str(error), fix)
    except TopologyError as error:
        yield Diagnosis("own queues", Level.ERROR, str(error), "look at the broker's log")


async def _queues(
    settings: Settings, vhost: str, loaded: LoadedPolicies | None, examination: Examination, version: tuple[int, ...]
) -> AsyncIterator[Diagnosis]:
    names = settings.names
    try:
        problems = await examination.check_own_queues(vhost, names)
        problems += await examination.check_own_exchanges(vhost, names)
        for problem in problems:
            yield Diagnosis(
                f"own {problem.on}s", Level.ERROR, str(problem), "change that policy; the router consumes nothing"
            )
        attachments = () if loaded is None else loaded.attachments
        rows = [row async for row in examination.every_queue(vhost)]
        for row in (row for row in rows if not names.is_own(row["name"])):
            for finding in diagnosis.queue(row, names, selected=_selected(loaded, vhost, row)):
                yield finding
            if any(entry.vhost in {None, vhost} and entry.selector.fits(row["name"]) for entry in attachments):
                for finding in diagnosis.source(row, version):
                    yield finding
        room = diagnosis.queue_limit(vhost, await _limit(examination, vhost), len(rows))
        if room is not None:
            yield room
    except ManagementError as error:
        yield Diagnosis("management", Level.WARNING, str(error), BAD_API)
        return
    async for stranger in _strangers(settings, vhost, names, loaded.believed(vhost) if loaded is not None else ()):
        yield stranger


async def _limit(examination: Examination, vhost: str) -> int | None:
    with suppress(ManagementError):  # takes a policymaker or a monitoring user
        return await examination.queue_limit(vhost)
    return None


def _selected(loaded: LoadedPolicies | None, vhost: str, row: Mapping[str, Any]) -> bool:
    """Whether a policy says by more than a catch-all that it is about this queue, as the management API tells it."""
    if loaded is None:
        return False
    queue, queue_type = row["name"], row.get("type", "classic")
    policy = loaded.policies.resolve(vhost=vhost, queue=queue, reason="rejected", queue_type=queue_type)
    return policy is not None and policy.named_exactly


async def _strangers(settings: Settings, vhost: str, names: Names, believed: Iterable[str]) -> AsyncIterator[Diagnosis]:
    rights = Rights(settings.management_credentials(), Tls(*settings.tls_files))
    try:
        for stranger in await rights.strangers(vhost, names, settings.broker_address().user, believed):
            yield Diagnosis(
                "rights", Level.NOTE, str(stranger), "take away what it does not need; see docs of `permissions`"
            )
    except ManagementError:
        user = settings.broker_address().user
        text = (
            f"who has which rights takes an administrator to ask; whether {user!r} has all that it needs is not known"
        )
        yield Diagnosis("rights", Level.NOTE, text, broker_checks.FIX_RIGHTS)
    finally:
        await rights.close()


def _print(findings: Sequence[Diagnosis], *, as_json: bool) -> None:
    if as_json:
        output.as_json([asdict(finding) for finding in findings])
        return
    rows = [(finding.level.value, finding.check, finding.found, finding.fix) for finding in findings]
    output.table(("", "check", "found", "fix"), rows)
