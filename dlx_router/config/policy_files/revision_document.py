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
        "policies": [_policy(policy) for policy in policies.policies if policy.vhost in {None, vhost}],
        "sources": None if loaded is None else _sources(loaded, vhost),
    }


def _policy(policy: Policy) -> Document:
    return {
        "name": policy.name,
        "selects": [policy.selector.kind.value, policy.selector.text],
        "vhost": policy.vhost,
        "apply_to": policy.apply_to,
        "priority": policy.priority,
        "inherit": policy.inherit,
        "labels": dict(policy.labels),
        "at": str(policy.source),
        "keys": _keys(policy.definition),
        "on": {reason: _keys(overlay) for reason, overlay in policy.on.items()},
    }


def _keys(settings: Mapping[str, Setting]) -> dict[str, list[str]]:
    """By key: its value, and file and line."""
    return {
        name: [value_text(DEFINITION[name], setting.value), str(setting.source)] for name, setting in settings.items()
    }


def _sources(loaded: LoadedPolicies, vhost: str) -> dict[str, str]:
    """Attachments and delayed exchanges, each in a line."""
    lines = {
        f"attachment {attachment.queue}": _attachment(attachment)
        for attachment in loaded.attachments
        if attachment.vhost in {None, vhost}
    }
    late = (entry for entry in loaded.delayed if entry.vhost in {None, vhost})
    return lines | {f"delayed exchange {entry.exchange}": _delayed(entry) for entry in late}


def _attachment(attachment: Attachment) -> str:
    parts = [f"{attachment.selector.kind}, mode {attachment.mode}"]
    if attachment.forward is not None:
        key = "" if attachment.forward.routing_key is None else f" with key {attachment.forward.routing_key.text}"
        parts.append(f"forward to {attachment.forward.exchange!r}{key}")
    if attachment.dead_letter_exchanges is not None:
        parts.append(f"dead letters by {', '.join(map(repr, attachment.dead_letter_exchanges)) or 'no exchange'}")
    return "; ".join([*parts, *(["accepts a delivery limit"] if attachment.accepts_limit else [])])


def _delayed(entry: Delayed) -> str:
    return f"to {entry.to!r}, default {duration_text(entry.default_ms)}"


def policies_of(document: Mapping[str, Any], names: Names) -> PolicySet:
    """The policies of a document, for asking which hold for a queue; values are texts. Raises DocumentError."""
    try:
        if document["v"] != VERSION:
            raise DocumentError(f"layout {document['v']!r}; this version reads {VERSION}")
        policies = tuple(map(_read_policy, document["policies"]))
        return PolicySet(policies, str(document["revision"]), search_all, names)
    except (KeyError, TypeError, ValueError, AttributeError, RegexError) as error:
        raise DocumentError(f"it cannot be read: {error}") from None


def _read_policy(entry: Mapping[str, Any]) -> Policy:
    name, (kind, text) = str(entry["name"]), entry["selects"]
    search = Search(compiled(text)) if kind == SelectorKind.PATTERN else None
    return Policy(
        name=name,
        selector=Selector(SelectorKind(kind), text, search),
        source=_source(name, entry["at"]),
        vhost=entry["vhost"],
        apply_to=entry["apply_to"],
        priority=entry["priority"],
        inherit=entry["inherit"],
        labels=entry["labels"],
        definition=_settings(name, entry["keys"].items()),
        on={reason: _settings(name, keys.items()) for reason, keys in entry["on"].items()},
    )


def _settings(policy: str, keys: Iterable[tuple[str, Any]]) -> dict[str, Setting]:
    return {key: Setting(str(value), _source(policy, at)) for key, (value, at) in keys}


def _source(policy: str, at: str) -> Source:
    file, _, line = at.rpartition(":")
    return Source(policy, file, int(line))
