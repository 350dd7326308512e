"""What stands under our names, compared with what we would have declared: somebody may have been there before us.

Harmful is what can cost a letter, or send it elsewhere; all else is worth a note. Pure. Source: RabbitMQ's queue and
exchange arguments, as rabbit_amqqueue:declare_args and rabbit_exchange compare them.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from dlx_router.broker.definitions import LOCATOR, Binding, Definition, Exchange, Queue, core, rescued, rung, shard
from dlx_router.core.attending import NO_LIMIT, Version
from dlx_router.core.names import RUNGS, Names

_LIMIT_SINCE: Final = (4, 0)
_LENGTHS: Final = ("x-max-length", "x-max-length-bytes")
_ENDS: Final = ("x-message-ttl", "x-expires")
_LEADS: Final = ("x-dead-letter-exchange", "x-dead-letter-routing-key", "x-dead-letter-strategy")
_REFUSES: Final = "reject-publish"
_INEQUIVALENT: Final = re.compile(
    r"inequivalent arg '(?P<key>[^']+)' for .*?: received (?P<ours>.*?) but current is (?P<theirs>none|'[^']*'|"
    r"the value '.*?' of type '[^']*')",
    re.DOTALL,
)
_TYPED: Final = re.compile(r"the value '(?P<value>.*)' of type '(?P<type>[^']*)'", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Found:
    """A queue or exchange as it stands. `kind`: the type."""

    kind: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    durable: bool = True
    auto_delete: bool = False
    exclusive: bool = False
    internal: bool = False


class Difference(NamedTuple):
    """`what`: the queue, exchange or binding, as people call it."""

    what: str
    key: str
    found: object
    wanted: object
    harmful: bool

    def __str__(self) -> str:
        return f"{self.what} has {self.key} {_shown(self.found)} where the router declares {_shown(self.wanted)}"


class Standing(NamedTuple):
    """What stands under our names. `bindings`: (exchange, destination, key); None: they were not told."""

    queues: Mapping[str, Found]
    exchanges: Mapping[str, Found]
    bindings: Sequence[tuple[str, str, str]] | None
    version: Version


class Verdict(NamedTuple):
    """`catching`: the queues from which what is rejected surely falls into quarantine."""

    odd: list[Difference]
    catching: frozenset[str]


def owned(names: Names, queues: Iterable[str]) -> tuple[Definition, ...]:
    """All that we would declare under these names: the core; of rungs, delayed queues and old inboxes those there."""
    there = set(queues)
    rungs = [one for ms in RUNGS if names.delay(ms) in there for one in rung(names, ms)]
    delayed = [Queue(name, rescued(names)) for name in sorted(there) if names.is_delayed(name)]
    shards = [one for name in names.unnamed_inboxes if name in there for one in shard(names, name)]
    return (*core(names), *rungs, *delayed, *shards)


def compared(names: Names, stands: Standing) -> Verdict:
    """All of ours that stands, beside what we would have declared."""
    definitions, odd, catching = owned(names, stands.queues), [], set()
    for one in definitions:
        if isinstance(one, Queue) and one.name in stands.queues:
            found = of_queue(one, stands.queues[one.name], names, stands.version)
            odd += found
            if catches(one, names, found):
                catching.add(one.name)
        elif isinstance(one, Exchange) and one.name in stands.exchanges:
            odd += of_exchange(one, stands.exchanges[one.name], names)
    if stands.bindings is not None:
        odd += of_bindings(definitions, stands.bindings, names)
    return Verdict(odd, frozenset(catching))


def of_queue(one: Queue, found: Found, names: Names, version: Version) -> list[Difference]:
    """How the queue differs from its definition."""
    what, wanted, args = f"queue {one.name!r}", dict(one.arguments), found.arguments
    odd = [Difference(what, key, value, not value, harmful=True) for key, value in _flags(found)]
    if found.kind != wanted["x-queue-type"]:
        odd.append(Difference(what, "x-queue-type", found.kind, wanted["x-queue-type"], harmful=True))
    for key in sorted({*wanted, *args} - {"x-queue-type"}):
        is_, should = args.get(key), wanted.get(key)
        if is_ != should and not _alike(key, is_, version):
            odd.append(Difference(what, key, is_, should, _harms(one, key, args, names)))
    return odd


def _flags(found: Found) -> list[tuple[str, bool]]:
    flags = [("durable", found.durable, False), ("auto-delete", found.auto_delete, True)]
    flags.append(("exclusive", found.exclusive, True))
    return [(key, is_) for key, is_, bad in flags if is_ is bad]


def _alike(key: str, found: object, version: Version) -> bool:
    """A limit that no letter reaches is as good as ours; where the leader first was says nothing of today."""
    if key == LOCATOR:
        return True
    if key != "x-delivery-limit":
        return False
    if found is None:
        return bool(version) and version < _LIMIT_SINCE
    return isinstance(found, int) and (found >= NO_LIMIT or (found < 0 and version >= _LIMIT_SINCE))


def _harms(one: Queue, key: str, found: Mapping[str, Any], names: Names) -> bool:
    if key in _LENGTHS:  # what refuses is told; but the broker's own hop into some queues is not confirmed
        fed = {*names.inlets, names.retired}
        return found.get("x-overflow") != _REFUSES or one.name in fed
    if key == "x-overflow":  # without it at-least-once is silently at-most-once
        return "x-dead-letter-strategy" in one.arguments or any(limit in found for limit in _LENGTHS)
    if key in _LEADS:  # a queue of ours that nothing dies in may lead anywhere
        return key in one.arguments
    if key == "x-single-active-consumer":
        return key in one.arguments
    if key == "x-delivery-limit":  # nobody takes from a rung, so nothing is returned there
        return "x-message-ttl" not in one.arguments
    return key in _ENDS


def of_exchange(one: Exchange, found: Found, names: Names) -> list[Difference]:
    """As `of_queue`."""
    what = f"exchange {one.name!r}"
    odd = [Difference(what, key, value, not value, harmful=True) for key, value in _flags(found)]
    if found.kind != one.kind:
        odd.append(Difference(what, "type", found.kind, one.kind, harmful=True))
    if found.internal:  # the broker may publish there all the same, and the router may not
        harmful = one.name not in {*names.inlets, names.release}
        odd.append(Difference(what, "internal", True, False, harmful))  # noqa: FBT003 - values
    odd += [Difference(what, key, found.arguments[key], None, harmful=False) for key in sorted(found.arguments)]
    return odd


def of_bindings(
    definitions: Iterable[Definition], bound: Iterable[tuple[str, str, str]], names: Names
) -> list[Difference]:
    """`bound`: (exchange, destination, key) of all. A letter of ours goes to one queue of ours, and nobody else's.

    A binding of a rung or a delayed queue that is missing is not harmful: these are made in steps, where a broker may
    stop in between, and again before they are used. A session that waited for the binding would never make it.
    """
    wanted = {(one.exchange, one.queue): one.key for one in definitions if isinstance(one, Binding)}
    ours, there = {exchange for exchange, _ in wanted}, set(bound)
    found = {(exchange, to) for exchange, to, _ in there}
    first = [one for one in core(names) if isinstance(one, Binding)]
    odd = [
        Difference(f"exchange {exchange!r}", f"binding of queue {to!r}", None, key, Binding(to, exchange, key) in first)
        for (exchange, to), key in wanted.items()
        if (exchange, to) not in found
    ]
    for exchange, to, key in sorted(there):
        what, label = f"exchange {exchange!r}", f"binding of {to!r}, key"
        if exchange in ours and (exchange, to) not in wanted and to != names.observe:
            odd.append(Difference(what, label, key, None, harmful=names.is_own(to)))
        elif exchange == names.return_ and key != names.return_key(to):
            odd.append(Difference(what, label, key, names.return_key(to), harmful=names.is_own(to)))
    return odd


def catches(one: Queue, names: Names, odd: Iterable[Difference]) -> bool:
    """Whether what is rejected in the queue surely falls into quarantine."""
    return one.arguments.get("x-dead-letter-routing-key") == names.quarantine and not any(
        difference.key in {*_LEADS, "x-queue-type", "x-overflow"} for difference in odd
    )


def refused(text: str) -> tuple[str, object] | None:
    """(argument, its value there) of a declaration that the broker refused; None where it says something else."""
    said = _INEQUIVALENT.search(text)
    return None if said is None else (said["key"], _read(said["theirs"]))


def _read(said: str) -> object:
    """As the broker prints it: none, 'true', the value 'x' of type 'longstr'."""
    if said == "none":
        return None
    found = _TYPED.fullmatch(said)
    value, kind = (said.strip("'"), "bool") if found is None else (found["value"], found["type"])
    if kind == "bool":
        return {"true": True, "false": False}.get(value, value)
    return int(value) if kind != "longstr" and re.fullmatch("-?[0-9]+", value) else value


def _shown(value: object) -> str:
    return "(none)" if value is None else repr(value)
