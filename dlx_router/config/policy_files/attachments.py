"""Attachments: which further queues the router attends, and how. See docs/modes.md."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from dlx_router.config.findings import (
    ALL_NEW,
    ATTACHED_TWICE,
    BACK_TO_WORK,
    CYCLE,
    MISSING_KEY,
    OPEN_TARGET,
    OWN_SUBJECT,
    OWN_TARGET,
    WITHOUT_LIMITS,
    Finding,
    Report,
    Severity,
    shown,
)
from dlx_router.config.language import keys, values
from dlx_router.config.language.keys import match
from dlx_router.config.language.queue_selectors import chosen, pattern, queue
from dlx_router.config.language.shape import Field, Shape
from dlx_router.config.language.values import rejected, takes, unexpected
from dlx_router.config.language.yaml_tree import Items, Node, Pairs
from dlx_router.config.lint.key_conflicts import beginning
from dlx_router.config.lint.policy_conflicts import written_targets
from dlx_router.config.lint.selector_scope import is_about_own, written
from dlx_router.core.names import Names
from dlx_router.core.passing import Target, limits_of
from dlx_router.core.policy import TYPES, PolicySet, Selector, SelectorKind, Source
from dlx_router.core.template import Template
from dlx_router.core.words import UNKNOWN

INBOX: Final = "inbox"
RELAY: Final = "relay"
GUARD: Final = "guard"
_DEAD_ONLY: Final = frozenset({"reason", "attempts"})


@dataclass(frozen=True, slots=True)
class Attachment:
    """More sources: the queues that `selector` names. `vhost` None means every served vhost.

    `forward`: where a relay leads. `accepts_limit`: a quorum queue that deletes after some returns is attended too.
    `dead_letter_exchanges`: those by which the broker brings dead letters there; None: nothing is said of them.
    """

    selector: Selector
    mode: str
    vhost: str | None
    source: Source
    forward: Target | None = None
    accepts_limit: bool = False
    dead_letter_exchanges: tuple[str, ...] | None = None

    @property
    def queue(self) -> str:
        """The queue, or the pattern of its name."""
        return self.selector.text

    def same_as(self, other: object) -> bool:
        """Whether both mean the same, wherever they were written."""
        return isinstance(other, Attachment) and replace(self, source=other.source) == other

    @property
    def named(self) -> bool:
        """Whether it names one queue; patterns need the management API."""
        return self.selector.kind is SelectorKind.QUEUE


@takes(
    {
        "type": "object",
        "properties": {
            "exchange": {"type": "string", "maxLength": values.MAX_NAME_BYTES},
            "routing-key": {"type": "string", "maxLength": 1024},
        },
        "required": ["exchange"],
        "additionalProperties": False,
    }
)
def forward_to(node: Node) -> Target:
    """`{exchange: NAME, routing-key: TEMPLATE}`; without a key all keys stay as they came."""
    parts = {key.text: value for key, value in node.pairs} if isinstance(node, Pairs) else {}
    if "exchange" not in parts or not parts.keys() <= {"exchange", "routing-key"}:
        raise unexpected(node, "{exchange: NAME}, and routing-key: where the key is to change")
    exchange = values.text(empty=True)(parts["exchange"])
    key: Template | None = keys.routing_key(parts["routing-key"]) if "routing-key" in parts else None
    if key is not None and (dead := sorted(_fields(key) & _DEAD_ONLY)):
        raise rejected(node, f"{{{dead[0]}}} is known of dead letters only; a living message has none, take it out")
    return Target(exchange, key)


_EXCHANGE: Final = values.text(empty=True)
_EXCHANGES: Final = values.distinct(values.list_of(_EXCHANGE, "a list of exchanges"))


@takes({"anyOf": [_EXCHANGE.schema, _EXCHANGES.schema]})
def dead_letter_exchanges(node: Node) -> tuple[str, ...]:
    """One exchange or a list of them; `[]` says that none brings dead letters, `""` is the default exchange."""
    return tuple(_EXCHANGES(node)) if isinstance(node, Items) else (_EXCHANGE(node),)


def _fields(key: Template) -> set[str]:
    return {part[1] for part in key.parts if isinstance(part, tuple) and part[0] == "value"}


ATTACHMENT: Final = Shape(
    "an attachment",
    {
        "queue": queue,
        "match": match,
        "pattern": pattern,
        "vhost": values.text(),
        "mode": values.one_of(INBOX, RELAY, GUARD),
        "forward-to": forward_to,
        "accept-delivery-limit": values.boolean,
        "dead-letter-exchanges": dead_letter_exchanges,
    },
)


def read(node: Node, report: Report) -> Attachment | None:
    """One attachment; None where the report says what is wrong."""
    fields = ATTACHMENT.read(node, report)
    if fields is None:
        return None
    written = {key.text for key, _ in node.pairs} if isinstance(node, Pairs) else set()
    selector = chosen(fields, node, "an attachment", report)
    mode = fields["mode"].value if "mode" in fields else INBOX
    forward: Target | None = fields["forward-to"].value if "forward-to" in fields else None
    if mode == RELAY and "forward-to" not in written:
        report.error(MISSING_KEY, node.line, "a relay without forward-to; write forward-to: {exchange: NAME}")
    if mode != RELAY and forward is not None:
        report.error(MISSING_KEY, node.line, f"forward-to is for a relay, this is mode: {mode}; write mode: relay")
    if selector is None:
        return None
    _check_target(forward, selector, fields, report)
    return Attachment(
        selector,
        mode,
        fields["vhost"].value if "vhost" in fields else None,
        Source("", report.file, node.line),
        forward,
        accepts_limit="accept-delivery-limit" in fields and bool(fields["accept-delivery-limit"].value),
        dead_letter_exchanges=fields["dead-letter-exchanges"].value if "dead-letter-exchanges" in fields else None,
    )


def _check_target(forward: Target | None, selector: Selector, fields: dict[str, Field], report: Report) -> None:
    """On the default exchange the key names a queue: it must not be the source, nor anybody's choice."""
    if forward is None or forward.exchange:
        return
    line, key = fields["forward-to"].line, forward.routing_key
    if key is None or key.parts in {(("value", "queue"),), (("value", "routing_key"),)} or _names_source(key, selector):
        message = (
            "forward-to leads back to the source: on the default exchange the key is the name of a queue; "
            'write routing-key: with the name of another queue, "{queue}.out" say'
        )
        report.error(BACK_TO_WORK, line, message)
    elif key.uses_headers:
        message = (
            "forward-to takes a header on the default exchange, so whoever publishes may name any queue; "
            "write an exchange, and bind to it the queues that may be named"
        )
        report.error(OPEN_TARGET, line, message)


def _names_source(key: Template, selector: Selector) -> bool:
    """Whether the key, as it is written, names a queue that the attachment takes from."""
    return len(key.parts) == 1 and isinstance(key.parts[0], str) and selector.fits(key.parts[0])


def findings_of(attachments: Sequence[Attachment], policies: PolicySet, names: Names) -> list[Finding]:
    """What the attachments mean together, beside the policies, and of the router's own `names`."""
    return [*_twice(attachments), *_own_targets(attachments, names), *_without_limits(attachments, policies)]


def _own_targets(attachments: Iterable[Attachment], names: Names) -> Iterator[Finding]:
    """What is the router's own holds what it put there itself; a key with fields is looked at for each message."""
    for attachment in attachments:
        if attachment.forward is None:
            continue
        exchange, key = attachment.forward
        if names.is_own(exchange):
            message = f"forward-to names {shown(exchange)}, an exchange of the router itself; write one of yours"
        elif not exchange and key is not None and names.is_own(beginning(key)):
            message = f"forward-to names {shown(key.text)}, a queue of the router itself; write one of yours"
        else:
            continue
        yield Finding(attachment.source.file, attachment.source.line, OWN_TARGET, Severity.ERROR, message)


def _twice(attachments: Sequence[Attachment]) -> Iterator[Finding]:
    known: dict[tuple[str | None, Selector], Attachment] = {}
    for attachment in attachments:
        first = known.setdefault((attachment.vhost, attachment.selector), attachment)
        if first is not attachment:
            message = f"attachment {shown(attachment.queue)} is there already ({first.source}); keep one of them"
            yield Finding(attachment.source.file, attachment.source.line, ATTACHED_TWICE, Severity.ERROR, message)


def _without_limits(attachments: Iterable[Attachment], policies: PolicySet) -> Iterator[Finding]:
    """A guard has nothing else to do than to enforce limits."""
    for attachment in attachments:
        if attachment.mode != GUARD or not attachment.named:
            continue
        vhost, queue = attachment.vhost or "/", attachment.queue
        effectives = (
            policies.resolve(vhost=vhost, queue=queue, reason=UNKNOWN, queue_type=each) for each in (None, *TYPES)
        )
        if not any(limits_of(each).any for each in effectives):
            message = (
                f"guard of {shown(attachment.queue)} has nothing to do: no policy sets message-ttl, max-length or "
                f"max-length-bytes for this queue; write one, or take the attachment out"
            )
            yield Finding(attachment.source.file, attachment.source.line, WITHOUT_LIMITS, Severity.WARNING, message)


def doubts_of(attachments: Iterable[Attachment], policies: PolicySet, names: Names) -> Iterator[Finding]:
    """What is right as it stands, and maybe not meant so.

    Anybody who may publish to the queue can write an x-death, so it is believed only by an exchange that is named.
    """
    targets = written_targets(policies) if attachments else {}
    for attachment in attachments:
        if is_about_own(attachment.selector, names) and attachment.queue not in names.inlets:
            message = (
                f"attachment {written(attachment.selector)} is about the router's own queues, which it attends by "
                f"itself and nobody else may; take the attachment out"
            )
            yield Finding(attachment.source.file, attachment.source.line, OWN_SUBJECT, Severity.WARNING, message)
        elif attachment.mode == INBOX and (sender := targets.get(attachment.queue)) is not None:
            message = (
                f"policy {shown(sender)} sends dead letters to {shown(attachment.queue)}, and this attachment takes "
                f"them from there again: they go round, and are parked; attach another queue, or name another target"
            )
            yield Finding(attachment.source.file, attachment.source.line, CYCLE, Severity.WARNING, message)
        if attachment.mode == INBOX and attachment.dead_letter_exchanges is None:
            message = (
                f"attachment {shown(attachment.queue)} names no dead-letter-exchanges, so whatever arrives there "
                f"counts as new (unknown origin), whatever its x-death tells; write dead-letter-exchanges: with those "
                f'by which the broker brings dead letters there ("" is the default exchange), or [] where there are '
                f"none"
            )
            yield Finding(attachment.source.file, attachment.source.line, ALL_NEW, Severity.WARNING, message)
