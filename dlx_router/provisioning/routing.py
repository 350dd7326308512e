"""Where a message goes in a vhost: exchanges, bindings and keys, as the broker would route it."""

from collections.abc import Iterator

from dlx_router.broker.administration import Bound, Snapshot
from dlx_router.broker.definitions import ALTERNATE
from dlx_router.core.policy import words_match
from dlx_router.provisioning.broker_rules import on_exchange


def _alternates(snapshot: Snapshot) -> dict[str, str]:
    """Exchange → its alternate exchange: an argument holds before a policy. The default exchange has none."""
    if not any(ALTERNATE in rule.definition for rule in snapshot.policies):
        return dict(snapshot.alternates)
    policies = {name: on_exchange(snapshot.policies, name) for name in snapshot.exchanges if name}
    leads = {name: rule.definition.get(ALTERNATE) for name, rule in policies.items() if rule is not None}
    return {name: other for name, other in leads.items() if isinstance(other, str)} | dict(snapshot.alternates)


class Routes:
    """The routes of one snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._kinds = snapshot.exchanges
        self._alternates = _alternates(snapshot)
        self._from: dict[str, list[Bound]] = {}
        self.names = frozenset(queue.name for queue in snapshot.queues)
        for binding in snapshot.bindings:
            self._from.setdefault(binding.source, []).append(binding)

    def queues(self, exchange: str, key: str | None) -> frozenset[str]:
        """The queues that a message would reach; all that could where headers decide, or no key is known."""
        if not exchange:
            return self.names if key is None else frozenset({key} & self.names)
        reached: set[str] = set()
        seen: set[str] = set()
        todo = [exchange]
        while todo:
            name = todo.pop()
            if name in seen:
                continue
            seen.add(name)
            fitting = [*self._fitting(name, key)]
            reached.update(binding.destination for binding in fitting if binding.to_queue)
            todo += [binding.destination for binding in fitting if not binding.to_queue]
            if (key is None or not fitting) and name in self._alternates:
                todo.append(self._alternates[name])
        return frozenset(reached)

    def _fitting(self, exchange: str, key: str | None) -> Iterator[Bound]:
        if key is None:
            yield from self._from.get(exchange, ())
            return
        kind = self._kinds.get(exchange, "")
        for binding in self._from.get(exchange, ()):
            if kind == "direct" and binding.key != key:
                continue
            if kind == "topic" and not words_match(binding.key.split("."), key.split(".")):
                continue
            yield binding
