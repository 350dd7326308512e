"""Where a message goes in a vhost: exchanges, bindings and keys, as the broker would route it."""

from collections.abc import Iterable, Iterator

from dlx_router.broker.definitions import ALTERNATE
from dlx_router.broker.management import Bound, Snapshot, Standing
from dlx_router.config.policy_files.attachments import INBOX, Attachment
from dlx_router.core.names import Names
from dlx_router.core.policy import words_match
from dlx_router.core.template import Template
from dlx_router.provisioning.broker_rules import merged, on_exchange

KEY = "dead-letter-routing-key"


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


def uncaught(
    uncatchable: Iterable[tuple[Standing, str]], attachments: Iterable[Attachment], snapshot: Snapshot, names: Names
) -> Iterator[tuple[Standing, str]]:
    """DLX201: each queue whose dead letters no policy can catch and no attachment brings, with what to do.

    `uncatchable`: queues and the exchange that their argument names.
    """
    routes = Routes(snapshot)
    here = [entry for entry in attachments if entry.mode == INBOX and entry.vhost in {None, snapshot.vhost}]
    for queue, target in uncatchable:
        ends = _ends(queue, target, snapshot, routes)
        naming = [attachment for attachment in here if target in (attachment.dead_letter_exchanges or ())]
        if not any(attachment.selector.fits(end) for attachment in naming for end in ends):
            yield queue, _message(queue, target, ends, naming, names)


def _ends(queue: Standing, target: str, snapshot: Snapshot, routes: Routes) -> frozenset[str]:
    """The queues that its dead letters may reach: by the key that is set for it, else by any."""
    key = merged(queue, snapshot).get(KEY)
    if isinstance(key, str):
        return routes.queues(target, key)
    return routes.queues(target, None) - {queue.name}


def _message(queue: Standing, target: str, ends: frozenset[str], naming: list[Attachment], names: Names) -> str:
    place = next(iter(ends)) if len(ends) == 1 else "…"
    message = (
        f'queue {queue.name}: its argument x-dead-letter-exchange names "{target}", and no policy changes an argument; '
        f"attach the queue where its dead letters end (attachments: - {{queue: {place}, "
        f'dead-letter-exchanges: "{target}"}}), or delete the queue and declare it without the argument, or with '
        f"{names.inbox}"
    )
    if naming:
        message += f" (attached by that exchange is {naming[0].queue}, where none of them end: no binding leads there)"
    return message


def static(template: Template | None, queue: str, reason: str, vhost: str) -> str | None:
    """The key where it is the same for every letter, else None."""
    if template is None:
        return None
    values = {"queue": queue, "reason": reason, "vhost": vhost}
    if any(isinstance(part, tuple) and not (part[0] == "value" and part[1] in values) for part in template.parts):
        return None
    return "".join(part if isinstance(part, str) else values[part[1]] for part in template.parts)
