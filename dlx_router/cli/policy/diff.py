"""`dlx-router policy diff`: what two folders of policies say differently."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from dlx_router.cli import output
from dlx_router.config.environment import prefix
from dlx_router.config.environment.prefix import PrefixError
from dlx_router.config.policy_files.difference import Change, Diff, QueueChange, compared
from dlx_router.config.policy_files.loader import LoadedPolicies, PolicyErrors, load_policies

_KEYS: Final = ("key", "before", "after")


class Question(NamedTuple):
    """Two folders or files. `queues`: to be looked at beside those that policies name."""

    was: Path
    now: Path
    vhost: str = "/"
    queues: tuple[str, ...] = ()


def run(asked: Question, *, as_json: bool = False) -> int:
    """Return 0 if both decide alike, 1 if they differ, 2 if they cannot be compared."""
    try:
        names = prefix.names()
        was, now = (load_policies(path, names) for path in (asked.was, asked.now))
    except PolicyErrors as error:
        output.warn(error)
        return output.WRONG_USE
    except PrefixError as error:
        return output.wrong_use(error)
    difference = compared(was, now, asked.vhost, asked.queues)
    if as_json:
        output.as_json(_document(difference, was, now))
    else:
        _print(difference, asked, is_same=was.policies.revision == now.policies.revision)
    return output.OK if difference.is_equal else output.FINDINGS


def _document(difference: Diff, was: LoadedPolicies, now: LoadedPolicies) -> dict[str, Any]:
    return {
        "was": {"revision": was.policies.revision},
        "now": {"revision": now.policies.revision},
        "is_equal": difference.is_equal,
        "policies": [{**policy._asdict(), "keys": _rows(policy.keys)} for policy in difference.policies],
        "queues": [{**queue._asdict(), "keys": _rows(queue.keys)} for queue in difference.queues],
        "sources": _rows(difference.sources),
        "is_reordered": difference.is_reordered,
        "queues_left": difference.queues_left,
    }


def _rows(keys: Sequence[Change]) -> list[dict[str, str]]:
    return [change._asdict() for change in keys]


# -- for people ---------------------------------------------------------------------------------------------------


def _print(difference: Diff, asked: Question, *, is_same: bool) -> None:
    output.say(f"{asked.was} → {asked.now}")
    output.say(*_notes(difference, asked.vhost, is_same=is_same))
    for policy in difference.policies:
        output.say("", f"Policy {policy.name}: {policy.change}")
        _print_keys(policy.keys)
    for queue in difference.queues:
        output.say("", _heading(queue))
        _print_keys(queue.keys)
    if difference.sources:
        output.say("", "Attachments and delayed exchanges:")
        _print_keys(difference.sources)


def _notes(difference: Diff, vhost: str, *, is_same: bool) -> Iterator[str]:
    if difference.is_equal:
        yield f"Both {'are the same' if is_same else 'decide alike'} in vhost {vhost}."
    if difference.is_reordered:
        yield "Policies come in another order: where two are equal otherwise, the first wins."
    if difference.queues_left:
        yield f"{output.number(difference.queues_left, 'queue')} more not looked at."


def _heading(queue: QueueChange) -> str:
    kind = f" ({queue.queue_type})" if queue.queue_type else ""
    was, now = (", ".join(names) or "no policy" for names in (queue.was, queue.now))
    return f"Queue {queue.queue}{kind}: {was if was == now else f'{was} → {now}'}"


def _print_keys(keys: Sequence[Change]) -> None:
    if keys:
        output.table(
            _KEYS, [(change.key, _cell(change.was, change.was_by), _cell(change.now, change.now_by)) for change in keys]
        )


def _cell(value: str, by: str) -> str:
    text = value or "–"
    return f"{text}, {by}" if by else text
