"""Permissions: the rights without which a router with these settings and policies cannot do its work, and no others.

RabbitMQ asks for configure to declare, for write to publish and to bind a queue, for read to consume, to bind to an
exchange and to give a queue a dead-letter exchange. A passive look asks for nothing, from 4.2.7 and 4.3.1 on for any of
the three. Names are Erlang regular expressions; queues and exchanges of one name share their rights. Where policies
meet on some queues only, the rights of each combination are granted. Source: rabbitmq.com/docs/access-control.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from dlx_router.config.policy_files.attachments import GUARD, Attachment
from dlx_router.config.policy_files.delayed_exchanges import Delayed
from dlx_router.config.rights.name_patterns import dead_letter_queues, escaped, matched, may_meet, names_of
from dlx_router.core.dead_letter_queues import deletes
from dlx_router.core.names import Names
from dlx_router.core.policy import DEFAULTS, Policy, PolicySet, SelectorKind
from dlx_router.core.target import short_name

__all__ = ["DEFAULT_EXCHANGE", "LOOKS", "NOTHING", "Grant", "Need", "Right", "Setup", "escaped", "matched", "needed"]

NOTHING: Final = "^$"
DEFAULT_EXCHANGE: Final = r"amq\.default"
LOOKS: Final = "looks what is there, for which RabbitMQ 4.2.7, 4.3.1 and later ask a right"


class Right(StrEnum):
    """What RabbitMQ grants on names."""

    CONFIGURE = "configure"
    WRITE = "write"
    READ = "read"


@dataclass(frozen=True, slots=True)
class Need:
    """One right on the names that a regular expression finds.

    `whole`: it has to fit the whole name. `looks`: only to look, which older brokers ask no right for.
    """

    right: Right
    names: str
    why: str
    whole: bool = True
    looks: bool = False


@dataclass(frozen=True, slots=True)
class Grant:
    """All that a router's user needs in one vhost; no two needs are about the same right on the same names."""

    vhost: str
    needs: tuple[Need, ...]

    def regex(self, right: Right) -> str:
        """The expression for `rabbitmqctl set_permissions`."""
        needs = [need for need in self.needs if need.right is right]
        whole = "|".join(need.names for need in needs if need.whole)
        parts = [f"^(?:{whole})$"] if whole else []
        return "|".join([*parts, *(f"(?:{need.names})" for need in needs if not need.whole)]) or NOTHING

    def without(self, need: Need) -> "Grant":
        """The same, less one."""
        return replace(self, needs=tuple(other for other in self.needs if other is not need))


@dataclass(frozen=True, slots=True)
class Setup:
    """The settings that matter here. `key_file`: the key comes from a file, so the state queue is not read."""

    names: Names
    declare: bool = True
    key_file: bool = False
    journal: bool = False
    index: bool = False  # made from the journal, by whoever leads the state queue


def needed(
    policies: PolicySet,
    sources: Iterable[str],
    setup: Setup,
    vhost: str,
    attachments: Iterable[Attachment | Delayed] = (),
) -> Grant:
    """The rights for these policies in this vhost; `sources` are queues that are consumed besides the attached ones."""
    here = [policy for policy in policies.policies if policy.vhost in {None, vhost}]
    ways = [_Ways(policy, here) for policy in here]
    retries = any(way.retries for way in ways)
    all_ = [*_own(setup, retries=retries), *(need for way in ways for need in way.needs(declare=setup.declare))]
    all_ += _locks(setup) if deletes(policies) and setup.declare else []
    all_ += [Need(Right.READ, escaped(source), f"attached queue {source}") for source in sources]
    for attachment in attachments:
        all_ += _delayed(attachment, setup) if isinstance(attachment, Delayed) else _attached(attachment, setup)
    unique: dict[tuple[Right, str, bool], Need] = {}
    for need in all_:
        unique.setdefault((need.right, need.names, need.whole), need)
    return Grant(vhost, tuple(unique.values()))


# -- what is ours ----------------------------------------------------------------------------------------------------


def _own(setup: Setup, *, retries: bool) -> Iterator[Need]:
    names = setup.names
    rungs = rf"{escaped(names.delay(0))[:-1]}[0-9]+"
    yield Need(Right.WRITE, DEFAULT_EXCHANGE, "publishes to queues of its own, and back to queues by their name")
    yield Need(Right.WRITE, rungs, "letters begin to wait")
    yield Need(Right.READ, escaped(names.inbox), "consumes letters")
    yield Need(Right.READ, escaped(names.fifo), "consumes letters in their order")
    yield Need(Right.READ, escaped(names.release), "consumes letters whose wait is over")
    if setup.journal:
        yield Need(Right.READ, escaped(names.journal), "reads what it wrote: redrive tasks, index")
        yield Need(Right.READ, escaped(names.parking), "takes letters from there for a redrive")
        yield Need(Right.READ, escaped(names.retired), "journals what leaves dead-letter queues by retention")
        if setup.key_file:
            yield Need(Right.READ, escaped(names.state), "finds out which router leads")
    if not setup.key_file:
        yield Need(Right.READ, escaped(names.state), "reads the key that signs records")
    if retries:
        yield Need(Right.WRITE, escaped(names.return_), "letters go back to where they failed")
    yield from _declared(setup, rungs, retries=retries) if setup.declare else _looked_at(setup)


def _declared(setup: Setup, rungs: str, *, retries: bool) -> Iterator[Need]:
    names = setup.names
    own = [names.quarantine, names.parking, names.release, names.inbox, names.declared, names.return_, names.state]
    own += [names.fifo, names.retired]
    for name in [*own, *([names.journal] if setup.journal else [])]:
        yield Need(Right.CONFIGURE, escaped(name), "declares what it owns")
    yield Need(Right.CONFIGURE, rungs, "declares the rungs on which letters wait")
    yield name_flush(names)
    yield Need(Right.WRITE, escaped(names.inbox), "binds the queue to its exchange")
    yield Need(Right.WRITE, escaped(names.fifo), "binds the queue to its exchange")
    yield Need(Right.READ, escaped(names.declared), "binds the inbox, so that consumers can declare deaths")
    yield Need(Right.WRITE, escaped(names.release), "binds the queue; letters leave rungs for it")
    yield Need(Right.READ, escaped(names.parking), "what is refused there falls into quarantine")
    yield Need(Right.READ, rungs, "binds the rungs; letters leave them for release")
    if retries:
        yield Need(Right.READ, escaped(names.return_), "binds queues, so that letters can go back")


def name_flush(names: Names) -> Need:
    """Whoever makes quorum queues makes another one, for a moment."""
    return Need(Right.CONFIGURE, f"{escaped(names.flush(''))}[0-9a-f]+", "has names of new queues written to disk")


def _locks(setup: Setup) -> Iterator[Need]:
    """None is deleted while any router publishes there."""
    locks = f"{escaped(setup.names.in_use('')[:-16])}[0-9a-f]+"
    yield Need(Right.CONFIGURE, locks, "idle dead-letter queues are deleted: declares who uses them")
    yield Need(Right.READ, locks, "idle dead-letter queues are deleted: says that one is used")


def _looked_at(setup: Setup) -> Iterator[Need]:
    names = setup.names
    looks = [names.parking, names.quarantine, names.declared, names.return_]
    looks += [names.state] if setup.key_file else []
    looks += [] if setup.journal else [names.retired]
    for name in [*looks, *([names.journal] if setup.journal else [])]:
        yield Need(Right.WRITE, escaped(name), LOOKS, looks=True)


def _attached(attachment: Attachment, setup: Setup) -> Iterator[Need]:
    queues, whole = names_of(attachment.selector)
    yield Need(Right.READ, queues, f"attached: {attachment.queue}", whole)
    if attachment.forward is not None and attachment.forward.exchange:
        yield Need(
            Right.WRITE, escaped(attachment.forward.exchange), f"relay of {attachment.queue}: the living go there"
        )
    if attachment.mode == GUARD and setup.declare:
        locks = f"{escaped(setup.names.guard('')[:-16])}[0-9a-f]+"
        yield Need(Right.CONFIGURE, locks, "only one router guards a queue, the one that declared its lock")


def _delayed(entry: Delayed, setup: Setup) -> Iterator[Need]:
    queue, why = escaped(setup.names.delayed(entry.exchange)), f"delayed exchange {entry.exchange}"
    yield Need(Right.READ, queue, f"{why}: consumes what is published to it")
    yield Need(Right.WRITE, escaped(entry.to), f"{why}: messages go on there")
    if not setup.declare:
        yield Need(Right.WRITE, escaped(entry.exchange), f"{why}: {LOOKS}", looks=True)
        return
    for name in (escaped(entry.exchange), queue):
        yield Need(Right.CONFIGURE, name, f"{why}: declares it")
    yield Need(Right.READ, escaped(entry.exchange), f"{why}: binds its queue")
    yield Need(Right.WRITE, queue, f"{why}: binds its queue")


# -- what policies ask for ---------------------------------------------------------------------------------------------


class _Ways:
    """Where letters of the queues that one policy selects may go, whatever other policies add."""

    def __init__(self, policy: Policy, here: Sequence[Policy]) -> None:
        self._policy = policy
        at = here.index(policy)
        others = [other for other in here[: None if policy.inherit else at] if other is not policy]
        self._others = [other for other in others if may_meet(policy.selector, other.selector)]
        self._exchanges: list[str | None] = self._values("dead-letter-exchange")
        dropped = all(self._values("discard"))
        self.retries = any(self._values("retry-on")) and self._values("max-delivery-attempts") != [1]
        creates = [] if dropped else self._values("auto-create-dead-letter-resources")
        pairs = [(exchange, value) for exchange in self._exchanges for value in creates]
        self._created = [exchange for exchange, value in pairs if (exchange is None if value is None else value)]

    def needs(self, *, declare: bool) -> Iterator[Need]:
        by = f"policy {self._policy.name}"
        failed, whole = names_of(self._policy.selector)
        for exchange in filter(None, self._exchanges):
            yield Need(Right.WRITE, escaped(exchange), f"{by}: dead letters go there")
        if self.retries and declare:
            yield Need(Right.WRITE, failed, f"{by}: binds them, so that letters can go back", whole)
        elif self.retries or self._created:
            yield Need(Right.WRITE, failed, f"{by}: {LOOKS}", whole, looks=True)
        if self._created:
            yield from self._dead_letter_queues(by, declare=declare)

    def _dead_letter_queues(self, by: str, *, declare: bool) -> Iterator[Need]:
        queues = [*self._queue_names()]
        exchanges = [escaped(exchange) for exchange in self._created if exchange]
        for name in [*queues, *exchanges] if declare else []:
            yield Need(Right.CONFIGURE, name, f"{by}: declares its dead-letter resources")
        limits = ("dead-letter-queue-ttl", "dead-letter-queue-max-length", "dead-letter-queue-max-length-bytes")
        for name in queues if declare and any(any(self._values(key)) for key in limits) else []:
            yield Need(Right.READ, name, f"{by}: what they do not keep leaves them for the retired queue")
        for name in queues if exchanges or not declare else []:
            why = "binds its dead-letter queues" if declare else LOOKS
            yield Need(Right.WRITE, name, f"{by}: {why}", looks=not declare)
        for name in exchanges if declare else []:
            yield Need(Right.READ, name, f"{by}: binds its dead-letter queues")

    def _queue_names(self) -> Iterator[str]:
        """Of dead-letter queues, the common one of queues that do not last included."""
        for prefix in self._values("dead-letter-queue-prefix"):
            for suffix in self._values("dead-letter-queue-suffix"):
                yield dead_letter_queues(self._policy.selector, prefix, suffix)
                yield escaped(short_name(f"{prefix}transient{suffix}"))

    def _values(self, key: str) -> list[Any]:
        """Every value that the key may have for these queues."""
        policy, others = self._policy, self._others
        values = [on[key].value for candidate in (policy, *others) for on in candidate.on.values() if key in on]
        if key in policy.definition:
            values.append(policy.definition[key].value)
        else:
            values += [other.definition[key].value for other in others if key in other.definition]
            values += [] if self._is_always_set(key) else [DEFAULTS.get(key)]
        return [value for at, value in enumerate(values) if value not in values[:at]]

    def _is_always_set(self, key: str) -> bool:
        """Whether a policy for all queues has it, and nothing before that one cuts the chain."""
        for other in self._others:
            if key in other.definition and other.selector.kind is SelectorKind.MATCH and other.selector.text == "#":
                return True
            if not other.inherit:
                return False
        return False
