"""Where a message goes in a vhost: exchanges, bindings and keys, as the broker would route it."""

from collections.abc import Iterator

from dlx_router.broker.administration import Bound, Snapshot
from dlx_router.core.policy import words_match


class Routes:
    """The routes of one snapshot."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._kinds = snapshot.exchanges
        self._alternates = snapshot.alternates
        self._from: dict[str, list[Bound]] = {}
        self.names = frozenset(one.name for one in snapshot.queues)
        for one in snapshot.bindings:
            self._from.setdefault(one.source, []).append(one)

    def queues(self, exchange: str, key: str | None) -> frozenset[str]:
        """The queues that a message would reach; all that could where headers decide, or no key is known."""
        if not exchange:
            return self.names if key is None else frozenset({key} & self.names)
        found: set[str] = set()
        seen: set[str] = set()
        todo = [exchange]
        while todo:
            name = todo.pop()
            if name in seen:
                continue
            seen.add(name)
            fitting = [*self._fitting(name, key)]
            found.update(one.destination for one in fitting if one.to_queue)
            todo += [one.destination for one in fitting if not one.to_queue]
            if (key is None or not fitting) and name in self._alternates:
                todo.append(self._alternates[name])
        return frozenset(found)

    def _fitting(self, exchange: str, key: str | None) -> Iterator[Bound]:
        if key is None:
            yield from self._from.get(exchange, ())
            return
        kind = self._kinds.get(exchange, "")
        for one in self._from.get(exchange, ()):
            if kind == "direct" and one.key != key:
                continue
            if kind == "topic" and not words_match(one.key.split("."), key.split(".")):
                continue
            yield one
