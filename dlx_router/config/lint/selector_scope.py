"""What a policy or attachment is about, and should not be: every queue, where letters are dropped; the router's own."""

from collections.abc import Iterator, Mapping
from typing import Final

from dlx_router.config.findings import NO_SUCH_QUEUE, OWN_SUBJECT, WIDE_DISCARD, Finding, Severity, shown
from dlx_router.core.names import Names
from dlx_router.core.policy import Policy, PolicySet, Selector, SelectorKind, Setting

NARROW: Final = 'name the queues whose letters nobody needs by queue: or a longer match:, "logs.#" say'
# Names that have nothing in common: what fits them all fits any.
_PROBES: Final = ("a", "z9", "A-b_c", "a.b.c.d.e", "0")


def findings_of(policies: PolicySet) -> Iterator[Finding]:
    """All findings about subjects of policies."""
    for policy in policies.policies:
        layers: list[Mapping[str, Setting]] = [policy.definition, *policy.on.values()]
        dropping = [layer["discard"] for layer in layers if "discard" in layer and layer["discard"].value]
        if dropping and is_wide(policy.selector):
            for setting in dropping:
                what = f"discard: true, and {written(policy.selector)} names any queue"
                message = f"{what}: what dies there is gone; {NARROW}"
                yield Finding(setting.source.file, setting.source.line, WIDE_DISCARD, Severity.WARNING, message)
        if is_about_own(policy.selector, policies.ours):
            yield _own_subject(policy)
        elif hint := exact_hint(policy.selector):
            yield unmatched(policy, f"names one queue of exactly that name{hint}")


def exact_hint(selector: Selector) -> str:
    """What to write if the text of `queue:` looks like a pattern."""
    is_pattern = selector.kind is SelectorKind.QUEUE and {"*", "#"} & {*selector.text.split(".")}
    return f"; for a pattern write match: {shown(selector.text)}" if is_pattern else ""


def unmatched(policy: Policy, why: str) -> Finding:
    """A policy that selects nothing, or seems to."""
    message = f"policy {shown(policy.name)}, {written(policy.selector)}, {why}"
    return Finding(policy.source.file, policy.source.line, NO_SUCH_QUEUE, Severity.WARNING, message)


def is_wide(selector: Selector) -> bool:
    """Whether it names every queue that there is."""
    match selector.kind:
        case SelectorKind.QUEUE:
            return False
        case SelectorKind.MATCH:
            return set(selector.text.split(".")) <= {"*", "#"}
    return all(map(selector.fits, _PROBES))


def is_about_own(selector: Selector, names: Names) -> bool:
    """Whether it names nothing but queues of the router."""
    if selector.kind is SelectorKind.PATTERN:
        plain = selector.text.removeprefix("^").replace("\\", "")
        return names.is_own(plain) and not any(map(selector.fits, _PROBES))
    return names.is_own(selector.text)


def written(selector: Selector) -> str:
    """The selector as it was written."""
    return f"{selector.kind.value}: {shown(selector.text)}"


def _own_subject(policy: Policy) -> Finding:
    if policy.selector.kind is SelectorKind.QUEUE:
        why = (
            "is about letters that failed in a queue of the router itself, where none fails; only what came there with "
        )
        why += "nothing that tells where it failed is judged by it"
    else:
        why = "names queues of the router itself, and only queue: selects those: it is never used"
    message = f"policy {shown(policy.name)}, {written(policy.selector)}, {why}; name the queues where messages fail"
    return Finding(policy.source.file, policy.source.line, OWN_SUBJECT, Severity.WARNING, message)
