"""A definitions file of RabbitMQ, read as the vhosts that it is an export of: its retry loops and all else.

What `plan --adopt` sees in a broker is seen here by the same eyes; what is no loop is carried over as it stands.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from dlx_router.broker.management import Snapshot, Standing, bound_of, rule_of
from dlx_router.config.dialects import rabbitmq
from dlx_router.config.dialects.import_result import Carried, Parse, parsed_json
from dlx_router.core.names import Names
from dlx_router.provisioning.adopt import Loop, detected, tell, write
from dlx_router.provisioning.broker_rules import in_force, named

NO_CONSUMERS = "an export does not tell of consumers: if somebody consumes it, take policy adopted-{} out"
_BUILT_IN = {"amq.direct": "direct", "amq.topic": "topic", "amq.fanout": "fanout"}


def read(data: bytes, parse: Parse = parsed_json, names: Names | None = None) -> Carried:
    """The policies of all vhosts. Raises what rabbitmq.read does."""
    document = parse(data)
    vhosts = [(snapshot, *detected(snapshot, names or Names())) for snapshot in _snapshots(document)]
    but = {place for snapshot, loops, _ in vhosts for place in _settled(snapshot, loops)}
    out = rabbitmq.read(data, lambda _: document, but=but)
    for snapshot, loops, waiting in vhosts:
        for loop in loops:
            _carry(loop, snapshot, out)
        for other in waiting:
            tell(other, out)
    return out


def _carry(loop: Loop, snapshot: Snapshot, out: Carried) -> None:
    """The policy of a loop, and of what else RabbitMQ's own policy says; it alone is about the queue."""
    work = loop.work
    rule = in_force(snapshot.policies, work.name, work.kind)
    kept = {} if rule is None else {key: rule.definition[key] for key in rabbitmq.KEYS if key in rule.definition}
    kept = {key: value for key, value in kept.items() if not key.startswith("dead-letter-")}
    more: dict[str, Any] = {"vhost": snapshot.vhost} if snapshot.vhost else {}
    highest = max(
        (candidate.priority for candidate in snapshot.policies if named(candidate, work.name, work.kind)), default=0
    )
    more |= {"priority": highest} if highest else {}
    write(loop, out, **more, definition=kept, inherit=False)
    out.leave(f"queue {loop.delay.name}", NO_CONSUMERS.format(work.name))


def _settled(snapshot: Snapshot, loops: list[Loop]) -> Iterator[tuple[str, str | None, str]]:
    """What has no policy of its own any more: both queues of each loop, and policies of queues that only wait."""
    vhost = snapshot.vhost or None
    waits = {loop.delay.name for loop in loops}
    for name in waits.union(loop.work.name for loop in loops):
        yield "queue", vhost, name
    for rule in snapshot.policies:
        about = {queue.name for queue in snapshot.queues if in_force(snapshot.policies, queue.name, queue.kind) is rule}
        if about and about <= waits:
            yield "policy", vhost, rule.name


def _snapshots(document: Any) -> Iterator[Snapshot]:  # noqa: ANN401 - anybody's JSON
    """The vhosts, of what is well-formed: rabbitmq.read refuses what is not."""
    if not isinstance(document, Mapping):
        return
    alone = document.get("vhost")
    kinds = ("queues", "exchanges", "bindings", "policies")
    parts = {kind: [*_by_vhost(document, kind, alone if isinstance(alone, str) else "")] for kind in kinds}
    for vhost in sorted({vhost for vhost, _ in parts["queues"]}):
        of = {kind: [item for where, item in items if where == vhost] for kind, items in parts.items()}
        exchanges = [exchange for exchange in of["exchanges"] if isinstance(exchange.get("type"), str)]
        yield Snapshot(
            vhost=vhost,
            version=(0,),
            queues=tuple(map(_standing, of["queues"])),
            exchanges=_BUILT_IN | {exchange["name"]: exchange["type"] for exchange in exchanges},
            bindings=tuple(map(bound_of, filter(_is_binding, of["bindings"]))),
            policies=tuple(map(rule_of, filter(_is_rule, of["policies"]))),
            alternates=_alternates(exchanges),
        )


def _by_vhost(document: Mapping[str, Any], kind: str, alone: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    items = document.get(kind)
    for item in items if isinstance(items, list) else ():
        if isinstance(item, Mapping) and (kind == "bindings" or isinstance(item.get("name"), str)):
            vhost = item.get("vhost", alone)
            if isinstance(vhost, str):
                yield vhost, item


def _standing(queue: Mapping[str, Any]) -> Standing:
    value = queue.get("arguments")
    arguments = value if isinstance(value, Mapping) else {}
    kind = queue.get("type") or arguments.get("x-queue-type")
    return Standing(queue["name"], kind if isinstance(kind, str) else "classic", arguments)


def _is_binding(item: Mapping[str, Any]) -> bool:
    return all(isinstance(item.get(key), str) for key in ("source", "destination", "destination_type", "routing_key"))


def _is_rule(item: Mapping[str, Any]) -> bool:
    priority = item.get("priority", 0)
    plain = isinstance(item.get("pattern"), str) and isinstance(item.get("definition"), Mapping)
    return plain and isinstance(priority, int) and isinstance(item.get("apply-to", "all"), str)


def _alternates(exchanges: list[Mapping[str, Any]]) -> dict[str, str]:
    pairs = ((exchange["name"], exchange.get("arguments")) for exchange in exchanges)
    alternates = ((name, more.get("alternate-exchange")) for name, more in pairs if isinstance(more, Mapping))
    return {name: other for name, other in alternates if isinstance(other, str)}
