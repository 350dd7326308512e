"""A definitions file of RabbitMQ, read as the vhosts that it is an export of: its retry loops and all else.

What `plan --adopt` sees in a broker is seen here by the same eyes; what is no loop is carried over as it stands.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from dlx_router.broker.administration import Snapshot, Standing, bound_of, rule_of
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
    found = [(one, *detected(one, names or Names())) for one in _snapshots(document)]
    but = {place for snapshot, loops, _ in found for place in _settled(snapshot, loops)}
    out = rabbitmq.read(data, lambda _: document, but=but)
    for snapshot, loops, waiting in found:
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
    highest = max((one.priority for one in snapshot.policies if named(one, work.name, work.kind)), default=0)
    more |= {"priority": highest} if highest else {}
    write(loop, out, **more, definition=kept, inherit=False)
    out.leave(f"queue {loop.delay.name}", NO_CONSUMERS.format(work.name))


def _settled(snapshot: Snapshot, loops: list[Loop]) -> Iterator[tuple[str, str | None, str]]:
    """What has no policy of its own any more: both queues of each loop, and policies of queues that only wait."""
    vhost = snapshot.vhost or None
    waits = {one.delay.name for one in loops}
    for name in waits.union(one.work.name for one in loops):
        yield "queue", vhost, name
    for rule in snapshot.policies:
        about = {one.name for one in snapshot.queues if in_force(snapshot.policies, one.name, one.kind) is rule}
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
        of = {kind: [one for where, one in found if where == vhost] for kind, found in parts.items()}
        exchanges = [one for one in of["exchanges"] if isinstance(one.get("type"), str)]
        yield Snapshot(
            vhost=vhost,
            version=(0,),
            queues=tuple(map(_standing, of["queues"])),
            exchanges=_BUILT_IN | {one["name"]: one["type"] for one in exchanges},
            bindings=tuple(map(bound_of, filter(_is_binding, of["bindings"]))),
            policies=tuple(map(rule_of, filter(_is_rule, of["policies"]))),
            alternates=_alternates(exchanges),
        )


def _by_vhost(document: Mapping[str, Any], kind: str, alone: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    found = document.get(kind)
    for one in found if isinstance(found, list) else ():
        if isinstance(one, Mapping) and (kind == "bindings" or isinstance(one.get("name"), str)):
            vhost = one.get("vhost", alone)
            if isinstance(vhost, str):
                yield vhost, one


def _standing(one: Mapping[str, Any]) -> Standing:
    said = one.get("arguments")
    arguments = said if isinstance(said, Mapping) else {}
    kind = one.get("type") or arguments.get("x-queue-type")
    return Standing(one["name"], kind if isinstance(kind, str) else "classic", arguments)


def _is_binding(one: Mapping[str, Any]) -> bool:
    return all(isinstance(one.get(key), str) for key in ("source", "destination", "destination_type", "routing_key"))


def _is_rule(one: Mapping[str, Any]) -> bool:
    priority = one.get("priority", 0)
    plain = isinstance(one.get("pattern"), str) and isinstance(one.get("definition"), Mapping)
    return plain and isinstance(priority, int) and isinstance(one.get("apply-to", "all"), str)


def _alternates(exchanges: list[Mapping[str, Any]]) -> dict[str, str]:
    said = ((one["name"], one.get("arguments")) for one in exchanges)
    found = ((name, more.get("alternate-exchange")) for name, more in said if isinstance(more, Mapping))
    return {name: other for name, other in found if isinstance(other, str)}
