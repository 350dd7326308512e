"""The management API: what AMQP cannot tell, above all which policies touch our own queues.

A policy that costs letters is never overlooked because the broker had not counted yet: where its word is missing, we
compute it; where both differ, the broker is asked again until its word must be fresh, and then believed.
"""

import asyncio
import contextlib
import re
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any, Final

import httpx

from dlx_router.broker.address import Tls
from dlx_router.broker.declared import Found, Standing
from dlx_router.broker.management_words import (
    ASK,
    NOT_FOUND,
    ManagementError,
    NotThereError,
    part,
    places_of,
    shaped,
    why,
)
from dlx_router.broker.policies import Policy, effective, harmful, harmful_on_exchange
from dlx_router.broker.queue_pages import listed
from dlx_router.core.attending import QueueFacts, facts_of
from dlx_router.core.names import Names
from dlx_router.core.selection import Index

__all__ = ["Management", "ManagementError", "Problem", "QueuePolicies", "harmful"]

TIMEOUT_S: Final = 10.0
SHORT_S: Final = 3.0  # where there is another host to ask
_BROKEN: Final = 500  # the node fails, and another may not
# RuntimeError: another's failure closed it; AttributeError: uvloop's socket that was closed as it was asked
_UNASKED: Final = (httpx.HTTPError, ValueError, OSError, RuntimeError, AttributeError)
FRESH_S: Final = 12.0  # the broker counts every 5 s, and a change may just have missed one
EVERY_S: Final = 1.0
_COLUMNS: Final = "name,policy,operator_policy,effective_policy_definition"
_DECLARED: Final = "name,type,arguments,durable,auto_delete,exclusive"
RUNNING: Final = frozenset({"running", "flow", "idle"})
_HARM: Final = {
    "queue": "",
    "exchange": ": what nothing is bound for would go there, confirmed as if it had arrived",
}
_FACTS: Final = "type,arguments,exclusive,auto_delete,effective_policy_definition,messages_ready,message_bytes_ready"


@dataclass(frozen=True, slots=True)
class QueuePolicies:
    """What the broker says about one queue. `effective_policy_definition` None: it has not counted yet.

    The definition comes from policies only: the queue's arguments are not in it.
    """

    policy: str | None
    operator_policy: str | None
    effective_policy_definition: Mapping[str, Any] | None


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
        keys = ", ".join(self.keys)
        if self.is_operators:
            return (
                f"operator policy {self.policy!r} sets {keys} on {self.on} {self.name!r} in vhost {self.vhost!r}"
                f"{_HARM[self.on]}; an administrator has to exclude the router's queues from its pattern (rabbitmqctl "
                "set_operator_policy): no other policy overrides it"
            )
        return (
            f"policy {self.policy!r} sets {keys} on {self.on} {self.name!r} in vhost {self.vhost!r}{_HARM[self.on]}; "
            f"exclude the router's {self.on}s from its pattern, or shadow it by a policy of higher priority "
            f"(dlx-router apply makes it)"
        )


class Management:
    """Asks the API. `url` holds the credentials; a callable is asked anew each time, so that secrets can change.

    Of several hosts the one that answered last is asked; where it does not, the next, and that one from then on.
    `tls` is used where the URL begins with https; its files are read anew after any failure.
    """

    def __init__(self, url: str | Callable[[], str], tls: Tls | None = None) -> None:
        self._url = url if callable(url) else lambda: url
        self._tls = tls
        self._clients: dict[bool, httpx.AsyncClient] = {}  # whether it is for https: a renewed URL may be
        self._turn = 0  # which of the hosts
        self.disagreeing: set[str] = set()  # vhosts of which the last look saw a policy come or go, and has not ended
        self.ahead_s: float | None = None  # the broker's of ours, to a second, by the last answer

    def __repr__(self) -> str:
        return "Management()"  # its URL may be a file that cannot be read just now

    async def close(self) -> None:
        """Close the connections; safe to repeat."""
        clients, self._clients = self._clients, {}
        for client in clients.values():
            await client.aclose()

    @shaped
    async def vhosts(self) -> list[str]:
        """The names of all vhosts that the user may see, sorted."""
        return sorted(vhost["name"] for vhost in await self._get("vhosts?columns=name"))

    @shaped
    async def queue_facts(self, vhost: str, name: str) -> Mapping[str, Any]:
        """Type, arguments, policy in force and counts of a queue. NotThereError, a ManagementError: there is none."""
        columns = f"name,messages_unacknowledged,{_FACTS}"
        facts: Mapping[str, Any] = await self._get(f"queues/{part(vhost)}/{part(name)}?columns={columns}")
        return facts

    @shaped
    async def check_own_queues(self, vhost: str, names: Names) -> list[Problem]:
        """Every policy that must not stand, for every queue of ours that exists."""
        deadline = asyncio.get_running_loop().time() + FRESH_S
        while True:
            reported, computed = await self._both(vhost, names)
            agreed = all(
                bool(reported[queue]) == bool(computed[queue]) for queue in reported if reported[queue] is not None
            )
            if not agreed:
                self.disagreeing.add(vhost)
            if agreed or asyncio.get_running_loop().time() > deadline:
                self.disagreeing.discard(vhost)
                return [problem for queue in reported for problem in (_first(reported[queue], computed[queue]))]
            await asyncio.sleep(EVERY_S)

    @shaped
    async def check_own_exchanges(self, vhost: str, names: Names) -> list[Problem]:
        """Every policy that leads away what an exchange of ours cannot route.

        Of exchanges the broker tells its policy at once, and operator policies do not reach them.
        """
        rows = await self._get(f"exchanges/{part(vhost)}?columns=name,policy")
        policies = await self._policies("policies", vhost)
        keys = {policy.name: harmful_on_exchange(policy.definition) for policy in policies}
        own = [(row["name"], row.get("policy") or "") for row in rows if names.is_own(row["name"])]
        return [Problem(vhost, name, policy, keys[policy], "exchange") for name, policy in own if keys.get(policy)]

    @shaped
    async def standing(self, vhost: str, names: Names) -> Standing:
        """What stands under the router's names, and what is bound to its exchanges."""
        where, prefix = part(vhost), "^" + re.escape(f"{names.prefix}.")
        overview = await self._get("overview?columns=rabbitmq_version")
        queues = [queue async for queue in self._listed(vhost, prefix, _DECLARED)]
        exchanges = await self._get(f"exchanges/{where}?columns=name,type,durable,auto_delete,internal,arguments")
        bindings = await self._get(f"bindings/{where}")
        return Standing(
            {queue["name"]: _definition(queue) for queue in queues if names.is_own(queue["name"])},
            {exchange["name"]: _definition(exchange) for exchange in exchanges if names.is_own(exchange["name"])},
            [(binding["source"], binding["destination"], binding["routing_key"]) for binding in bindings],
            tuple(int(number) for number in re.findall(r"\d+", overview.get("rabbitmq_version", ""))[:2]),
        )

    @shaped
    async def head_timestamps(self, vhost: str, pattern: str) -> dict[str, float | None]:
        """Every queue whose name the expression finds → the `timestamp` (epoch seconds) of its first message.

        None where the broker does not tell: quorum queues, messages without that property, empty queues, and for some
        seconds after a change.
        """
        columns = "name,head_message_timestamp"
        return {queue["name"]: _seconds(queue) async for queue in self._listed(vhost, pattern, columns)}

    @shaped
    async def totals(self, vhost: str, queues: Iterable[str]) -> dict[str, int]:
        """Messages of each of these queues, ready or out with a consumer.

        Some seconds old: the broker counts every five. What is not there, not counted or not running is left out: while
        its node starts or has no majority, the broker says 0 of a queue that is full.
        """
        counts = {}
        for name in queues:
            path = f"queues/{part(vhost)}/{part(name)}?columns=messages,state"
            with contextlib.suppress(NotThereError):
                queue = await self._get(path)
                if isinstance(queue.get("messages"), int) and queue.get("state") in RUNNING:
                    counts[name] = queue["messages"]
        return counts

    @shaped
    async def bound_queues(self, vhost: str, exchange: str, key: str) -> list[str] | None:
        """The queues that a direct, topic or fanout exchange routes this key to, sorted.

        None where that is not all: another type, or a binding to an exchange.
        """
        where = f"exchanges/{part(vhost)}/{part(exchange)}"
        try:
            kind = (await self._get(f"{where}?columns=type")).get("type")
            bindings = await self._get(f"{where}/bindings/source")
        except NotThereError:
            return None
        ways: dict[str, Callable[[str], bool]] = {
            "fanout": lambda _bound: True,
            "direct": lambda bound: bound == key,
            "topic": partial(_topic_fits, key),
        }
        fits = ways.get(kind)
        fitting = [binding for binding in bindings if fits is not None and fits(binding["routing_key"])]
        if fits is None or any(binding["destination_type"] != "queue" for binding in fitting):
            return None
        return sorted({binding["destination"] for binding in fitting})

    @shaped
    async def facts(self, vhost: str, queue: str) -> QueueFacts | None:
        """What there is to know of a queue before it is attended; None where it does not exist."""
        try:
            return facts_of(await self._get(f"queues/{part(vhost)}/{part(queue)}?columns={_FACTS}"))
        except NotThereError:
            return None

    @shaped
    async def bound_to(self, vhost: str, exchange: str) -> list[str]:
        """The names of all queues and exchanges that get what is published to this exchange."""
        path = f"exchanges/{part(vhost)}/{part(exchange)}/bindings/source"
        return sorted({binding["destination"] for binding in await self._get(path)})

    @shaped
    async def queue_types(self, vhost: str) -> dict[str, str]:
        """Every queue's type: classic, quorum or stream."""
        return {
            queue["name"]: str(queue.get("type", "classic")) async for queue in self._listed(vhost, ".*", "name,type")
        }

    @shaped
    async def queues(self, vhost: str, pattern: str) -> list[str]:
        """The names of all queues that the expression (PCRE, as the broker reads it) finds."""
        return [queue["name"] async for queue in self._listed(vhost, pattern, "name")]

    async def _both(self, vhost: str, names: Names) -> tuple[dict[str, list[Problem] | None], dict[str, list[Problem]]]:
        """The problems as the broker says (None: it does not yet), and as we compute."""
        prefix = "^" + re.escape(f"{names.prefix}.")
        listed = [queue async for queue in self._listed(vhost, prefix, _COLUMNS) if names.is_own(queue["name"])]
        own = [queue for queue in listed if queue["name"] != names.journal]  # a stream: no letters, other policies
        reported = {queue["name"]: _queue_policies(queue) for queue in own}
        kinds = [await self._policies(kind, vhost) for kind in ("policies", "operator-policies")]
        computed = {
            queue: [
                problem
                for kind, is_operators in zip(kinds, (False, True), strict=True)
                for problem in _computed(vhost, queue, kind, is_operators=is_operators)
            ]
            for queue in reported
        }
        operators = {policy.name: policy.definition for policy in kinds[1]}
        return {queue: _problems(vhost, queue, policies, operators) for queue, policies in reported.items()}, computed

    async def _policies(self, kind: str, vhost: str) -> list[Policy]:
        return [
            Policy(
                policy["name"],
                policy["pattern"],
                policy.get("apply-to", "all"),
                policy.get("priority", 0),
                policy["definition"],
            )
            for policy in await self._get(f"{kind}/{part(vhost)}")
        ]

    def _listed(self, vhost: str, pattern: str, columns: str) -> AsyncIterator[Mapping[str, Any]]:
        """The queues whose name the expression finds."""
        return listed(self._get, vhost, pattern, columns)

    async def _get(self, path: str) -> Any:
        where, answer = await self._asked("GET", path)
        try:
            answer.raise_for_status()
            return answer.json()
        except httpx.HTTPStatusError as error:
            status = error.response.status_code
            kind = NotThereError if status == NOT_FOUND else ManagementError
            place = path.partition("?")[0]
            raise kind(f"{where}/api/{place}: {status}{why(error.response)}") from None
        except ValueError as error:
            raise ManagementError(f"{where}: {type(error).__name__} {error}; {ASK}") from None

    async def _asked(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> tuple[str, httpx.Response]:
        """Who answered, and what. Each host is asked once at most; only the last has the whole time."""
        places, credentials = places_of(self._url())
        failed = []
        for left in reversed(range(len(places))):
            turn = self._turn
            where = places[turn % len(places)]
            try:
                client = self._connected(secure=where.startswith("https:"))
                answer = await client.request(
                    method,
                    f"{where}/api/{path}",
                    json=None if body is None else dict(body),
                    auth=credentials,
                    extensions=self._named(),
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

    def _named(self) -> dict[str, Any]:
        """The name that the certificate must have, where it is not that of the URL."""
        name = None if self._tls is None else self._tls.server_name
        return {} if name is None else {"sni_hostname": name}

    def _connected(self, *, secure: bool) -> httpx.AsyncClient:
        if secure not in self._clients:
            verify: bool | ssl.SSLContext = True
            if not secure:  # trusts nobody: by http nobody is verified, and reading all authorities takes its time
                verify = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            elif self._tls is not None:
                verify = self._tls.context()
            self._clients[secure] = httpx.AsyncClient(timeout=TIMEOUT_S, trust_env=False, verify=verify)
        return self._clients[secure]


def _ahead_s(answer: httpx.Response) -> float | None:
    try:
        return parsedate_to_datetime(answer.headers["date"]).timestamp() + 0.5 - time.time()
    except (KeyError, ValueError):
        return None


def _definition(entry: Mapping[str, Any]) -> Found:
    arguments = entry.get("arguments") or {}
    return Found(
        str(entry.get("type") or arguments.get("x-queue-type") or "classic"),
        dict(arguments),
        durable=bool(entry.get("durable", True)),
        auto_delete=bool(entry.get("auto_delete")),
        exclusive=bool(entry.get("exclusive")),
        internal=bool(entry.get("internal")),
    )


def _topic_fits(key: str, pattern: str) -> bool:
    return bool(Index((), [(0, pattern)], lambda _key: ()).fitting(key))


def _seconds(queue: Mapping[str, Any]) -> float | None:
    stamp = queue.get("head_message_timestamp")
    return float(stamp) if isinstance(stamp, int | float) else None  # untold is absent, null or ""


def _queue_policies(queue: Mapping[str, Any]) -> QueuePolicies:
    raw = queue.get("effective_policy_definition")
    definition = None if raw is None else dict(raw or {})  # an empty one may come as []
    return QueuePolicies(queue.get("policy") or None, queue.get("operator_policy") or None, definition)


def _problems(
    vhost: str, queue: str, policies: QueuePolicies, operators: Mapping[str, Mapping[str, Any]]
) -> list[Problem] | None:
    """By policy and operator policy: only the latter's keys are surely known, by its definition."""
    if policies.effective_policy_definition is None:
        return None
    name, keys = policies.operator_policy, harmful(policies.effective_policy_definition)
    limits = operators.get(name or "", ())
    of_operators = keys if name and not policies.policy else tuple(key for key in keys if key in limits)
    others = tuple(key for key in keys if key not in of_operators)
    problems = [Problem(vhost, queue, policies.policy or "?", others)] if others else []
    return problems + ([Problem(vhost, queue, name or "?", of_operators, is_operators=True)] if of_operators else [])


def _computed(vhost: str, queue: str, policies: Iterable[Policy], *, is_operators: bool) -> list[Problem]:
    return [
        Problem(vhost, queue, policy.name, keys, is_operators=is_operators)
        for policy in effective(queue, policies)
        if (keys := harmful(policy.definition))
    ]


def _first(reported: list[Problem] | None, computed: list[Problem]) -> list[Problem]:
    return computed if reported is None else reported
