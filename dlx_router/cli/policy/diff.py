"""`dlx-router policy diff`: what two revisions of the policies say differently, and what each decided."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from dlx_router.cli import output
from dlx_router.cli.layout import Id, Number
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
        was, now = (_side(one, asked, names) for one in (asked.was, asked.now))
        found = compared(was.document, now.document, _queues(asked, was, now), names)
    except PolicyErrors as error:
        output.warn(error)
        return output.WRONG_USE
    except (PrefixError, DocumentError, _Unknown) as error:
        return output.wrong_use(error)
    if as_json:
        output.as_json(_document(found, was, now))
    else:
        _print(found, was, now, asked.vhost)
    return output.OK if found.is_equal else output.FINDINGS


def _side(said: str, asked: Question, names: Names) -> Side:
    """A path where there is one; else a revision that the router knows."""
    path = Path(said)
    if path.exists():
        loaded = load_policies(path, names)
        return Side(said, document_of(loaded.policies, asked.vhost, loaded), None)
    if not _REVISION.fullmatch(said):
        raise _Unknown(f"{said}: neither a file or folder nor a revision (12 hex digits, or {NOW})")
    found = _api(asked.url).get(f"/policies/revisions/{said}", vhost=asked.vhost)
    if found["document"] is None:
        raise _Unknown(str(found["why"]))
    return Side(f"revision {found['revision']}", found["document"], found["queues"])


def _api(url: str | None) -> "Api":
    from dlx_router.cli.letters import reach  # noqa: PLC0415 - two paths need no router

    return reach(url)


def _queues(asked: Question, was: Side, now: Side) -> set[str]:
    return {*asked.queues, *(was.decided or ()), *(now.decided or ())}


def _total(side: Side) -> dict[str, int]:
    """What it decided in all queues."""
    told: dict[str, int] = {}
    for counts in (side.decided or {}).values():
        for kind, n in counts.items():
            told[kind] = told.get(kind, 0) + n
    return told


def _document(found: Diff, was: Side, now: Side) -> dict[str, Any]:
    """As the API has it, as far as two paths can tell."""
    sides = ("was", was), ("now", now)
    return {
        **{name: {"revision": one.document["revision"], "decided": _known(one)} for name, one in sides},
        "is_equal": found.is_equal,
        "policies": [{**one._asdict(), "keys": _told(one.keys)} for one in found.policies],
        "queues": [{**one._asdict(), "keys": _told(one.keys)} for one in found.queues],
        "sources": None if found.sources is None else _told(found.sources),
        "is_reordered": found.is_reordered,
        "queues_left": found.queues_left,
    }


def _known(side: Side) -> dict[str, int] | None:
    return None if side.decided is None else _total(side)


def _told(keys: Sequence[Change]) -> list[dict[str, str]]:
    return [one._asdict() for one in keys]


# -- for people ---------------------------------------------------------------------------------------------------


def _print(found: Diff, was: Side, now: Side, vhost: str) -> None:
    ids = [was.title, now.title]
    output.say(f"{was.title} → {now.title}", ids=ids)
    output.say(*_notes(found, was, now, vhost))
    for one in found.policies:
        output.say("", f"Policy {one.name}: {one.change}", ids=[one.name])
        _print_keys(one.keys)
    for queue in found.queues:
        output.say("", _heading(queue), ids=[queue.queue])
        _print_keys(queue.keys)
    if found.sources:
        output.say("", "Attachments and delayed exchanges:")
        _print_keys(found.sources)
    _print_decided(was, now)


def _notes(found: Diff, was: Side, now: Side, vhost: str) -> Iterator[str]:
    if found.is_equal:
        same = was.document["revision"] == now.document["revision"]
        yield f"Both {'are the same' if same else 'decide alike'} in vhost {vhost}."
    if found.is_reordered:
        yield "Policies come in another order: where two are equal otherwise, the first wins."
    if found.sources is None:
        yield "Attachments and delayed exchanges are not compared: they are not known of both."
    if found.queues_left:
        yield f"{output.number(found.queues_left, 'queue')} more not looked at."


def _heading(one: QueueChange) -> str:
    kind = f" ({one.queue_type})" if one.queue_type else ""
    was, now = (", ".join(names) or "no policy" for names in (one.was, one.now))
    return f"Queue {one.queue}{kind}: {was if was == now else f'{was} → {now}'}"


def _print_keys(keys: Sequence[Change]) -> None:
    if keys:
        output.table(_KEYS, [(one.key, _cell(one.was, one.was_by), _cell(one.now, one.now_by)) for one in keys])


def _cell(value: str, by: str) -> str:
    said = value or "–"
    return f"{said}, {by}" if by else said


def _print_decided(was: Side, now: Side) -> None:
    """How often each decided what, where a router was asked for one of the two."""
    sides = [one for one in (was, now) if one.decided is not None]
    counts = [_total(one) for one in sides]
    kinds = dict.fromkeys(kind for one in counts for kind in one)
    if kinds:
        output.say("", "Decisions, as far as the index has counted them:")
        titles = [Number(str(one.document["revision"])) for one in sides]
        output.table((Id("event"), *titles), [(kind, *(str(one.get(kind, 0)) for one in counts)) for kind in kinds])
