"""What differs between the policies and the broker, as steps in the order in which they are taken."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dlx_router.broker import declared
from dlx_router.broker.definitions import ALTERNATE, Binding, Definition, Exchange, Queue, core
from dlx_router.broker.management import Bound, Snapshot
from dlx_router.broker.policies import Rule
from dlx_router.broker.stream import journal_stream
from dlx_router.config.findings import NOT_CATCHABLE
from dlx_router.config.lint.selector_scope import exact_hint, is_wide, written
from dlx_router.config.policy_files.attachments import Attachment
from dlx_router.config.policy_files.delayed_exchanges import Delayed
from dlx_router.core.names import Names
from dlx_router.core.policy import Policy, PolicySet
from dlx_router.provisioning import delayed_exchanges
from dlx_router.provisioning.broker_rules import may_take
from dlx_router.provisioning.desired_policies import MAX_EXPRESSION, Desired, Written, desired
from dlx_router.provisioning.foreign_policies import conflicts
from dlx_router.provisioning.ownership import own_name, recognised
from dlx_router.provisioning.queue_definition import STRATEGY
from dlx_router.provisioning.removal import DEATHS
from dlx_router.provisioning.routing import uncaught
from dlx_router.provisioning.steps import POLICY, Action, Step, after, of_policies, same

FOREIGN: Final = "declared"
NOW: Final = "move its messages elsewhere and delete it; apply, or a start of the router, declares it as it must be"
TOO_LONG: Final = "expression"
UNMATCHED: Final = "selector"
SHARED: Final = "foreign-policy"
UNCOUNTED: Final = "uncounted"
_ORDER: Final = (Exchange, Queue, Binding)


@dataclass(frozen=True, slots=True)
class Note:
    """What a person should know; `conflict`: it keeps letters from coming.

    `stops`: while it holds, apply changes nothing in the vhost.
    """

    code: str
    text: str
    conflict: bool = False
    stops: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps of one vhost, those only that apply takes, and the notes. `unchanged`: what is as it should be.

    `owned`: the RabbitMQ policies that are ours now; `ours`: those that are once all steps are taken.
    """

    vhost: str
    steps: tuple[Step, ...]
    notes: tuple[Note, ...]
    desired: Desired
    owned: frozenset[str]
    ours: frozenset[str]
    unchanged: tuple[str, ...] = ()

    @property
    def conflicts(self) -> tuple[Note, ...]:
        """The notes that say why something cannot be as the policies want it."""
        return tuple(note for note in self.notes if note.conflict)

    @property
    def is_refused(self) -> bool:
        """Whether apply changes nothing, as a note says."""
        return any(note.stops for note in self.notes)

    @property
    def may_pass(self) -> bool:
        """Whether apply changes nothing only because the broker has not counted, which it may soon have."""
        stops = {note.code for note in self.notes if note.stops}
        return stops == {UNCOUNTED}


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
    fit = delayed_exchanges.definitions_of((entry for entry in late if entry.exchange not in unfit), names)
    made = [*core(names), *([journal_stream(names)] if journal else []), *fit]
    there = {rule.name: rule for rule in snapshot.policies}
    steps = [*_things(snapshot, made), *of_policies(want.policies, there, owned)]
    uncatchable = uncaught(want.uncatchable, attachments, snapshot, names)
    notes = [
        *(Note(NOT_CATCHABLE, message, conflict=True) for _, message in uncatchable),
        *(Note(code, text, conflict=True, stops=True) for code, text in want.conflicts),
        *(Note(SHARED, text, conflict=True, stops=True) for text in conflicts(want, policies, snapshot, names)),
        *_taken(want, snapshot, names, owned),
        *_too_long(want),
        *_pending(snapshot, after(snapshot.policies, steps)),
        *_undelayed(unfit),
        *_unmatched(policies, snapshot),
        *_foreign(snapshot, names),
    ]
    wanted = [policy.rule.name for policy in want.policies]
    every = [*(_called(definition) for definition in made), *((POLICY, name) for name in wanted)]
    changing = {(step.what, step.name) for step in steps}
    unchanged = tuple(f"{what} {name}" for what, name in every if (what, name) not in changing)
    return Plan(snapshot.vhost, tuple(steps), tuple(notes), want, owned, frozenset(wanted), unchanged)


def _foreign(snapshot: Snapshot, names: Names) -> Iterator[Note]:
    """What of ours somebody else declared: while it stands no router consumes, and nothing is led there."""
    there = {queue.name: queue for queue in snapshot.queues}
    for definition in declared.owned(names, there):
        odd: list[declared.Difference] = []
        if isinstance(definition, Queue) and (now := there.get(definition.name)) is not None:
            standing = declared.Found(now.kind, now.arguments, durable=now.durable, exclusive=now.exclusive)
            odd = declared.of_queue(definition, standing, names, snapshot.version)
        elif isinstance(definition, Exchange) and definition.name in snapshot.exchanges:
            odd = declared.of_exchange(definition, _exchange(snapshot, definition.name), names)
        if bad := [difference for difference in odd if difference.harmful]:
            text = "; ".join(map(str, bad))
            text += f"; somebody else declared it, and no router consumes in the vhost meanwhile: {NOW}"
            yield Note(FOREIGN, text + declared.gone_meanwhile(names, bad), conflict=True, stops=True)


def _exchange(snapshot: Snapshot, name: str) -> declared.Found:
    """As far as a snapshot tells what can cost a letter."""
    leads = {ALTERNATE: snapshot.alternates[name]} if name in snapshot.alternates else {}
    return declared.Found(snapshot.exchanges[name], leads, auto_delete=name in snapshot.auto_delete)


def _too_long(want: Desired) -> Iterator[Note]:
    """Policies whose expression is longer than RabbitMQ takes."""
    for policy in want.policies:
        if (size := len(policy.rule.pattern.encode(errors="surrogateescape"))) > MAX_EXPRESSION:
            text = (
                f'policy "{policy.rule.name}": its expression has {size} bytes, and RabbitMQ takes {MAX_EXPRESSION:,} '
                f"({policy.rule.pattern[:80]}…); write a shorter selector, or several, or give dead-letter queues "
                f"fewer different prefixes and suffixes: each is an exception in it"
            )
            yield Note(TOO_LONG, text, conflict=True, stops=True)


def _called(definition: Definition) -> tuple[str, str]:
    """What it is and its name, as a step has them."""
    name = f"{definition.exchange} → {definition.queue}" if isinstance(definition, Binding) else definition.name
    return type(definition).__name__.lower(), name


def _things(snapshot: Snapshot, everything: Sequence[Definition]) -> Iterator[Step]:
    """Exchanges, then queues, then bindings, each only where it is not there: what exists is never declared again."""
    queues = {queue.name for queue in snapshot.queues}
    bound = {(binding.source, binding.destination, binding.key) for binding in snapshot.bindings if binding.to_queue}
    for kind in _ORDER:
        for definition in everything:
            if not isinstance(definition, kind):
                continue
            if isinstance(definition, Binding):
                there = (definition.exchange, definition.queue, definition.key) in bound
            else:
                there = definition.name in (snapshot.exchanges if isinstance(definition, Exchange) else queues)
            if not there:
                yield Step(Action.ADD, *_called(definition), definition)


def without_queues(policies: PolicySet, snapshot: Snapshot) -> list[Policy]:
    """The policies for this vhost whose selector matches no queue there; a catch-all is for queues to come."""
    return [
        policy
        for policy in policies.policies
        if policy.vhost in {None, snapshot.vhost}
        and not is_wide(policy.selector)
        and not any(policy.selector.fits(queue.name) for queue in snapshot.queues)
    ]


def _unmatched(policies: PolicySet, snapshot: Snapshot) -> Iterator[Note]:
    for policy in without_queues(policies, snapshot):
        text = f"policy {policy.name}, {written(policy.selector)}, matches no queue now{exact_hint(policy.selector)}"
        yield Note(UNMATCHED, text)


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
    wanted = {policy.rule.name: policy.rule for policy in want.policies}
    for rule in snapshot.policies:
        if rule.name in owned or not (names.is_own(rule.name) or rule.name in wanted):
            continue
        ours = wanted.get(rule.name)
        if ours is None or not same(rule, ours):
            yield Note(
                "policy",
                f'policy "{rule.name}" has a name of ours, but apply did not make it, so it is not touched; '
                f"rename or remove it",
                conflict=ours is not None,
                stops=ours is not None,
            )


def _pending(snapshot: Snapshot, then: Sequence[Rule]) -> Iterator[Note]:
    """At-least-once deaths that the broker would delete if a queue's strategy changed now. `then`: what will stand."""
    for queue in snapshot.queues:
        if queue.pending == 0:
            continue
        now, later = (may_take(rules, queue.name, queue.kind, snapshot.version) for rules in (snapshot.policies, then))
        if not _loses_strategy(now, later):
            continue
        if queue.pending is not None:
            yield Note(
                "pending",
                f"queue {queue.name}: {queue.pending} at-least-once deaths are not confirmed yet, and the broker would "
                f"delete them with the policy; let them arrive first, then apply",
                conflict=True,
                stops=True,
            )
        else:
            yield Note(
                UNCOUNTED,
                f"queue {queue.name}: whether at-least-once deaths are not confirmed yet is not known, and the broker "
                f"would delete them with the policy: {DEATHS}; where none waits, apply --uncounted goes "
                f"on",
                conflict=True,
                stops=True,
            )


def _loses_strategy(now: Sequence[Rule], then: Sequence[Rule]) -> bool:
    """Whether it may: of several of one priority the broker takes any."""
    if [rule.definition for rule in now] == [rule.definition for rule in then]:
        return False
    had = any(STRATEGY in rule.definition for rule in now)
    return had and not (then and all(STRATEGY in rule.definition for rule in then))


def bound(binding: Binding) -> Bound:
    """A binding of ours as the API takes it."""
    return Bound(binding.exchange, binding.queue, binding.key)


def has_been_applied(vhost_plan: Plan, snapshot: Snapshot, names: Names) -> bool:
    """Whether apply was ever run here: without it a broker that was set up by hand would be all drift."""
    return bool(vhost_plan.owned) or own_name(names) in {rule.name for rule in snapshot.policies}


def changes(vhost_plan: Plan) -> list[Mapping[str, Any]]:
    """The steps by what they do; queues that come and go beside them make no other plan."""
    return [{key: value for key, value in row.items() if key != "queues"} for row in as_rows(vhost_plan)]


def as_rows(vhost_plan: Plan) -> list[Mapping[str, Any]]:
    """The steps for programs."""
    return [_row(step) for step in vhost_plan.steps]


def _row(step: Step) -> dict[str, Any]:
    row: dict[str, Any] = {"action": step.action.value, "what": step.what, "name": step.name}
    if isinstance(step.thing, Written):
        row |= {**step.thing.rule.body(), "queues": list(step.thing.queues)}
        row["keys"] = {key: {"value": setting.value, "by": setting.by} for key, setting in step.thing.keys.items()}
    if step.was is not None:
        row["was"] = step.was.body()
    if isinstance(step.thing, Queue):
        row["arguments"] = dict(step.thing.arguments)
    if isinstance(step.thing, Exchange):
        row["type"] = step.thing.kind
    return row
