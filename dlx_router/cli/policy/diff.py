"""`dlx-router policy diff`: what two revisions of the policies say differently, and what each decided."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dlx_router.cli import output
from dlx_router.cli.output import Id, Number
from dlx_router.config.environment import prefix
from dlx_router.config.environment.prefix import PrefixError
from dlx_router.config.policy_files.loader import PolicyErrors, load_policies
from dlx_router.config.policy_files.revision_diff import Change, Diff, QueueChange, compared
from dlx_router.config.policy_files.revision_document import DocumentError, document_of
from dlx_router.core.names import Names

if TYPE_CHECKING:
    from dlx_router.cli.api import Api

NOW: Final = "in-force"
_REVISION: Final = re.compile(rf"[0-9a-f]{{12}}|{NOW}")
_KEYS: Final = ("key", "before", "after")


class Question(NamedTuple):
    """Two paths or revisions. `queues`: to be looked at beside those that policies name."""

    was: str
    now: str
    vhost: str = "/"
    queues: tuple[str, ...] = ()
    url: str | None = None


class Side(NamedTuple):
    """One of the two: what it is, its document, and what it decided by queue; None: nobody was asked."""

    title: str
    document: Mapping[str, Any]
    decided: Mapping[str, Mapping[str, int]] | None


class _Unknown(Exception):
    """It is no revision that can be compared; says why."""


def run(asked: Question, *, as_json: bool = False) -> int:
    """0: both decide alike, 1: they differ, 2: they cannot be compared."""
    try:
        names = prefix.names()
        was, now = (_side(source, asked, names) for source in (asked.was, asked.now))
        difference = compared(was.document, now.document, _queues(asked, was, now), names)
    except PolicyErrors as error:
        output.warn(error)
        return output.WRONG_USE
    except (PrefixError, DocumentError, _Unknown) as error:
        return output.wrong_use(error)
    if as_json:
        output.as_json(_document(difference, was, now))
    else:
        _print(difference, was, now, asked.vhost)
    return output.OK if difference.is_equal else output.FINDINGS


def _side(source: str, asked: Question, names: Names) -> Side:
    """A path where there is one; else a revision that the router knows."""
    path = Path(source)
    if path.exists():
        loaded = load_policies(path, names)
        return Side(source, document_of(loaded.policies, asked.vhost, loaded), None)
    if not _REVISION.fullmatch(source):
        raise _Unknown(f"{source}: neither a file or folder nor a revision (12 hex digits, or {NOW})")
    answer = _api(asked.url).get(f"/policies/revisions/{source}", vhost=asked.vhost)
    if answer["document"] is None:
        raise _Unknown(str(answer["why"]))
    return Side(f"revision {answer['revision']}", answer["document"], answer["queues"])


def _api(url: str | None) -> "Api":
    from dlx_router.cli.letters import reach  # noqa: PLC0415 - two paths need no router

    return reach(url)


def _queues(asked: Question, was: Side, now: Side) -> set[str]:
    return {*asked.queues, *(was.decided or ()), *(now.decided or ())}


def _total(side: Side) -> dict[str, int]:
    """What it decided in all queues."""
    decided: dict[str, int] = {}
    for counts in (side.decided or {}).values():
        for kind, n in counts.items():
            decided[kind] = decided.get(kind, 0) + n
    return decided


def _document(difference: Diff, was: Side, now: Side) -> dict[str, Any]:
    """As the API has it, as far as two paths can tell."""
    sides = ("was", was), ("now", now)
    return {
        **{name: {"revision": side.document["revision"], "decided": _known(side)} for name, side in sides},
        "is_equal": difference.is_equal,
        "policies": [{**policy._asdict(), "keys": _rows(policy.keys)} for policy in difference.policies],
        "queues": [{**queue._asdict(), "keys": _rows(queue.keys)} for queue in difference.queues],
        "sources": None if difference.sources is None else _rows(difference.sources),
        "is_reordered": difference.is_reordered,
        "queues_left": difference.queues_left,
    }


def _known(side: Side) -> dict[str, int] | None:
    return None if side.decided is None else _total(side)


def _rows(keys: Sequence[Change]) -> list[dict[str, str]]:
    return [change._asdict() for change in keys]


# -- for people ---------------------------------------------------------------------------------------------------


def _print(difference: Diff, was: Side, now: Side, vhost: str) -> None:
    output.say(f"{was.title} → {now.title}")
    output.say(*_notes(difference, was, now, vhost))
    for policy in difference.policies:
        output.say("", f"Policy {policy.name}: {policy.change}")
        _print_keys(policy.keys)
    for queue in difference.queues:
        output.say("", _heading(queue))
        _print_keys(queue.keys)
    if difference.sources:
        output.say("", "Attachments and delayed exchanges:")
        _print_keys(difference.sources)
    _print_decided(was, now)


def _notes(difference: Diff, was: Side, now: Side, vhost: str) -> Iterator[str]:
    if difference.is_equal:
        same = was.document["revision"] == now.document["revision"]
        yield f"Both {'are the same' if same else 'decide alike'} in vhost {vhost}."
    if difference.is_reordered:
        yield "Policies come in another order: where two are equal otherwise, the first wins."
    if difference.sources is None:
        yield "Attachments and delayed exchanges are not compared: they are not known of both."
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


def _print_decided(was: Side, now: Side) -> None:
    """How often each decided what, where a router was asked for one of the two."""
    sides = [side for side in (was, now) if side.decided is not None]
    counts = [_total(side) for side in sides]
    kinds = dict.fromkeys(kind for decided in counts for kind in decided)
    if kinds:
        output.say("", "Decisions, as far as the index has counted them:")
        titles = [Number(str(side.document["revision"])) for side in sides]
        output.table(
            (Id("event"), *titles), [(kind, *(str(decided.get(kind, 0)) for decided in counts)) for kind in kinds]
        )
