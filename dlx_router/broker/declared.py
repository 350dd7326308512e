"""What stands under our names, compared with what we would have declared: somebody may have been there before us.

Harmful is what can cost a letter, or send it elsewhere; all else is worth a note. Pure. Source: RabbitMQ's queue and
exchange arguments, as rabbit_amqqueue:declare_args and rabbit_exchange compare them.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from dlx_router.broker.definitions import (
    ALTERNATE,
    LOCATOR,
    Binding,
    Definition,
    Exchange,
    Queue,
    core,
    rescued,
    rung,
)
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
    """All that we would declare under these names: the core; of rungs and delayed queues those there."""
    there = set(queues)
    rungs = [definition for ms in RUNGS if names.delay(ms) in there for definition in rung(names, ms)]
    delayed = [Queue(name, rescued(names)) for name in sorted(there) if names.is_delayed(name)]
    return (*core(names), *rungs, *delayed)


def compared(names: Names, stands: Standing) -> Verdict:
    """All of ours that stands, beside what we would have declared."""
    definitions, odd, catching = owned(names, stands.queues), [], set()
    for definition in definitions:
        if isinstance(definition, Queue) and definition.name in stands.queues:
            differences = of_queue(definition, stands.queues[definition.name], names, stands.version)
            odd += differences
            if catches(definition, names, differences):
                catching.add(definition.name)
        elif isinstance(definition, Exchange) and definition.name in stands.exchanges:
            odd += of_exchange(definition, stands.exchanges[definition.name], names)
    if stands.bindings is not None:
        odd += of_bindings(definitions, stands.bindings, names)
    return Verdict(odd, frozenset(catching))


def of_queue(queue: Queue, actual: Found, names: Names, version: Version) -> list[Difference]:
    """How the queue differs from its definition."""
    what, wanted, args = f"queue {queue.name!r}", dict(queue.arguments), actual.arguments
    odd = [Difference(what, key, value, not value, harmful=True) for key, value in _flags(actual)]
    if actual.kind != wanted["x-queue-type"]:
        odd.append(Difference(what, "x-queue-type", actual.kind, wanted["x-queue-type"], harmful=True))
    for key in sorted({*wanted, *args} - {"x-queue-type"}):
        is_, should = args.get(key), wanted.get(key)
        if is_ != should and not _alike(key, is_, version):
            odd.append(Difference(what, key, is_, should, _harms(queue, key, args, names)))
    return odd


def _flags(actual: Found) -> list[tuple[str, bool]]:
    flags = [("durable", actual.durable, False), ("auto-delete", actual.auto_delete, True)]
    flags.append(("exclusive", actual.exclusive, True))
    return [(key, is_) for key, is_, bad in flags if is_ is bad]


def _alike(key: str, actual: object, version: Version) -> bool:
    """A limit that no letter reaches is as good as ours; where the leader first was says nothing of today."""
    if key == LOCATOR:
        return True
    if key != "x-delivery-limit":
        return False
    if actual is None:
        return bool(version) and version < _LIMIT_SINCE
    return isinstance(actual, int) and (actual >= NO_LIMIT or (actual < 0 and version >= _LIMIT_SINCE))


def _harms(queue: Queue, key: str, arguments: Mapping[str, Any], names: Names) -> bool:
    if key in _LENGTHS:  # what refuses is told; but the broker's own hop into some queues is not confirmed
        fed = {*names.inlets, names.retired}
        return arguments.get("x-overflow") != _REFUSES or queue.name in fed
    if key == "x-overflow":  # without it at-least-once is silently at-most-once
        return "x-dead-letter-strategy" in queue.arguments or any(limit in arguments for limit in _LENGTHS)
    if key in _LEADS:  # a queue of ours that nothing dies in may lead anywhere
        return key in queue.arguments
    if key == "x-single-active-consumer":
        return key in queue.arguments
    if key == "x-delivery-limit":  # nobody takes from a rung, so nothing is returned there
        return "x-message-ttl" not in queue.arguments
    return key in _ENDS


def of_exchange(exchange: Exchange, actual: Found, names: Names) -> list[Difference]:
    """As `of_queue`. What an exchange of ours cannot route has to come back, and an alternate one would take it."""
    what = f"exchange {exchange.name!r}"
    odd = [Difference(what, key, value, not value, harmful=True) for key, value in _flags(actual)]
    if actual.kind != exchange.kind:
        odd.append(Difference(what, "type", actual.kind, exchange.kind, harmful=True))
    if actual.internal:  # the broker may publish there all the same, and the router may not
        harmful = exchange.name not in {*names.inlets, names.release}
        odd.append(Difference(what, "internal", True, False, harmful))  # noqa: FBT003 - values
    for key, value in sorted(actual.arguments.items()):
        odd.append(Difference(what, key, value, None, harmful=key == ALTERNATE))
    return odd


def of_bindings(
    definitions: Iterable[Definition], bound: Iterable[tuple[str, str, str]], names: Names
) -> list[Difference]:
    """`bound`: (exchange, destination, key) of all. A letter of ours goes to one queue of ours, and nobody else's.

    A binding of a rung or a delayed queue that is missing is not harmful: these are made in steps, where a broker may
    stop in between, and again before they are used. A session that waited for the binding would never make it.
    """
    wanted = {(binding.exchange, binding.queue): binding.key for binding in definitions if isinstance(binding, Binding)}
    ours, there = {exchange for exchange, _ in wanted}, set(bound)
    existing = {(exchange, to) for exchange, to, _ in there}
    first = [binding for binding in core(names) if isinstance(binding, Binding)]
    odd = [
        Difference(f"exchange {exchange!r}", f"binding of queue {to!r}", None, key, Binding(to, exchange, key) in first)
        for (exchange, to), key in wanted.items()
        if (exchange, to) not in existing
    ]
    for exchange, to, key in sorted(there):
        what, label = f"exchange {exchange!r}", f"binding of {to!r}, key"
        if exchange in ours and (exchange, to) not in wanted and to != names.observe:
            odd.append(Difference(what, label, key, None, harmful=names.is_own(to)))
        elif exchange == names.return_ and key != names.return_key(to):
            odd.append(Difference(what, label, key, names.return_key(to), harmful=names.is_own(to)))
    return odd


def gone_meanwhile(names: Names, odd: Iterable[Difference]) -> str:
    """What else has to be known where the advice is to delete, with a semicolon before it; "": nothing."""
    inlets = {f"exchange {name!r}" for name in names.inlets}
    if any(difference.what in inlets and not difference.key.startswith("binding ") for difference in odd):
        return (
            "; while the exchange of an inbox is gone the broker drops what dies, so let nothing die then, or declare "
            "it again yourself at once"
        )
    return ""


def catches(queue: Queue, names: Names, odd: Iterable[Difference]) -> bool:
    """Whether what is rejected in the queue surely falls into quarantine."""
    return queue.arguments.get("x-dead-letter-routing-key") == names.quarantine and not any(
        difference.key in {*_LEADS, "x-queue-type", "x-overflow"} for difference in odd
    )


def refused(text: str) -> tuple[str, object] | None:
    """(argument, its value there) of a declaration that the broker refused; None where it says something else."""
    match = _INEQUIVALENT.search(text)
    return None if match is None else (match["key"], _read(match["theirs"]))


def _read(text: str) -> object:
    """As the broker prints it: none, 'true', the value 'x' of type 'longstr'."""
    if text == "none":
        return None
    match = _TYPED.fullmatch(text)
    value, kind = (text.strip("'"), "bool") if match is None else (match["value"], match["type"])
    if kind == "bool":
        return {"true": True, "false": False}.get(value, value)
    return int(value) if kind != "longstr" and re.fullmatch("-?[0-9]+", value) else value


def _shown(value: object) -> str:
    return "(none)" if value is None else repr(value)
