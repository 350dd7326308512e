"""RabbitMQ's management API: one client for all questions, and for the changes that plan, apply and destroy make.

Errors say where, what and what to do, never credentials. A policy that costs letters is never overlooked because the
broker has not counted yet: if its statement is missing, we compute it; if both differ, the broker is asked again until
its statement must be fresh, and then believed.
Source: the HTTP API page of the management plugin (/api/index.html), tried on RabbitMQ 3.10, 4.0 and 4.3.
"""

import asyncio
import contextlib
import functools
import re
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any, Final, ParamSpec, TypeVar
from urllib.parse import quote

import httpx

from dlx_router.broker import declared
from dlx_router.broker.address import Tls
from dlx_router.broker.definitions import ALTERNATE, MARK
from dlx_router.broker.policies import Rule, effective, harmful
from dlx_router.core.attending import QueueFacts, facts_of
from dlx_router.core.names import RUNGS, Names
from dlx_router.core.selection import Index
from dlx_router.wire.address import places

TIMEOUT_S: Final = 10.0
SHORT_S: Final = 3.0  # where there is another host to ask
FRESH_S: Final = 12.0  # the broker counts every 5 s, and a change may just have missed one
EVERY_S: Final = 1.0
PAGE: Final = 500
MOST_MISSED: Final = 500  # each takes one request
DEFAULT_EXCHANGE: Final = "amq.default"
RUNNING: Final = frozenset({"running", "flow", "idle"})
ASK: Final = "is MANAGEMENT_URL the address of RabbitMQ's management plugin (port 15672, or 15671), and is it enabled?"
_BAD_REQUEST, _NOT_FOUND, _BROKEN = 400, 404, 500  # 500: the node fails, and another may not
# RuntimeError: another's failure closed it; AttributeError: uvloop's socket that was closed as it was asked
_UNASKED: Final = (httpx.HTTPError, ValueError, OSError, RuntimeError, AttributeError)
_NO_SUCH_PAGE: Final = "out of range"  # queues were deleted, and there are fewer pages now
_LIVE: Final = "live"  # what RabbitMQ 3.10 says of every queue while statistics are off
_POLICIES: Final = "name,policy,operator_policy,effective_policy_definition"
_DECLARED: Final = "name,type,arguments,durable,auto_delete,exclusive"
_EXCHANGES: Final = "name,type,durable,auto_delete,internal,arguments"
_FACTS: Final = "type,arguments,exclusive,auto_delete,effective_policy_definition,messages_ready,message_bytes_ready"
_EXAMINED: Final = (
    "name,type,arguments,policy,effective_policy_definition,exclusive,auto_delete,leader,members,messages"
)
_SNAPSHOT: Final = (
    "name,type,arguments,durable,exclusive,auto_delete,messages,messages_dlx,consumers,"
    "policy,message_stats.redeliver,head_message_timestamp,state"
)
_SAYS: Final = {
    401: "user or password is wrong, or the user may not see this; `dlx-router permissions --for` prints who may",
    403: "the user may not see this; give it the tag monitoring, or management and access to the vhost",
    _NOT_FOUND: "no such vhost or path; look at MANAGEMENT_URL and VHOSTS",
}
_NO_VHOST: Final = (
    "the management API names no vhost at all: its user sees those that it may enter, and with the tag monitoring all; "
    "a node that starts may name none for a moment. Give the user a tag or rights, or name the vhosts in VHOSTS"
)
P = ParamSpec("P")
T = TypeVar("T")


class ManagementError(Exception):
    """The API did not answer as it should; says where, what, and what to do, never credentials."""


class RefusedError(ManagementError):
    """400: the broker does not take what it was given."""


class NotThereError(ManagementError):
    """404: no such vhost, queue or path."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A policy that would cost letters on a queue or an exchange of ours."""

    vhost: str
    name: str
    policy: str
    keys: tuple[str, ...]
    on: str = "queue"
    is_operators: bool = False

    def __str__(self) -> str:
        who = "operator policy" if self.is_operators else "policy"
        harm = "" if self.on == "queue" else (
            ": what nothing is bound for would go there, confirmed as if it had arrived"
        )  # fmt: skip
        text = f"{who} {self.policy!r} sets {', '.join(self.keys)} on {self.on} {self.name!r} in vhost {self.vhost!r}"
        advice = (
            "an administrator has to exclude the router's queues from its pattern (rabbitmqctl set_operator_policy): "
            "no other policy overrides it"
            if self.is_operators
            else f"exclude the router's {self.on}s from its pattern, or shadow it by a policy of higher priority "
            "(dlx-router apply makes it)"
        )
        return f"{text}{harm}; {advice}"


@dataclass(frozen=True, slots=True)
class Stranger:
    """A user who is not the router, and what it could do that only the router needs."""

    vhost: str
    user: str
    can: tuple[str, ...]

    def __str__(self) -> str:
        return f"user {self.user} in vhost {self.vhost} can {'; '.join(self.can)}"


@dataclass(frozen=True, slots=True)
class Standing:
    """A queue as it stands. Counts are up to 5 s old; `pending`: at-least-once deaths that are not confirmed yet.

    A count is None if it is not known: statistics are off, the broker has not counted yet, or the queue's node starts
    or has no majority, of which the broker says 0 though it is full. Only quorum queues have `pending`. `is_down`: the
    broker says that it does not run; with statistics off it says so of none. `head_s`: the `timestamp` (epoch seconds)
    of its first message, if the broker gives it. `policy`: the RabbitMQ policy that the broker applies, as it said some
    seconds ago; "" if it has none or has not counted yet.
    """

    name: str
    kind: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    durable: bool = True
    exclusive: bool = False
    auto_delete: bool = False
    messages: int | None = 0
    pending: int | None = 0
    consumers: int | None = 0
    redelivered: int = 0
    head_s: float | None = None
    policy: str = ""
    is_down: bool = False


@dataclass(frozen=True, slots=True)
class Bound:
    """A binding; `to_queue` False means that the destination is an exchange. `properties`: the API's name for it."""

    source: str
    destination: str
    key: str
    to_queue: bool = True
    properties: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All of a vhost that provisioning looks at. `exchanges`: name → type. `version`: (4, 3), say.

    `marks`: exchanges that a router made under a name of somebody else's → its prefix.
    """

    vhost: str
    version: tuple[int, ...]
    queues: tuple[Standing, ...] = ()
    exchanges: Mapping[str, str] = field(default_factory=dict)
    bindings: tuple[Bound, ...] = ()
    policies: tuple[Rule, ...] = ()
    operator_policies: tuple[Rule, ...] = ()
    durable_exchanges: frozenset[str] = frozenset()
    internal_exchanges: frozenset[str] = frozenset()
    auto_delete: frozenset[str] = frozenset()
    alternates: Mapping[str, str] = field(default_factory=dict)
    marks: Mapping[str, str] = field(default_factory=dict)


def _shaped(ask: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Raise ManagementError for an answer of another form: a starting node answers 200 with nothing, or a part."""

    @functools.wraps(ask)
    async def asked(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await ask(*args, **kwargs)
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            reason = f"{type(error).__name__} {error}"
            raise ManagementError(
                f"the management API did not answer as it should ({reason}); a node may be starting, else look at "
                f"MANAGEMENT_URL"
            ) from None

    return asked


class Management:
    """Asks the API; every method raises ManagementError. Only `make`, `bind`, `unbind` and `remove` change anything.

    `url` holds the credentials; a callable is asked each time, so that secrets can change. Of several hosts the one
    that answered last is asked; if it does not answer, the next, and that one from then on. `tls` is used if the URL
    begins with https; its files are read again after any failure.
    """

    def __init__(self, url: str | Callable[[], str], tls: Tls | None = None) -> None:
        self._url = url if callable(url) else lambda: url
        self._tls = tls
        self._clients: dict[bool, httpx.AsyncClient] = {}  # whether it is for https: a renewed URL may be
        self._turn = 0  # which of the hosts
        self.disagreeing: set[str] = set()  # vhosts of which the last look saw a policy come or go, and has not ended
        self.ahead_s: float | None = None  # the broker's clock of ours, to a second, by the last answer

    def __repr__(self) -> str:
        return "Management()"  # its URL may be a file that cannot be read just now

    async def close(self) -> None:
        """Close the connections; safe to repeat."""
        clients, self._clients = self._clients, {}
        for client in clients.values():
            await client.aclose()

    # -- vhosts and the cluster ---------------------------------------------------------------------------------

    @_shaped
    async def vhosts(self) -> list[str]:
        """Return the names of all vhosts that the user may see, sorted and at least one.

        None is an error: a router that serves nothing, and a command that looks at nothing, would report success.
        """
        if not (vhosts := sorted(vhost["name"] for vhost in await self._get("vhosts?columns=name"))):
            raise ManagementError(_NO_VHOST)
        return vhosts

    @_shaped
    async def disabled_flags(self) -> list[str]:
        """Return stable feature flags that are not enabled. Takes an administrator or a monitoring user."""
        flags = await self._get("feature-flags")
        return sorted(
            flag["name"] for flag in flags if flag.get("state") != "enabled" and flag.get("stability") == "stable"
        )

    @_shaped
    async def queue_limit(self, vhost: str) -> int | None:
        """Return how many queues the vhost may have (max-queues); None without such a limit."""
        limits = await self._get(f"vhost-limits/{_part(vhost)}")
        return next((row["value"]["max-queues"] for row in limits if "max-queues" in row["value"]), None)

    async def alarms(self) -> list[tuple[str, str]]:
        """Return node and resource (memory, disk, file_descriptor_limit) of each alarm in effect in the cluster."""
        where, answer = await self._asked("GET", "health/checks/alarms")
        if answer.is_success:
            return []
        try:
            alarms = answer.json()["alarms"]  # 503; any other refusal has none
            return [(str(alarm["node"]), str(alarm["resource"])) for alarm in alarms]
        except (LookupError, TypeError, ValueError) as error:
            raise ManagementError(f"{where}: alarms could not be asked for: {type(error).__name__}; {ASK}") from None

    async def clock_ahead_s(self) -> float | None:
        """Return how far the broker's clock is ahead of ours, to a second; None if it does not say."""
        await self._asked("GET", "overview")
        return self.ahead_s

    @_shaped
    async def parameter(self, name: str) -> Any:
        """Return a global parameter, None if it does not exist. Takes the tag policymaker or administrator."""
        try:
            return (await self._get(f"global-parameters/{_part(name)}"))["value"]
        except NotThereError:
            return None

    # -- queues and exchanges -----------------------------------------------------------------------------------

    @_shaped
    async def queue_facts(self, vhost: str, name: str) -> Mapping[str, Any]:
        """Return type, arguments, policy in force and counts of a queue. NotThereError: it does not exist."""
        columns = f"name,messages_unacknowledged,{_FACTS}"
        facts: Mapping[str, Any] = await self._get(f"queues/{_part(vhost)}/{_part(name)}?columns={columns}")
        return facts

    @_shaped
    async def facts(self, vhost: str, queue: str) -> QueueFacts | None:
        """Return what there is to know of a queue before it is attended; None if it does not exist."""
        try:
            return facts_of(await self._get(f"queues/{_part(vhost)}/{_part(queue)}?columns={_FACTS}"))
        except NotThereError:
            return None

    @_shaped
    async def head_timestamps(self, vhost: str, pattern: str) -> dict[str, float | None]:
        """Return the `timestamp` (epoch seconds) of the first message of every queue that the expression finds.

        None if the broker does not give it: quorum queues, messages without that property, empty queues, and for some
        seconds after a change.
        """
        columns = "name,head_message_timestamp"
        return {queue["name"]: _head_s(queue) async for queue in self._listed(vhost, pattern, columns)}

    @_shaped
    async def totals(self, vhost: str, queues: Iterable[str]) -> dict[str, int]:
        """Return the messages of each of these queues, ready or out with a consumer; some seconds old.

        What is not there, not counted or not running is left out: while its node starts or has no majority, the broker
        says 0 of a queue that is full.
        """
        counts = {}
        for name in queues:
            with contextlib.suppress(NotThereError):
                queue = await self._get(f"queues/{_part(vhost)}/{_part(name)}?columns=messages,state")
                if (messages := _count(queue, "messages")) is not None:
                    counts[name] = messages
        return counts

    @_shaped
    async def queue_types(self, vhost: str) -> dict[str, str]:
        """Return every queue's type: classic, quorum or stream."""
        return {
            queue["name"]: str(queue.get("type", "classic")) async for queue in self._listed(vhost, ".*", "name,type")
        }

    @_shaped
    async def queues(self, vhost: str, pattern: str) -> list[str]:
        """Return the names of all queues that the expression (PCRE, as the broker reads it) finds."""
        return [queue["name"] async for queue in self._listed(vhost, pattern, "name")]

    def every_queue(self, vhost: str) -> AsyncIterator[Mapping[str, Any]]:
        """Yield every queue of the vhost: name, type, arguments, policy, flags and members."""
        return self._listed(vhost, ".*", _EXAMINED)

    @_shaped
    async def bound_queues(self, vhost: str, exchange: str, key: str) -> list[str] | None:
        """Return the queues that a direct, topic or fanout exchange routes this key to, sorted.

        None if that is not all: another type, or a binding to an exchange.
        """
        where = f"exchanges/{_part(vhost)}/{_part(exchange)}"
        try:
            kind = (await self._get(f"{where}?columns=type")).get("type")
            bindings = await self._get(f"{where}/bindings/source")
        except NotThereError:
            return None
        ways: dict[str, Callable[[str], bool]] = {
            "fanout": lambda _bound: True,
            "direct": lambda bound: bound == key,
            "topic": lambda bound: bool(Index((), [(0, bound)], lambda _key: ()).fitting(key)),
        }
        fits = ways.get(kind)
        fitting = [binding for binding in bindings if fits is not None and fits(binding["routing_key"])]
        if fits is None or any(binding["destination_type"] != "queue" for binding in fitting):
            return None
        return sorted({binding["destination"] for binding in fitting})

    @_shaped
    async def bound_to(self, vhost: str, exchange: str) -> list[str]:
        """Return the names of all queues and exchanges that get what is published to this exchange."""
        path = f"exchanges/{_part(vhost)}/{_part(exchange)}/bindings/source"
        return sorted({binding["destination"] for binding in await self._get(path)})

    # -- what is ours -------------------------------------------------------------------------------------------

    @_shaped
    async def check_own_queues(self, vhost: str, names: Names) -> list[Problem]:
        """Return every policy that must not stand, for every queue of ours that exists."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + FRESH_S
        while True:
            reported, computed = await self._both(vhost, names)
            agreed = all(seen is None or bool(seen) == bool(computed[queue]) for queue, seen in reported.items())
            if not agreed:
                self.disagreeing.add(vhost)
            if agreed or loop.time() > deadline:
                self.disagreeing.discard(vhost)
                both = [computed[queue] if seen is None else seen for queue, seen in reported.items()]
                return [problem for problems in both for problem in problems]
            await asyncio.sleep(EVERY_S)

    async def _both(self, vhost: str, names: Names) -> tuple[dict[str, list[Problem] | None], dict[str, list[Problem]]]:
        """Return the problems as the broker says (None: it has not counted yet), and as we compute."""
        listed_ = [
            queue async for queue in self._listed(vhost, _owned(names), _POLICIES) if names.is_own(queue["name"])
        ]
        own = [queue for queue in listed_ if queue["name"] != names.journal]  # a stream: no letters, other policies
        policies, operators = await self._rules("policies", vhost), await self._rules("operator-policies", vhost)
        computed = {
            queue["name"]: [
                Problem(vhost, queue["name"], rule.name, keys, is_operators=rules is operators)
                for rules in (policies, operators)
                for rule in effective(queue["name"], rules)
                if (keys := harmful(rule.definition))
            ]
            for queue in own
        }
        definitions = {rule.name: rule.definition for rule in operators}
        return {queue["name"]: _problems(vhost, queue, definitions) for queue in own}, computed

    @_shaped
    async def check_own_exchanges(self, vhost: str, names: Names) -> list[Problem]:
        """Return every policy that leads away what an exchange of ours cannot route.

        The broker gives an exchange's policy at once, and operator policies do not reach exchanges.
        """
        rows = await self._get(f"exchanges/{_part(vhost)}?columns=name,policy")
        leading = {rule.name for rule in await self._rules("policies", vhost) if ALTERNATE in rule.definition}
        own = [(row["name"], row.get("policy") or "") for row in rows if names.is_own(row["name"])]
        return [Problem(vhost, name, policy, (ALTERNATE,), "exchange") for name, policy in own if policy in leading]

    @_shaped
    async def standing(self, vhost: str, names: Names) -> declared.Standing:
        """Return what stands under the router's names, and what is bound to its exchanges."""
        version = await self._version()
        queues = [queue async for queue in self._listed(vhost, _owned(names), _DECLARED)]
        exchanges = await self._get(f"exchanges/{_part(vhost)}?columns={_EXCHANGES}")
        bindings = await self._get(f"bindings/{_part(vhost)}")
        return declared.Standing(
            {queue["name"]: _found(queue) for queue in queues if names.is_own(queue["name"])},
            {exchange["name"]: _found(exchange) for exchange in exchanges if names.is_own(exchange["name"])},
            [(binding["source"], binding["destination"], binding["routing_key"]) for binding in bindings],
            version[:2],
        )

    # -- rights -------------------------------------------------------------------------------------------------

    @_shaped
    async def permissions(self, vhost: str, user: str) -> Mapping[str, str] | None:
        """Return the user's rights in the vhost, None without any."""
        try:
            rights: Mapping[str, str] = await self._get(f"permissions/{_part(vhost)}/{_part(user)}")
        except NotThereError:
            return None
        return rights

    @_shaped
    async def strangers(self, vhost: str, names: Names, user: str, believed: Iterable[str] = ()) -> list[Stranger]:
        """Return every other user with a right on what only the router needs.

        A record is signed, so who can write to our queues can add letters but forge none; who can read the state queue
        has the key that signs. `believed`: the exchanges by which attachments say that the broker brings dead letters.
        Source: rabbitmq.com/docs/access-control.
        """
        permissions = await self._get(f"vhosts/{quote(vhost, safe='')}/permissions")
        strangers = [
            Stranger(vhost, permission["user"], tuple(_powers(permission, names, sorted({*believed}))))
            for permission in permissions
            if permission["user"] != user
        ]
        return sorted((stranger for stranger in strangers if stranger.can), key=lambda stranger: stranger.user)

    # -- provisioning -------------------------------------------------------------------------------------------

    @_shaped
    async def snapshot(self, vhost: str) -> Snapshot:
        """Return what stands in the vhost now."""
        where, version = _part(vhost), await self._version()
        queues = [_standing(queue) async for queue in self._listed(vhost, "", _SNAPSHOT)]
        exchanges = await self._get(f"exchanges/{where}?columns={_EXCHANGES}")
        if not exchanges:  # every vhost has those that AMQP asks for
            raise ManagementError(f"vhost {vhost!r}: the management API names no exchange; its node may be starting")
        named = {exchange["name"]: exchange for exchange in exchanges}
        return Snapshot(
            vhost=vhost,
            version=version or (0,),
            queues=tuple(sorted(queues, key=lambda queue: queue.name)),
            exchanges={name: exchange["type"] for name, exchange in named.items()},
            bindings=tuple(map(bound_of, await self._get(f"bindings/{where}"))),
            policies=tuple(await self._rules("policies", vhost)),
            operator_policies=tuple(await self._rules("operator-policies", vhost)),
            durable_exchanges=frozenset(name for name, exchange in named.items() if exchange["durable"]),
            internal_exchanges=frozenset(name for name, exchange in named.items() if exchange.get("internal")),
            auto_delete=frozenset(name for name, exchange in named.items() if exchange["auto_delete"]),
            alternates=_argument(exchanges, ALTERNATE),
            marks=_argument(exchanges, MARK),
        )

    async def make(self, path: Sequence[str], body: Mapping[str, Any]) -> None:
        """PUT what stands under this path: `("policies", vhost, name)`, say."""
        await self._send("PUT", path, body)

    async def bind(self, vhost: str, bound: Bound) -> None:
        """Bind; a binding that exists already stays one."""
        path = ("bindings", vhost, "e", bound.source, "q" if bound.to_queue else "e", bound.destination)
        await self._send("POST", path, {"routing_key": bound.key})

    async def unbind(self, vhost: str, bound: Bound) -> None:
        """Remove a binding to a queue; it is no error that it is gone already."""
        await self.remove(("bindings", vhost, "e", bound.source, "q", bound.destination, bound.properties or "~"))

    async def remove(self, path: Sequence[str]) -> None:
        """DELETE what stands under this path; it is no error that it is gone already."""
        await self._send("DELETE", path, None)

    async def _send(self, method: str, path: Sequence[str], body: Mapping[str, Any] | None) -> None:
        """Send a change. It can be repeated: the broker may have read it from a host that did not answer."""
        asked = "/".join(map(_part, path))
        where, answer = await self._asked(method, asked, body)
        if answer.is_success or (method == "DELETE" and answer.status_code == _NOT_FOUND):
            return
        reason, status = _reason(answer, 300), answer.status_code
        if status in {401, 403}:  # the broker does not say which rights would do
            shown = f" ({reason})" if reason else ""
            reason = (
                f"the user may not do this{shown}; dlx-router permissions --for apply (or destroy) prints what it needs"
            )
        error = RefusedError if status == _BAD_REQUEST else ManagementError
        shown = reason or "look at the broker's log"
        raise error(f"{method} {where}/api/{asked}: {status}, {shown}")

    # -- asking -------------------------------------------------------------------------------------------------

    async def _version(self) -> tuple[int, ...]:
        text = (await self._get("overview?columns=rabbitmq_version")).get("rabbitmq_version", "")
        return tuple(int(number) for number in re.findall(r"\d+", text)[:3])

    async def _rules(self, kind: str, vhost: str) -> list[Rule]:
        return [rule_of(policy) for policy in await self._get(f"{kind}/{_part(vhost)}")]

    def _listed(self, vhost: str, pattern: str, columns: str) -> AsyncIterator[Mapping[str, Any]]:
        return listed(self._get, vhost, pattern, columns)

    async def _get(self, path: str) -> Any:
        where, answer = await self._asked("GET", path)
        try:
            answer.raise_for_status()
            return answer.json()
        except httpx.HTTPStatusError:
            status, reason = answer.status_code, _reason(answer, 200)
            kind = NotThereError if status == _NOT_FOUND else ManagementError
            place, advice = path.partition("?")[0], _SAYS.get(status, "look at its log")
            shown = f" ({reason})" if reason else ""
            raise kind(f"{where}/api/{place}: {status}{shown}, {advice}") from None
        except ValueError as error:
            raise ManagementError(f"{where}: {type(error).__name__} {error}; {ASK}") from None

    async def _asked(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> tuple[str, httpx.Response]:
        """Return who answered, and what. Each host is asked once at most; only the last has the whole time."""
        try:
            address = places(self._url())
        except ValueError:
            raise ManagementError("MANAGEMENT_URL cannot be read; write https://user:password@host:15671") from None
        server_name = None if self._tls is None else self._tls.server_name  # if it is not that of the URL
        failed = []
        for left in reversed(range(len(address.where))):
            turn = self._turn
            where = address.where[turn % len(address.where)]
            try:
                client = self._connected(secure=where.startswith("https:"))
                answer = await client.request(
                    method,
                    f"{where}/api/{path}",
                    json=None if body is None else dict(body),
                    auth=(address.user, address.password),
                    extensions={} if server_name is None else {"sni_hostname": server_name},
                    timeout=SHORT_S if left else TIMEOUT_S,
                )
            except asyncio.CancelledError:  # who asked waited no longer: the next is asked elsewhere
                self._turn += self._turn == turn
                raise
            except _UNASKED as error:
                failed.append(f"{where}: {f'{type(error).__name__} {error}'.strip()}")
                await self.close()
            else:
                if answer.status_code < _BROKEN or not left:
                    self.ahead_s = _ahead_s(answer)
                    return where, answer
                failed.append(f"{where}: {answer.status_code}")
            self._turn += self._turn == turn  # else another question has passed over it meanwhile
        raise ManagementError(f"{'; '.join(failed)}; {ASK}")

    def _connected(self, *, secure: bool) -> httpx.AsyncClient:
        if secure not in self._clients:
            verify: bool | ssl.SSLContext = True
            if not secure:  # trusts no authority: http has no certificates, and reading all authorities takes time
                verify = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            elif self._tls is not None:
                verify = self._tls.context()
            self._clients[secure] = httpx.AsyncClient(timeout=TIMEOUT_S, trust_env=False, verify=verify)
        return self._clients[secure]


async def listed(  # noqa: C901 - pages, and then what no page had
    get: Callable[[str], Awaitable[Any]], vhost: str, pattern: str, columns: str
) -> AsyncIterator[Mapping[str, Any]]:
    """Yield each queue whose name the expression finds, once; `columns` have the name. ManagementError.

    A page is cut out of all queues, by number, when it is asked for. So a queue that is deleted moves those behind it
    by one place, and the first of the next page is in no page. No number shows that: if another was made meanwhile
    there are as many as before. So the names are compared with a list that comes in one answer.
    """
    seen: set[str] = set()
    page, pages, where = 0, 1, f"queues/{_part(vhost)}"
    while page < pages:
        page += 1
        query = f"page={page}&page_size={PAGE}&use_regex=true&name={quote(pattern, safe='')}&columns={columns}"
        try:
            answer = await get(f"{where}?{query}")
            pages, items = answer["page_count"], answer["items"]
        except (KeyError, TypeError):
            raise ManagementError("the answer is no list of queues; look at MANAGEMENT_URL") from None
        except ManagementError as error:
            if page == 1 or _NO_SUCH_PAGE not in str(error).lower():
                raise
            break
        for queue in items:
            if queue["name"] not in seen:  # one that was made moves those behind it to the next page
                seen.add(queue["name"])
                yield queue
    if page == 1:
        return
    fits = re.compile(pattern).search  # names need no statistics, so the whole list costs little
    names = [row["name"] for row in await get(f"{where}?columns=name")]
    missed = [name for name in names if name not in seen and fits(name)]
    if len(missed) > MOST_MISSED:
        raise ManagementError(
            f"vhost {vhost!r}: {len(missed)} queues came or moved while they were listed, more than are asked for one "
            f"by one; run it again when fewer come and go"
        )
    for name in missed:
        try:
            queue = await get(f"{where}/{_part(name)}?columns={columns}")
        except NotThereError:
            continue  # deleted since
        yield queue


def may(expression: str, name: str) -> bool:
    """Return whether a permission covers a name, as the broker does: unanchored, and the empty one matches nothing.

    What only the broker understands is taken to match.
    """
    try:
        return re.search(expression or "^$", name) is not None
    except re.error:
        return True


def bound_of(binding: Mapping[str, Any]) -> Bound:
    """Read a binding as the API and a definitions file have it."""
    to_queue = binding["destination_type"] == "queue"
    return Bound(
        binding["source"], binding["destination"], binding["routing_key"], to_queue, binding.get("properties_key", "")
    )


def rule_of(policy: Mapping[str, Any]) -> Rule:
    """Read a policy as the API and a definitions file have it."""
    priority, apply_to = policy.get("priority", 0), policy.get("apply-to", "all")
    return Rule(policy["name"], policy["pattern"], dict(policy["definition"]), priority, apply_to)


def _part(name: str) -> str:
    """Quote a name as a part of a path. ManagementError for those that would lead to something else."""
    if name in {"", ".", ".."}:
        raise ManagementError(f"the management API cannot be asked about anything that is called {name!r}")
    return quote(name, safe="", errors="surrogateescape")


def _owned(names: Names) -> str:
    return "^" + re.escape(f"{names.prefix}.")


def _reason(answer: httpx.Response, most: int) -> str:
    """Return a line of what the broker said."""
    try:
        return " ".join(str(answer.json().get("reason", "")).split())[:most]
    except (ValueError, AttributeError):
        return ""


def _ahead_s(answer: httpx.Response) -> float | None:
    try:
        return parsedate_to_datetime(answer.headers["date"]).timestamp() + 0.5 - time.time()
    except (KeyError, ValueError):
        return None


def _problems(vhost: str, queue: Mapping[str, Any], operators: Mapping[str, Mapping[str, Any]]) -> list[Problem] | None:
    """Return what the broker says, by policy and operator policy: only the latter's keys are surely known."""
    definition = queue.get("effective_policy_definition")  # from policies only: the queue's arguments are not in it
    if definition is None:
        return None
    keys = harmful(definition or {})  # an empty one may come as []
    policy, operator = queue.get("policy"), queue.get("operator_policy")
    limits = operators.get(operator or "", ())
    of_operator = keys if operator and not policy else tuple(key for key in keys if key in limits)
    others = tuple(key for key in keys if key not in of_operator)
    problems = [Problem(vhost, queue["name"], policy or "?", others)] if others else []
    if of_operator:
        problems.append(Problem(vhost, queue["name"], operator or "?", of_operator, is_operators=True))
    return problems


def _found(entry: Mapping[str, Any]) -> declared.Found:
    arguments = entry.get("arguments") or {}
    return declared.Found(
        str(entry.get("type") or arguments.get("x-queue-type") or "classic"),
        dict(arguments),
        durable=bool(entry.get("durable", True)),
        auto_delete=bool(entry.get("auto_delete")),
        exclusive=bool(entry.get("exclusive")),
        internal=bool(entry.get("internal")),
    )


def _standing(queue: Mapping[str, Any]) -> Standing:
    entry, stats = _found(queue), queue.get("message_stats") or {}
    kind = entry.kind.removeprefix("rabbit_").split("_")[0]
    return Standing(
        name=queue["name"],
        kind=kind,
        arguments=entry.arguments,
        durable=entry.durable,
        exclusive=entry.exclusive,
        auto_delete=entry.auto_delete,
        messages=_count(queue, "messages"),
        pending=_count(queue, "messages_dlx") if kind == "quorum" else 0,
        consumers=_count(queue, "consumers"),
        redelivered=int(stats.get("redeliver") or 0) if isinstance(stats, Mapping) else 0,
        head_s=_head_s(queue),
        policy=str(queue.get("policy") or ""),
        is_down=queue.get("state", _LIVE) not in {_LIVE, *RUNNING},
    )


def _count(queue: Mapping[str, Any], key: str) -> int | None:
    number = queue.get(key)
    return number if isinstance(number, int) and queue.get("state") in RUNNING else None


def _head_s(queue: Mapping[str, Any]) -> float | None:
    stamp = queue.get("head_message_timestamp")
    return float(stamp) if isinstance(stamp, int | float) else None  # unknown is absent, null or ""


def _argument(exchanges: Sequence[Mapping[str, Any]], name: str) -> dict[str, str]:
    """Return the value of this argument by exchange, of those that have it."""
    having = (exchange for exchange in exchanges if name in (exchange.get("arguments") or {}))
    return {exchange["name"]: str(exchange["arguments"][name]) for exchange in having}


def _powers(permission: Mapping[str, Any], names: Names, believed: Sequence[str]) -> Iterator[str]:
    inlets, write = [names.inbox, names.fifo, names.release], permission["write"]
    if may(write, DEFAULT_EXCHANGE):
        yield f"publish to any queue by its name, {names.state} too (write on {DEFAULT_EXCHANGE})"
    if writable := [name for name in inlets if may(write, name)]:
        yield f"publish to {', '.join(writable)}"
    if any(may(write, names.delay(rung)) for rung in RUNGS):
        yield f"publish to {names.prefix}.delay.*"
    if may(permission["read"], names.state):
        yield f"read the key that signs records (read on {names.state})"
    own = [*inlets, names.declared, names.return_, names.parking, names.quarantine, names.state]
    if any(may(permission["configure"], name) for name in (*own, *map(names.delay, RUNGS))):
        yield f"delete what the router owns (configure on {names.prefix}.*)"
    if writable := [name or DEFAULT_EXCHANGE for name in believed if may(write, name or DEFAULT_EXCHANGE)]:
        on = ", ".join(writable)
        yield f"say by x-death where a letter failed (write on {on}, named by dead-letter-exchanges)"
