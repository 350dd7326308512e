"""A plan as people read it: what is added, changed and removed, each key with who says so."""

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from dlx_router.broker.definitions import Exchange, Queue
from dlx_router.broker.policies import Rule
from dlx_router.provisioning.desired_policies import Written
from dlx_router.provisioning.plan import Plan
from dlx_router.provisioning.queue_definition import hop
from dlx_router.provisioning.removal import Remains
from dlx_router.provisioning.steps import Action, Step

_MARK: Final = {Action.ADD: "+", Action.CHANGE: "~", Action.REMOVE: "-"}
_DONE: Final = {Action.ADD: "created", Action.CHANGE: "changed", Action.REMOVE: "removed"}
_SHOWN: Final = 5


def text(plan: Plan) -> str:
    """The plan of a vhost; without any step and note one line."""
    lines = [f"vhost {plan.vhost}"]
    for step in plan.steps:
        lines += _step(step)
    lines += [f"  ! {note.code}: {note.text}" if note.conflict else f"  i {note.text}" for note in plan.notes]
    numbers = {action: sum(step.action is action for step in plan.steps) for action in Action}
    summary = ", ".join(f"{number} to {action.value}" for action, number in numbers.items() if number)
    conflicts = f"; {len(plan.conflicts)} in the way" if plan.conflicts else ""
    lines.append(f"  {summary or 'no changes'}{conflicts}")
    return "\n".join(lines)


def done(plan: Plan, steps: Sequence[Step]) -> str:
    """What apply did in a vhost."""
    did = as_done(steps)
    parts = [f"{len(names)} {word} ({', '.join(names)})" for word, names in did.items() if names]
    same = f"{len(plan.unchanged)} unchanged ({_queues(plan.unchanged)})" if plan.unchanged else "0 unchanged"
    return f"vhost {plan.vhost}: {', '.join(parts) if parts else 'nothing to do'}; {same}"


def as_done(steps: Sequence[Step]) -> dict[str, list[str]]:
    """The same for programs."""
    return {
        word: [f"{step.what} {step.name}" for step in steps if step.action is action] for action, word in _DONE.items()
    }


def _step(step: Step) -> Iterator[str]:
    mark = _MARK[step.action]
    match step.thing:
        case Exchange(kind=kind):
            yield f"  {mark} exchange {step.name} ({kind})"
        case Queue(arguments=arguments):
            yield f"  {mark} queue {step.name} ({arguments.get('x-queue-type', 'classic')})"
        case Written() as policy:
            yield f"  {mark} policy {step.name}"
            yield from _policy(policy, step.was)
        case Rule() as rule:
            yield f"  {mark} policy {step.name}"
            yield f"      pattern: {rule.pattern}"
            yield f"      definition: {_json(rule.definition)}"
        case _:
            yield f"  {mark} {step.what} {step.name}"


def _policy(policy: Written, was: Rule | None) -> Iterator[str]:
    rule = policy.rule
    before = was.body() if was is not None else {}
    for key in ("pattern", "priority", "apply-to"):
        now = rule.body()[key]
        yield f"      {key}: {_change(before, key, now)}"
    old = was.definition if was is not None else {}
    for key, value in sorted(rule.definition.items()):
        by = policy.keys.get(key)
        origin = f"  # {by.by}" if by else ""
        yield f"      {key}: {_change(old, key, value) if was is not None else _json(value)}{origin}"
    for key in sorted(set(old) - set(rule.definition)):
        yield f"      {key}: {_json(old[key])} → (gone)"
    if policy.keys:
        yield f"      hop into the inbox: {hop(policy.keys)}"
        yield f"      queues: {_queues(policy.queues)}"


def _change(before: Any, key: str, now: object) -> str:  # noqa: ANN401 - a mapping of the API
    plain = now if isinstance(now, str) else _json(now)
    return f"{plain}" if key not in before or before[key] == now else f"{_json(before[key])} → {_json(now)}"


def _queues(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return (", ".join(names[:_SHOWN]) + more) or "none now"


def _json(value: object) -> str:
    return json.dumps(dict(value) if isinstance(value, dict) else value, ensure_ascii=False)


def removal(remains: Remains) -> str:
    """What destroy removes or why it does not."""
    lines = [f"vhost {remains.vhost}"]
    lines += [f"  - policy {name}" for name in remains.policies]
    lines += [f"  - exchange {name}" for name in remains.exchanges]
    lines += [f"  - queue {name}" for name in remains.queues]
    lines += [f"  i kept: {line}" for line in remains.kept]
    lines += [f"  ! {blocker}" for blocker in remains.blockers]
    if remains.is_empty:
        lines.append("  nothing of the router's is here to be removed")
    return "\n".join(lines)
