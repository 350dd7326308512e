"""A revision of the policies as a document: what a vhost obeys of it, each value as a policy would write it.

It can be kept, sent and compared by versions that know other keys than the one that wrote it.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from dlx_router.config.language.keys import DEFINITION
from dlx_router.config.language.regex import RegexError, Search, compiled, search_all
from dlx_router.config.language.value_text import value_text
from dlx_router.config.policy_files.attachments import Attachment
from dlx_router.config.policy_files.delayed_exchanges import Delayed
from dlx_router.config.policy_files.loader import LoadedPolicies
from dlx_router.config.units import duration_text
from dlx_router.core.names import Names
from dlx_router.core.policy import Policy, PolicySet, Selector, SelectorKind, Setting, Source

VERSION: Final = 1
Document = dict[str, Any]


class DocumentError(ValueError):
    """It is no document of a revision that this version can read."""


def document_of(policies: PolicySet, vhost: str, loaded: LoadedPolicies | None = None) -> Document:
    """What `vhost` obeys, in order of precedence. Without `loaded` nothing is said of attachments: null."""
    return {
        "v": VERSION,
        "revision": policies.revision,
        "policies": [_policy(one) for one in policies.policies if one.vhost in {None, vhost}],
        "sources": None if loaded is None else _sources(loaded, vhost),
    }


def _policy(one: Policy) -> Document:
    return {
        "name": one.name,
        "selects": [one.selector.kind.value, one.selector.text],
        "vhost": one.vhost,
        "apply_to": one.apply_to,
        "priority": one.priority,
        "inherit": one.inherit,
        "labels": dict(one.labels),
        "at": str(one.source),
        "keys": _keys(one.definition),
        "on": {reason: _keys(overlay) for reason, overlay in one.on.items()},
    }


def _keys(settings: Mapping[str, Setting]) -> dict[str, list[str]]:
    """By key: its value, and file and line."""
    return {name: [value_text(DEFINITION[name], one.value), str(one.source)] for name, one in settings.items()}


def _sources(loaded: LoadedPolicies, vhost: str) -> dict[str, str]:
    """Attachments and delayed exchanges, each in a line."""
    told = {f"attachment {one.queue}": _attachment(one) for one in loaded.attachments if one.vhost in {None, vhost}}
    late = (one for one in loaded.delayed if one.vhost in {None, vhost})
    return told | {f"delayed exchange {one.exchange}": _delayed(one) for one in late}


def _attachment(one: Attachment) -> str:
    parts = [f"{one.selector.kind}, mode {one.mode}"]
    if one.forward is not None:
        key = "" if one.forward.routing_key is None else f" with key {one.forward.routing_key.text}"
        parts.append(f"forward to {one.forward.exchange!r}{key}")
    if one.dead_letter_exchanges is not None:
        parts.append(f"dead letters by {', '.join(map(repr, one.dead_letter_exchanges)) or 'no exchange'}")
    return "; ".join([*parts, *(["accepts a delivery limit"] if one.accepts_limit else [])])


def _delayed(one: Delayed) -> str:
    return f"to {one.to!r}, default {duration_text(one.default_ms)}"


def policies_of(document: Mapping[str, Any], names: Names) -> PolicySet:
    """The policies of a document, for asking which hold for a queue; values are texts. Raises DocumentError."""
    try:
        if document["v"] != VERSION:
            raise DocumentError(f"layout {document['v']!r}; this version reads {VERSION}")
        found = tuple(map(_read_policy, document["policies"]))
        return PolicySet(found, str(document["revision"]), search_all, names)
    except (KeyError, TypeError, ValueError, AttributeError, RegexError) as error:
        raise DocumentError(f"it cannot be read: {error}") from None


def _read_policy(told: Mapping[str, Any]) -> Policy:
    name, (kind, text) = str(told["name"]), told["selects"]
    search = Search(compiled(text)) if kind == SelectorKind.PATTERN else None
    return Policy(
        name=name,
        selector=Selector(SelectorKind(kind), text, search),
        source=_source(name, told["at"]),
        vhost=told["vhost"],
        apply_to=told["apply_to"],
        priority=told["priority"],
        inherit=told["inherit"],
        labels=told["labels"],
        definition=_settings(name, told["keys"].items()),
        on={reason: _settings(name, keys.items()) for reason, keys in told["on"].items()},
    )


def _settings(policy: str, keys: Iterable[tuple[str, Any]]) -> dict[str, Setting]:
    return {key: Setting(str(value), _source(policy, at)) for key, (value, at) in keys}


def _source(policy: str, at: str) -> Source:
    file, _, line = at.rpartition(":")
    return Source(policy, file, int(line))
