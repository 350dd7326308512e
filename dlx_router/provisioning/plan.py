"""What differs between the policies and the broker, as steps in the order in which they are taken."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from dlx_router.broker.administration import Bound, Rule, Snapshot
from dlx_router.broker.definitions import Binding, Definition, Exchange, Queue, core
from dlx_router.broker.stream import journal_stream
from dlx_router.config.findings import NOT_CATCHABLE, TWO_ROUTERS
from dlx_router.config.policy_files.attachments import Attachment
from dlx_router.config.policy_files.delayed_exchanges import Delayed
from dlx_router.core.names import Names
from dlx_router.core.policy import PolicySet
from dlx_router.provisioning import delayed_exchanges
from dlx_router.provisioning.broker_rules import in_force
from dlx_router.provisioning.desired_policies import Desired, Written, desired
from dlx_router.provisioning.ownership import own_name, recognised
from dlx_router.provisioning.queue_definition import EXCHANGE, STRATEGY
from dlx_router.provisioning.regions import MOST_EXPRESSION, size
from dlx_router.provisioning.router_overlaps import meetings
from dlx_router.provisioning.uncaught_queues import uncaught

UNNAMED_INBOX: Final = "inbox-shards"
TOO_LONG: Final = "expression"
_SHOWN: Final = 5
_ORDER: Final = (Exchange, Queue, Binding)


class Action(StrEnum):
    """What a step does."""

    ADD = "add"
    CHANGE = "change"
    REMOVE = "remove"


@dataclass(frozen=True, slots=True)
class Step:
    """One change. `what` is exchange, queue, binding or policy; `was` is the policy as it stands now."""

    action: Action
    what: str
    name: str
    thing: Exchange | Queue | Binding | Written | Rule
    was: Rule | None = None


@dataclass(frozen=True, slots=True)
class Note:
    """What a person should know; `conflict`: it keeps letters from coming; `name`: a policy that may not change.

    `stops`: while it holds, apply changes nothing in the vhost.
    """

    code: str
    text: str
    conflict: bool = False
    name: str = ""
    stops: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps of one vhost, and the notes. `owned`: what the ledger says now; `unchanged`: what is as it should."""

    vhost: str
    steps: tuple[Step, ...]
    notes: tuple[Note, ...]
    desired: Desired
    owned: frozenset[str]
    unchanged: tuple[str, ...] = ()

    @property
    def conflicts(self) -> tuple[Note, ...]:
        """The notes that say why something cannot be as the policies want it."""
        return tuple(one for one in self.notes if one.conflict)

    @property
    def is_refused(self) -> bool:
        """Whether apply changes nothing, as a note says."""
        return any(one.stops for one in self.notes)


def plan(  # noqa: PLR0913 - what a plan is made of, by its names
    policies: PolicySet,
    snapshot: Snapshot,
    names: Names,
    owned: frozenset[str],
    *,
    journal: bool = True,
    delayed: Sequence[Delayed] = (),
    attachments: Iterable[Attachment] = (),
) -> Plan:
    """What apply would do. `owned`: the names of the RabbitMQ policies that are ours; the rest is of any vhost."""
    owned |= recognised(snapshot.policies, names)
    want = desired(policies, snapshot, names, owned=owned)
    late = delayed_exchanges.here(delayed, snapshot.vhost)
    unfit = delayed_exchanges.unfit(late, snapshot)
    fit = delayed_exchanges.definitions_of((one for one in late if one.exchange not in unfit), names)
    made = [*core(names), *([journal_stream(names)] if journal else []), *fit]
    steps = _ordered([*_things(snapshot, made), *_policies(want, snapshot, owned)], names)
    notes = [*_meetings(want, policies, snapshot, owned)]
    left = uncaught(want.uncatchable, attachments, snapshot, names)
    notes += [Note(NOT_CATCHABLE, said, conflict=True) for _, said in left]
    notes += [*_taken(want, snapshot, names, owned), *_pending(want, snapshot, owned), *_undelayed(unfit)]
    notes += [*unnamed_inboxes(snapshot, names), *_too_long(want)]
    changing = {(step.what, step.name) for step in steps}
    every = [*(_called(one) for one in made), *(("policy", one.rule.name) for one in want.policies)]
    unchanged = tuple(f"{what} {name}" for what, name in every if (what, name) not in changing)
    return Plan(snapshot.vhost, tuple(steps), tuple(notes), want, owned, unchanged)


def _ordered(steps: list[Step], names: Names) -> list[Step]:
    """Where there are inbox shards, the policy first that says which nodes lead them: it is read with a declaration."""
    own = own_name(names)
    return sorted(steps, key=lambda one: one.name != own) if names.shards > 1 else steps


def unnamed_inboxes(snapshot: Snapshot, names: Names) -> Iterator[Note]:
    """What of a time of more shards still stands, and whether it may go."""
    is_underway = any(queue.pending for queue in snapshot.queues)
    for queue in snapshot.queues:
        if queue.name not in names.unnamed_inboxes:
            continue
        said = f"queue {queue.name} is an inbox that DLX_ROUTER_INBOX_SHARDS={names.shards} does not name"
        leads = [one.name for one in snapshot.queues if one.arguments.get(f"x-{EXCHANGE}") == queue.name]
        leads += [f"policy {one.name}" for one in snapshot.policies if one.definition.get(EXCHANGE) == queue.name]
        if queue.messages:
            said += f": a router takes the {queue.messages} letters in it"
        elif leads:
            said += f", and dead letters still come there: {', '.join(leads[:_SHOWN])}"
        elif is_underway:
            said += ", and dead letters may be on their way there"
        else:
            said += "; it is empty: delete the queue and the exchange of that name"
        yield Note(UNNAMED_INBOX, said)


def _too_long(want: Desired) -> Iterator[Note]:
    """What one selector and the policies that it displaces ask for together."""
    for one in want.policies:
        if (found := size(one.rule.pattern)) > MOST_EXPRESSION:
            text = (
                f'policy "{one.rule.name}": its expression has {found} bytes, and RabbitMQ takes {MOST_EXPRESSION:,}, '
                f"so it is left out ({one.rule.pattern[:80]}…); write a shorter selector, or several"
            )
            yield Note(TOO_LONG, text, conflict=True, name=one.rule.name)


def _called(one: Definition) -> tuple[str, str]:
    """What it is and its name, as a step has them."""
    name = f"{one.exchange} → {one.queue}" if isinstance(one, Binding) else one.name
    return type(one).__name__.lower(), name


def _things(snapshot: Snapshot, everything: Sequence[Definition]) -> Iterator[Step]:
    """Exchanges, then queues, then bindings, each only where it is not there: what exists is never declared again."""
    queues = {one.name for one in snapshot.queues}
    bound = {(one.source, one.destination, one.key) for one in snapshot.bindings if one.to_queue}
    for kind in _ORDER:
        for one in everything:
            if not isinstance(one, kind):
                continue
            if isinstance(one, Binding):
                there = (one.exchange, one.queue, one.key) in bound
            else:
                there = one.name in (snapshot.exchanges if isinstance(one, Exchange) else queues)
            if not there:
                yield Step(Action.ADD, *_called(one), one)


def _policies(want: Desired, snapshot: Snapshot, owned: frozenset[str]) -> Iterator[Step]:
    """New and changed ones first, then those that nothing needs any more: no queue is without one in between."""
    there = {one.name: one for one in snapshot.policies}
    for one in want.policies:
        now = there.get(one.rule.name)
        if now is None:
            yield Step(Action.ADD, "policy", one.rule.name, one)
        elif not same(now, one.rule) and one.rule.name in owned:
            yield Step(Action.CHANGE, "policy", one.rule.name, one, now)
    wanted = {one.rule.name for one in want.policies}
    for name in sorted((owned & there.keys()) - wanted):
        yield Step(Action.REMOVE, "policy", name, there[name], there[name])


def same(one: Rule, other: Rule) -> bool:
    """Whether the broker would do the same for both."""
    return one.body() == other.body()


def _meetings(want: Desired, policies: PolicySet, snapshot: Snapshot, owned: frozenset[str]) -> Iterator[Note]:
    kept = [one for one in snapshot.policies if one.name not in owned]
    for said in meetings(want, policies, kept, snapshot):
        yield Note(TWO_ROUTERS, said, conflict=True, stops=True)


def _undelayed(unfit: Mapping[str, str]) -> Iterator[Note]:
    for exchange, why in unfit.items():
        yield Note(
            "delayed",
            f"exchange {exchange} {why}, so nothing published to it can be delayed; delete it, and apply declares a "
            f"durable fanout exchange, or name another one in the entry",
            conflict=True,
        )


def _taken(want: Desired, snapshot: Snapshot, names: Names, owned: frozenset[str]) -> Iterator[Note]:
    """Policies that are not ours and stand where ours should."""
    wanted = {one.rule.name: one.rule for one in want.policies}
    for one in snapshot.policies:
        if one.name in owned or not (names.is_own(one.name) or one.name in wanted):
            continue
        ours = wanted.get(one.name)
        if ours is None or not same(one, ours):
            yield Note(
                "policy",
                f'policy "{one.name}" has a name of ours, but apply did not make it, so it is not touched; '
                f"rename or remove it",
                conflict=ours is not None,
                name=one.name,
            )


def _pending(want: Desired, snapshot: Snapshot, owned: frozenset[str]) -> Iterator[Note]:
    """At-least-once deaths that the broker would delete if a queue's strategy changed now."""
    rules = [*(one.rule for one in want.policies), *(one for one in snapshot.policies if one.name not in owned)]
    for queue in snapshot.queues:
        now = in_force(snapshot.policies, queue.name, queue.kind)
        then = in_force(rules, queue.name, queue.kind)
        lost = now is not None and STRATEGY in now.definition and (then is None or STRATEGY not in then.definition)
        if queue.pending and lost:
            yield Note(
                "pending",
                f"queue {queue.name}: {queue.pending} at-least-once deaths are not confirmed yet, and the broker would "
                f"delete them with the policy; let them arrive first, then apply",
                conflict=True,
                stops=True,
            )


def bound(one: Binding) -> Bound:
    """A binding of ours as the API takes it."""
    return Bound(one.exchange, one.queue, one.key)


def drift(found: Plan) -> int:
    """How many steps apply would take, and how many conflicts are in the way."""
    return len(found.steps) + len(found.conflicts)


def has_been_applied(found: Plan, snapshot: Snapshot, names: Names) -> bool:
    """Whether apply was ever run here: without it a broker that was set up by hand would be all drift."""
    return bool(found.owned) or own_name(names) in {one.name for one in snapshot.policies}


def as_rows(found: Plan) -> list[Mapping[str, Any]]:
    """The steps for programs."""
    return [_row(step) for step in found.steps]


def _row(step: Step) -> dict[str, Any]:
    row: dict[str, Any] = {"action": step.action.value, "what": step.what, "name": step.name}
    if isinstance(step.thing, Written):
        row |= {**step.thing.rule.body(), "queues": list(step.thing.queues)}
        row["keys"] = {
            key: {"value": one.value, "by": one.by, "instead_of": one.instead_of}
            for key, one in step.thing.keys.items()
        }
    if step.was is not None:
        row["was"] = step.was.body()
    if isinstance(step.thing, Queue):
        row["arguments"] = dict(step.thing.arguments)
    if isinstance(step.thing, Exchange):
        row["type"] = step.thing.kind
    return row
