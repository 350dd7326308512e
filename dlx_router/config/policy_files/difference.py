"""What two sets of policies say differently: policy by policy, and for each queue key by key. Pure.

Two sets that decide alike are equal, whatever their files look like: a moved line or a comment is no difference.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from dlx_router.config.language.keys import DEFINITION
from dlx_router.config.language.value_text import DEFAULT, key_row, set_by, value_text
from dlx_router.config.policy_files.attachments import Attachment
from dlx_router.config.policy_files.loader import LoadedPolicies
from dlx_router.config.units import duration_text
from dlx_router.core.policy import TYPES, Policy, PolicySet, Setting, merged

_ABSENT: Final = ""
_USUAL: Final = {"vhost": None, "apply_to": "queues", "priority": 0, "inherit": True}


class Change(NamedTuple):
    """A key that says something else. `was`, `now` "": it was, or is, not said; `*_by`: file and line."""

    key: str
    was: str
    now: str
    was_by: str
    now_by: str


class PolicyChange(NamedTuple):
    """A policy that is new, gone, or says something else."""

    name: str
    change: str  # added, removed, changed
    keys: tuple[Change, ...]


class QueueChange(NamedTuple):
    """A queue for whose letters something else holds. `queue_type` None: whatever type it has."""

    queue: str
    queue_type: str | None
    was: tuple[str, ...]  # the policies that contribute, the first wins
    now: tuple[str, ...]
    keys: tuple[Change, ...]


class Diff(NamedTuple):
    """All of it. `sources`: attachments and delayed exchanges."""

    policies: tuple[PolicyChange, ...]
    queues: tuple[QueueChange, ...]
    sources: tuple[Change, ...]
    is_reordered: bool

    @property
    def is_equal(self) -> bool:
        """Whether both decide alike, as far as this can tell."""
        return not (self.policies or self.queues or self.sources or self.is_reordered)


def compared(was: LoadedPolicies, now: LoadedPolicies, vhost: str, queues: Iterable[str] = ()) -> Diff:
    """What `vhost` obeys. `queues`: those to look at, beside those that policies name."""
    before, after = _of_vhost(was, vhost), _of_vhost(now, vhost)
    looked_at = sorted({*queues, *_named(before), *_named(after)})
    changes = [change for queue in looked_at for change in _of_queue(before, after, vhost, queue)]
    return Diff(
        tuple(_policies(before, after)),
        tuple(changes),
        tuple(_changes(_sources(was, vhost), _sources(now, vhost))),
        _is_reordered(before, after),
    )


def _of_vhost(loaded: LoadedPolicies, vhost: str) -> PolicySet:
    policies = loaded.policies
    return replace(policies, policies=tuple(policy for policy in policies.policies if policy.vhost in {None, vhost}))


def _named(policies: PolicySet) -> Iterator[str]:
    return (policy.selector.text for policy in policies.policies if policy.selector.kind == "queue")


def _sources(loaded: LoadedPolicies, vhost: str) -> "Said":
    """Attachments and delayed exchanges, each in a line."""
    lines = {
        f"attachment {attachment.queue}": (_attachment(attachment), "")
        for attachment in loaded.attachments
        if attachment.vhost in {None, vhost}
    }
    late = (entry for entry in loaded.delayed if entry.vhost in {None, vhost})
    return lines | {
        f"delayed exchange {entry.exchange}": (f"to {entry.to!r}, default {duration_text(entry.default_ms)}", "")
        for entry in late
    }


def _attachment(attachment: Attachment) -> str:
    parts = [f"{attachment.selector.kind}, mode {attachment.mode}"]
    if attachment.forward is not None:
        key = "" if attachment.forward.routing_key is None else f" with key {attachment.forward.routing_key.text}"
        parts.append(f"forward to {attachment.forward.exchange!r}{key}")
    if attachment.dead_letter_exchanges is not None:
        parts.append(f"dead letters by {', '.join(map(repr, attachment.dead_letter_exchanges)) or 'no exchange'}")
    return "; ".join([*parts, *(["accepts a delivery limit"] if attachment.accepts_limit else [])])


def _is_reordered(before: PolicySet, after: PolicySet) -> bool:
    """Whether policies that both have come in another order; it decides between equals."""
    both = {policy.name for policy in before.policies} & {policy.name for policy in after.policies}
    orders = [[policy.name for policy in each.policies if policy.name in both] for each in (before, after)]
    return orders[0] != orders[1]


# -- policy by policy ---------------------------------------------------------------------------------------------


def _policies(before: PolicySet, after: PolicySet) -> Iterator[PolicyChange]:
    was, now = ({policy.name: policy for policy in each.policies} for each in (before, after))
    for name in dict.fromkeys([*was, *now]):
        changes = tuple(_changes(_entries(was.get(name)), _entries(now.get(name))))
        if name not in was or name not in now:
            yield PolicyChange(name, "added" if name in now else "removed", changes)
        elif changes:
            yield PolicyChange(name, "changed", changes)


Said = Mapping[str, tuple[str, str]]  # by key: its value, and who set it
Chain = tuple[Policy, ...]


def _entries(policy: Policy | None) -> Said:
    """All that a policy says; what stands at its head was said where the policy begins."""
    if policy is None:
        return {}
    at = str(policy.source)
    entries = {"selects": (f"{policy.selector.kind}: {policy.selector.text}", at)}
    for name, usual in _USUAL.items():
        if (value := getattr(policy, name)) != usual:
            entries[name.replace("_", "-")] = "false" if value is False else str(value), at
    entries |= {f"label {name}": (text, at) for name, text in policy.labels.items()}
    entries |= {key: _value(key, setting) for key, setting in policy.definition.items()}
    for reason, overlay in policy.on.items():
        entries |= {f"on {reason}: {key}": _value(key, setting) for key, setting in overlay.items()}
    return entries


def _value(key: str, setting: Setting) -> tuple[str, str]:
    return value_text(DEFINITION[key], setting.value), str(setting.source)


def _changes(was: Said, now: Said) -> Iterator[Change]:
    nothing = (_ABSENT, "")
    for key in dict.fromkeys([*was, *now]):
        (old, old_by), (new, new_by) = was.get(key, nothing), now.get(key, nothing)
        if (old, key in was) != (new, key in now):
            yield Change(key, old, new, old_by, new_by)


# -- queue by queue -----------------------------------------------------------------------------------------------


def _of_queue(before: PolicySet, after: PolicySet, vhost: str, queue: str) -> Iterator[QueueChange]:
    """One change where it is the same for each type of queues, else one for each type."""
    kinds = TYPES if before.asks_types or after.asks_types else (None,)
    changes = [change for kind in kinds if (change := _of_type(before, after, vhost, queue, kind)) is not None]
    alike = {change._replace(queue_type=None) for change in changes}
    yield from alike if len(changes) == len(kinds) and len(alike) == 1 else changes


def _of_type(before: PolicySet, after: PolicySet, vhost: str, queue: str, kind: str | None) -> QueueChange | None:
    was, now = (each.chain(vhost=vhost, queue=queue, queue_type=kind) for each in (before, after))
    keys = _held(was, now)
    names = [tuple(policy.name for policy in chain) for chain in (was, now)]
    return QueueChange(queue, kind, names[0], names[1], keys) if keys or bool(was) != bool(now) else None


def _held(was: Chain, now: Chain) -> tuple[Change, ...]:
    """What holds before any overlay; then what else a reason makes different."""
    plain = [*_changes(*_both(was, now, ""))]
    known, changes = {change[:3] for change in plain}, plain
    for reason in dict.fromkeys(reason for policy in (*was, *now) for reason in policy.on):
        further = (change for change in _changes(*_both(was, now, reason)) if change[:3] not in known)
        changes += [change._replace(key=f"on {reason}: {change.key}") for change in further]
    return tuple(changes)


def _both(was: Chain, now: Chain, reason: str) -> tuple[Said, Said]:
    """Defaults hold where any policy does; beside none they are no difference of their own."""
    whole = bool(was and now)
    return _holds(was, reason, whole=whole), _holds(now, reason, whole=whole)


def _holds(chain: Chain, reason: str, *, whole: bool) -> Said:
    """What is in force: each key, its value, and file, line and policy that set it; `whole`: defaults too."""
    settings = {
        key: (value_text(DEFINITION[key], setting.value), set_by(setting))
        for key, setting in merged(chain, reason).items()
    }
    defaults = {name: (key_row(key, None).value, DEFAULT) for name, key in DEFINITION.items()} if whole else {}
    return defaults | settings
