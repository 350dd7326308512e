"""What is in force, in the words of a policy: the one explanation that command line and API show, as data."""

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from dlx_router.config.language import structured_values, values
from dlx_router.config.language.keys import DEFINITION, Key
from dlx_router.config.units import duration_text, size_text
from dlx_router.core.condition import Condition
from dlx_router.core.limits import Alert, Outage
from dlx_router.core.policy import Effective, Policy, PolicySet, Rewrite, Selector, Setting
from dlx_router.core.template import Template

_DURATIONS: Final = (values.duration, structured_values.TTL)
DEFAULT: Final = "default"  # who set a value that nobody set
_SIZES: Final = (values.size, structured_values.LENGTH_BYTES)


class KeyRow(NamedTuple):
    """A key, its value, and the policy, file and line that set it."""

    key: str
    value: str
    set_by: str


class Explanation(NamedTuple):
    """What holds for a queue. `policies`: those that contribute, the first wins; empty: none selects it.

    `left_out`: policies for one type of queues that would contribute, if the queue's type is not given.
    """

    policies: tuple[str, ...]
    keys: tuple[KeyRow, ...]
    left_out: tuple[Policy, ...]


def explained(policies: PolicySet, *, vhost: str, queue: str, reason: str, queue_type: str | None) -> Explanation:
    """By the resolution that the daemon obeys. `reason` "": what holds before any overlay."""
    effective = policies.resolve(vhost=vhost, queue=queue, reason=reason, queue_type=queue_type)
    left_out = policies.left_out(vhost=vhost, queue=queue, queue_type=queue_type)
    return Explanation(*((), ()) if effective is None else (effective.names, tuple(key_rows(effective))), left_out)


def key_rows(effective: Effective) -> Iterator[KeyRow]:
    """Every key, set or not."""
    for key in DEFINITION.values():
        yield key_row(key, effective.settings.get(key.name))


def key_row(key: Key, setting: Setting | None) -> KeyRow:
    """One key; its default where nobody set it."""
    if setting is None:
        return KeyRow(key.name, key.says or value_text(key, key.default), DEFAULT)
    return KeyRow(key.name, value_text(key, setting.value), set_by(setting))


def overlay_rows(effective: Effective, base: Effective) -> Iterator[KeyRow]:
    """The keys that hold for the reason of `effective` only."""
    for name, setting in effective.settings.items():
        if base.settings.get(name) != setting:
            yield KeyRow(name, value_text(DEFINITION[name], setting.value), set_by(setting))


def definition_texts(policy: Policy) -> dict[str, str]:
    """The keys of a policy's own definition, by name."""
    return {name: value_text(DEFINITION[name], setting.value) for name, setting in policy.definition.items()}


def set_by(setting: Setting) -> str:
    """Who set a value: file, line and policy."""
    return f"{setting.source} ({setting.source.policy})"


def left_out_text(policy: Policy) -> str:
    """A policy for one type of queues that is not judged, because the queue's type is not given."""
    return f"policy {policy.name} ({policy.source}) is for {policy.queue_type} queues only"


def value_text(key: Key, value: Any) -> str:  # noqa: PLR0911 - each key has a type of its own
    """A value as it would be written in a policy."""
    match value:
        case bool():
            return str(value).lower()
        case int() if key.parse in _DURATIONS:
            return duration_text(value)
        case int() if key.parse in _SIZES:
            return size_text(value)
        case Template() | Selector() | Condition():
            return value.text or '""'
        case Rewrite():
            return f"{value.match} → {value.replace}"
        case Outage() | Alert():
            return ", ".join(f"{name}: {text}" for name, text in _parts(value).items() if text)
        case dict():
            return ", ".join(f"{name}: {value_text(key, item)}" for name, item in value.items())
        case tuple():
            return f"[{', '.join(value_text(key, item) for item in value)}]"
        case _:
            return str(value) or '""'


def _parts(value: Outage | Alert) -> dict[str, str]:
    """The parts of a key that has some, each as it is written; empty where it is not set."""
    if isinstance(value, Outage):
        within, probe = duration_text(value.within_ms), duration_text(value.probe_ms)
        return {"deaths": str(value.deaths), "within": within, "probe-every": probe}
    depth, rate = ("" if number is None else f"{number:.15g}" for number in (value.depth, value.rate))
    return {"depth": depth, "oldest": "" if value.oldest_ms is None else duration_text(value.oldest_ms), "rate": rate}
