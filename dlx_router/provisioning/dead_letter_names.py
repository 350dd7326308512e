"""What auto-created dead-letter queues are called: `queue:` alone names them, so wider selectors leave them out."""

from collections.abc import Iterator, Sequence

from dlx_router.core.created_queues import Affixes
from dlx_router.core.policy import Policy, PolicySet, SelectorKind
from dlx_router.provisioning import selector_regex


def affixes(policies: PolicySet, vhost: str) -> list[Affixes]:
    """Those that policies of this vhost make, for any reason to die."""
    pairs: dict[Affixes, None] = {}
    for policy in policies.policies:
        if policy.vhost in {None, vhost}:
            pairs |= dict.fromkeys(_of_policy(policy, policies, vhost))
    return [pair for pair in pairs if any(pair)]


def _of_policy(policy: Policy, policies: PolicySet, vhost: str) -> Iterator[Affixes]:
    queue, kind = policy.selector.text, policy.queue_type
    chain = policies.chain(vhost=vhost, queue=queue, own=False, queue_type=kind)
    if not policy.selector.fits(queue):  # the text of a regular expression seldom fits itself
        chain = (policy, *chain) if policy.inherit else (policy,)
    for reason in ("", *sorted({reason for member in chain for reason in member.on})):
        effective = policies.effective(chain, reason)
        if effective is not None and effective.auto_create:
            yield effective.affixes


def guards_of(written: Sequence[Policy], known: Sequence[Affixes]) -> Iterator[str]:
    """Expressions of what an expression must not name that names what all these policies do."""
    if any(policy.selector.kind is SelectorKind.QUEUE for policy in written):
        return
    for before, after in known:
        if before and any(_apart(policy, before) for policy in written):
            continue
        yield f"^{_literal(before)}.*{_literal(after)}$" if after else f"^{_literal(before)}"


def _apart(policy: Policy, prefix: str) -> bool:
    """Whether no queue of the policy begins with the prefix: its first word tells."""
    word, dot, _ = policy.selector.text.partition(".")
    if policy.selector.kind is not SelectorKind.MATCH or word in {"*", "#"}:
        return False
    begin = word + dot
    return not (begin.startswith(prefix) or prefix.startswith(begin))


def _literal(text: str) -> str:
    return selector_regex.exactly([text])[1:-1] if text else ""
