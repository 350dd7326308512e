"""What stands in a vhost, read whole, and changed one thing at a time: for plan, apply, destroy and lint --broker.

Nothing is changed but by `make` and `remove`, and what they are given decides; errors say where, what and what now.
Source: the HTTP API page of the management plugin (/api/index.html), tried on RabbitMQ 3.10, 4.0 and 4.3.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import httpx

from dlx_router.broker.definitions import ALTERNATE, MARK
from dlx_router.broker.management import RUNNING, Management, _seconds
from dlx_router.broker.management_words import ManagementError, NotThereError, RefusedError, part, shaped

__all__ = ["Administration", "Bound", "ManagementError", "RefusedError", "Rule", "Snapshot", "Standing"]

_COLUMNS: Final = (
    "name,type,arguments,durable,exclusive,auto_delete,messages,messages_dlx,consumers,"
    "policy,message_stats.redeliver,head_message_timestamp,state"
)
_LIVE: Final = "live"  # what RabbitMQ 3.10 says of every queue while statistics are off


@dataclass(frozen=True, slots=True)
class Standing:
    """A queue as it stands. Counts are up to 5 s old; `pending`: at-least-once deaths that are not confirmed yet.

    A count is None where it is not known: statistics are off, the broker has not counted yet, or the queue's node
    starts or has no majority, of which the broker says 0 though it is full. Only quorum queues have `pending`.
    `is_down`: the broker says that it does not run; with statistics off it says so of none.
    `head_s`: the `timestamp` (epoch seconds) of its first message, where the broker tells it. `policy`: the RabbitMQ
    policy that the broker applies, as it said some seconds ago; "" where it has none or has not counted yet.
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
class Rule:
    """A RabbitMQ policy: its pattern is an unanchored regular expression, of all that fit the highest priority wins."""

    name: str
    pattern: str
    definition: Mapping[str, Any]
    priority: int = 0
    apply_to: str = "queues"

    def body(self) -> dict[str, Any]:
        """What the API is given."""
        return {
            "pattern": self.pattern,
            "definition": dict(self.definition),
            "priority": self.priority,
            "apply-to": self.apply_to,
        }


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


class Administration(Management):
    """The management API for those who may change things. Every method raises ManagementError."""

    @shaped
    async def snapshot(self, vhost: str) -> Snapshot:
        """What stands there now."""
        where = part(vhost)
        overview = await self._get("overview?columns=rabbitmq_version")
        queues = [_standing(queue) async for queue in self._listed(vhost, "", _COLUMNS)]
        exchanges = await self._get(f"exchanges/{where}?columns=name,type,durable,auto_delete,internal,arguments")
        if not exchanges:  # every vhost has those that AMQP asks for
            raise ManagementError(f"vhost {vhost!r}: the management API names no exchange; its node may be starting")
        return Snapshot(
            vhost=vhost,
            version=_version(overview.get("rabbitmq_version", "")),
            queues=tuple(sorted(queues, key=lambda queue: queue.name)),
            exchanges={exchange["name"]: exchange["type"] for exchange in exchanges},
            bindings=tuple(map(bound_of, await self._get(f"bindings/{where}"))),
            policies=tuple(map(rule_of, await self._get(f"policies/{where}"))),
            operator_policies=tuple(map(rule_of, await self._get(f"operator-policies/{where}"))),
            durable_exchanges=frozenset(exchange["name"] for exchange in exchanges if exchange["durable"]),
            internal_exchanges=frozenset(exchange["name"] for exchange in exchanges if exchange.get("internal")),
            auto_delete=frozenset(exchange["name"] for exchange in exchanges if exchange["auto_delete"]),
            alternates=_argument(exchanges, ALTERNATE),
            marks=_argument(exchanges, MARK),
        )

    @shaped
    async def parameter(self, name: str) -> Any:
        """A global parameter, None where it is not there. Takes the tag policymaker or administrator."""
        try:
            return (await self._get(f"global-parameters/{part(name)}"))["value"]
        except NotThereError:
            return None

    @shaped
    async def permissions(self, vhost: str, user: str) -> Mapping[str, str] | None:
        """The user's rights in the vhost, None without any."""
        try:
            path = f"permissions/{part(vhost)}/{part(user)}"
            rights: Mapping[str, str] = await self._get(path)
        except NotThereError:
            return None
        return rights

    async def make(self, path: Sequence[str], body: Mapping[str, Any]) -> None:
        """PUT what stands under this path: `("policies", vhost, name)`, say."""
        await self._send("PUT", path, body)

    async def bind(self, vhost: str, bound: Bound) -> None:
        """Bind; a binding that is there already stays one."""
        to = "q" if bound.to_queue else "e"
        await self._send(
            "POST", ("bindings", vhost, "e", bound.source, to, bound.destination), {"routing_key": bound.key}
        )

    async def unbind(self, vhost: str, bound: Bound) -> None:
        """Take a binding to a queue away; it is no error that it is gone already."""
        path = ("bindings", vhost, "e", bound.source, "q", bound.destination, bound.properties or "~")
        await self._send("DELETE", path, None)

    async def remove(self, path: Sequence[str]) -> None:
        """DELETE what stands under this path; it is no error that it is gone already."""
        await self._send("DELETE", path, None)

    async def _send(self, method: str, path: Sequence[str], body: Mapping[str, Any] | None) -> None:
        """All of these may be said twice: the broker may have heard it from a host that did not answer."""
        asked = "/".join(map(part, path))
        where, answer = await self._asked(method, asked, body)
        if answer.is_success or (method == "DELETE" and answer.status_code == httpx.codes.NOT_FOUND):
            return
        error = RefusedError if answer.status_code == httpx.codes.BAD_REQUEST else ManagementError
        raise error(f"{method} {where}/api/{asked}: {answer.status_code}, {_reason(answer)}")


def _reason(answer: httpx.Response) -> str:
    """What the broker said, in a line; of rights in our words too, because it does not say which would do."""
    try:
        reason = str(answer.json().get("reason", ""))
    except (ValueError, AttributeError):
        reason = ""
    reason = " ".join(reason.split())[:300]
    if answer.status_code in {httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN}:
        why = f" ({reason})" if reason else ""
        return f"the user may not do this{why}; dlx-router permissions --for apply (or destroy) prints what it needs"
    return reason or "look at the broker's log"


def _argument(exchanges: Sequence[Mapping[str, Any]], name: str) -> dict[str, str]:
    """Exchange → the value of its argument of this name, those that have it."""
    having = (exchange for exchange in exchanges if name in (exchange.get("arguments") or {}))
    return {exchange["name"]: str(exchange["arguments"][name]) for exchange in having}


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3]) or (0,)


def _standing(queue: Mapping[str, Any]) -> Standing:
    arguments = queue.get("arguments") or {}
    stats = queue.get("message_stats") or {}
    kind = str(queue.get("type") or arguments.get("x-queue-type") or "classic").removeprefix("rabbit_").split("_")[0]
    return Standing(
        name=queue["name"],
        kind=kind,
        arguments=dict(arguments),
        durable=bool(queue.get("durable", True)),
        exclusive=bool(queue.get("exclusive", False)),
        auto_delete=bool(queue.get("auto_delete", False)),
        messages=_count(queue, "messages"),
        pending=_count(queue, "messages_dlx") if kind == "quorum" else 0,
        consumers=_count(queue, "consumers"),
        redelivered=int(stats.get("redeliver") or 0) if isinstance(stats, Mapping) else 0,
        head_s=_seconds(queue),
        policy=str(queue.get("policy") or ""),
        is_down=queue.get("state", _LIVE) not in {_LIVE, *RUNNING},
    )


def _count(queue: Mapping[str, Any], key: str) -> int | None:
    number = queue.get(key)
    return number if isinstance(number, int) and queue.get("state") in RUNNING else None


def bound_of(binding: Mapping[str, Any]) -> Bound:
    """As the API and a definitions file have it."""
    to_queue = binding["destination_type"] == "queue"
    return Bound(
        binding["source"], binding["destination"], binding["routing_key"], to_queue, binding.get("properties_key", "")
    )


def rule_of(policy: Mapping[str, Any]) -> Rule:
    """As the API and a definitions file have it."""
    return Rule(
        policy["name"],
        policy["pattern"],
        dict(policy["definition"]),
        policy.get("priority", 0),
        policy.get("apply-to", "all"),
    )
