"""The table of keys: what may stand in a `definition`, each with its parser, default and meaning.

Parsing, `policy explain` and the schema all read this table; a key is described nowhere else.
docs/policies.md is made of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from dlx_router.config.findings import nearest, shown
from dlx_router.config.language import structured_values, values
from dlx_router.config.language.regex import RegexError, substitute
from dlx_router.config.language.values import Parser, rejected, takes, unexpected
from dlx_router.config.language.yaml_tree import Node, Pairs, Scalar
from dlx_router.core import template
from dlx_router.core.policy import DEFAULTS, Rewrite, Selector, SelectorKind
from dlx_router.core.words import APPLICATION, BROKER_REASONS

REASONS: Final = ("rejected", "expired", "maxlen", "delivery_limit", APPLICATION)
assert BROKER_REASONS | {APPLICATION} == set(REASONS)


@dataclass(frozen=True, slots=True)
class Key:
    """One key: `default` is its value where nobody sets it, `says` tells a default that depends on other keys.

    `of_queue`: it is about the queue, whatever its letters die of, and is read nowhere under `on:`.
    """

    name: str
    parse: Parser
    doc: str
    says: str = ""
    of_queue: bool = False

    @property
    def default(self) -> Any:
        """The value where nobody sets the key; None where `says` tells it."""
        return DEFAULTS.get(self.name)


@takes({"type": "string", "maxLength": 1024})
def routing_key(node: Node) -> template.Template:
    """A template of routing keys."""
    written = values.text(empty=True, max_bytes=1024)(node)
    try:
        return template.parse(written)
    except template.TemplateError as error:
        raise rejected(node, str(error)) from None


@takes(
    {
        "type": "object",
        "properties": {"match": {"type": "string"}, "replace": {"type": "string"}},
        "required": ["match", "replace"],
        "additionalProperties": False,
    }
)
def rewrite(node: Node) -> Rewrite:
    """One `{match: REGEX, replace: TEXT}`."""
    parts = {key.text: value for key, value in node.pairs} if isinstance(node, Pairs) else {}
    if set(parts) != {"match", "replace"}:
        raise (
            unexpected(node, "{match: REGEX, replace: TEXT}")
            if not parts
            else rejected(node, f"expected the keys match and replace, found {', '.join(parts)}")
        )
    match = values.text(max_bytes=1000)(parts["match"])
    replace = values.text(empty=True, max_bytes=1000)(parts["replace"])
    try:
        return Rewrite(match, replace, substitute(match, replace))
    except RegexError as error:
        raise rejected(parts["match"], str(error)) from None


_WORD: Final = r"(\*|#|[^*#.]*)"


@takes({"type": "string", "minLength": 1, "maxLength": values.MAX_NAME_BYTES, "pattern": rf"^{_WORD}(\.{_WORD})*$"})
def word_pattern(node: Node) -> str:
    """Words between dots, `*` one word, `#` any number of words."""
    if isinstance(node, Scalar) and node.value is None:
        raise rejected(node, 'expected text, found nothing; a # begins a comment in YAML, put it in quotes: "#"')
    written: str = values.text()(node)
    for word in written.split("."):
        if word not in {"*", "#"} and ("*" in word or "#" in word):
            raise rejected(
                node,
                f'"{word}" mixes a word with a wildcard; * and # stand alone between dots '
                f'("orders.*", "orders.#"), or use pattern: with a regular expression',
            )
    if written.startswith("^") or written.endswith("$"):
        raise rejected(node, f"{shown(written)} looks like a regular expression; write it as pattern:")
    return written


@takes(word_pattern.schema)
def match(node: Node) -> Selector:
    """Queues by the words of their names."""
    return Selector(SelectorKind.MATCH, word_pattern(node))


@takes({"enum": [*REASONS]})
def reason(node: Node) -> str:
    """A reason that retry-on may list."""
    if isinstance(node, Scalar) and node.text.startswith(f"{APPLICATION}:"):
        raise rejected(
            node, f'retry-on takes whole reasons; for one of them write on: {{"{node.text}": {{retry-on: []}}}}'
        )
    return str(values.one_of(*REASONS)(node))


@takes({"enum": ["quorum", "classic"]})
def dlq_type(node: Node) -> str:
    """The type of an auto-created dead-letter queue."""
    if isinstance(node, Scalar) and node.text == "stream":
        raise rejected(node, "a stream would drop the record of a letter; write quorum or classic")
    return str(values.one_of("quorum", "classic")(node))


_LIST_OF_REASONS: Final = f"a list of reasons ({', '.join(REASONS)})"

DEFINITION: Final[Mapping[str, Key]] = {
    key.name: key
    for key in (
        Key("dead-letter-exchange", values.text(empty=True),
            "Exchange of the final copy; never one of the router's own.",
            "the default exchange, with the key of the auto-created dead-letter queue"),
        Key("dead-letter-routing-key", routing_key,
            "Routing key of the final copy: {queue} {exchange} {routing_key} {reason} {attempts} {vhost} {header:X}.",
            "all original keys, as the broker"),
        Key("dead-letter-routing-key-rewrite", values.list_of(rewrite, "a list of {match: REGEX, replace: TEXT}"),
            "Replaces what matches in the original key, first rule that matches, without a dead-letter-routing-key.",
            "no rewrite"),
        Key("max-delivery-attempts", values.attempts,
            "Deliveries including the first; dead instead of the next. -1: no limit."),
        Key("retry-on", values.distinct(values.list_of(reason, _LIST_OF_REASONS)),
            "Reasons that are tried again and count as attempts."),
        Key("redelivery-delay", values.duration, "Base wait before a letter is tried again."),
        Key("redelivery-delay-multiplier", values.number(0, 1e6, "a number above 0, such as 2.0", above=True),
            "Each wait is so many times the one before."),
        Key("max-redelivery-delay", values.duration, "No wait is longer.", "10 × redelivery-delay"),
        Key("redelivery-collision-avoidance-factor", values.number(0, 1, "a number in 0..1, such as 0.15"),
            "Jitter: each wait differs by up to this part of itself, so that no crowd comes back at one instant."),
        Key("auto-create-dead-letter-resources", values.boolean,
            "Create the dead-letter queue when it is needed.", "true without dead-letter-exchange, else false"),
        Key("dead-letter-queue-prefix", values.text(empty=True),
            "Before the failed queue's name: its dead-letter queue."),
        Key("dead-letter-queue-suffix", values.text(empty=True),
            "After the failed queue's name: its dead-letter queue."),
        Key("dead-letter-queue-type", dlq_type, "Type of auto-created dead-letter queues: quorum or classic."),
        Key("dead-letter-headers",
            values.distinct(values.list_of(values.one_of("emq", "artemis"), "a list of emq, artemis")),
            "Headers of other systems that the final copy carries too."),
        Key("max-redrives",
            values.integer(1, 2**31 - 1, also=-1, wanted="a number of redrives: 1 or more, or -1 for no limit"),
            "Dead again after so many redrives: parked. -1: no limit."),
        Key("discard", values.boolean,
            "Where a letter would be dead-lettered, after its tries, it is dropped: the only way to do so; counted."),
        Key("allow-queues", values.distinct(values.list_of(match, "a list of queue names, * and # as wildcards")),
            "Queues that a key made from headers may name on the default exchange.", "none"),
        Key("never-retry", structured_values.CONDITIONS,
            "Conditions in CEL; where one holds, straight to the target.", "none"),
        Key("retry-only", structured_values.CONDITIONS,
            "Conditions in CEL; tried again only where one holds, else straight to the target.", "no condition"),
        Key("redelivery-max-elapsed", structured_values.TTL,
            "A retry that would end later than this after the first death since the last redrive is not made.",
            "no limit"),
        Key("outage", structured_values.outage,
            "So many deaths (a count) within that duration, and letters wait without using attempts; one is tried "
            "after each probe-every (a duration).", "none"),
        Key("ordering", values.one_of("none", "fifo"),
            "fifo: dead letters in the order in which they arrived.", of_queue=True),
        Key("message-ttl", values.duration,
            "Relay and guard let older messages die as expired; apply hands it to the broker.", "no limit",
            of_queue=True),
        Key("max-length", values.integer(0, 2**53, wanted="a number of messages"),
            "Relay and guard let the oldest over it die as maxlen; apply hands it to the broker.", "no limit",
            of_queue=True),
        Key("max-length-bytes", values.size, "As max-length, by the bytes of the bodies.", "no limit", of_queue=True),
        Key("trust-timestamp", values.boolean, "The producer's timestamp tells the age of a message.", of_queue=True),
        Key("overflow", structured_values.OVERFLOW,
            "What a full work queue does; apply hands it to the broker.", "as the broker", of_queue=True),
        Key("delivery-limit", structured_values.DELIVERY_LIMIT,
            "Returns before a quorum queue lets a message die; apply hands it to the broker.", "as the broker",
            of_queue=True),
        Key("expires", structured_values.TTL,
            "An unused work queue is deleted after this; apply hands it to the broker.", "never", of_queue=True),
        Key("requeue-is-death", values.boolean,
            "apply sets delivery-limit 0: a rollback waits as a rejection does.", of_queue=True),
        Key("dead-letter-queue-ttl", structured_values.TTL,
            "Letters leave an auto-created dead-letter queue after this, into the journal.", "kept for ever"),
        Key("dead-letter-queue-max-length", structured_values.LENGTH,
            "The oldest letters over it leave an auto-created dead-letter queue, into the journal.", "no limit"),
        Key("dead-letter-queue-max-length-bytes", structured_values.LENGTH_BYTES,
            "As dead-letter-queue-max-length.", "no limit"),
        Key("auto-delete-dead-letter-queue-after", structured_values.TTL,
            "An auto-created classic dead-letter queue that was empty and unused for so long is deleted.", "never"),
        Key("allow-chain", values.boolean, "Letters of a queue that is another's dead-letter queue may die again."),
        Key("alert", structured_values.alert,
            "Thresholds of the shipped alert rules: depth in letters that lie there, oldest as a duration, rate in "
            "letters that die a second.", "none"),
        Key("journal", structured_values.journal,
            "{events, body, redact}: which events are written and what of a message they show.",
            "{events: all, body: retired}"),
    )
}  # fmt: skip

_RETRIES: Final = (
    "max-retries retries retry retry-limit max-retry retry-count max-retry-count retry-attempts max-retry-attempts "
    "number-of-retries redeliveries max-redeliveries maximum-redeliveries redelivery-limit max-redelivery-attempts"
)
# The same thing in the words of other systems, and in those that people try first.
FOREIGN: Final[Mapping[str, str]] = {
    **dict.fromkeys(("attempts", "max-attempts", "max-deliveries", "delivery-attempts"), "max-delivery-attempts"),
    **dict.fromkeys(
        _RETRIES.split(), "max-delivery-attempts, which counts deliveries: 5 retries are max-delivery-attempts: 6"
    ),
    **dict.fromkeys(("delay", "retry-delay", "wait", "interval"), "redelivery-delay"),
    **dict.fromkeys(("max-delay", "max-retry-delay", "cap"), "max-redelivery-delay"),
    **dict.fromkeys(("backoff", "multiplier", "factor", "backoff-multiplier"), "redelivery-delay-multiplier"),
    "jitter": "redelivery-collision-avoidance-factor",
    **dict.fromkeys(("dead-letter-queue", "dlq"), 'dead-letter-routing-key (with dead-letter-exchange: "")'),
    "dlx": "dead-letter-exchange",
    "ttl": "message-ttl",
    "drop": "discard",
    "dead-letter-address": "dead-letter-exchange",
    "dead-letter-target-arn": "dead-letter-exchange",
    "dlq-name": "dead-letter-exchange",
    "expiry-address": "on: {expired: {dead-letter-exchange: …}}",
    "max-receive-count": "max-delivery-attempts",
    "max-receive-time": "max-delivery-attempts",
}


def known_reason(text: str) -> bool:
    """Whether a letter can have this reason: one of the five, or application:NAME."""
    head, colon, name = text.partition(":")
    return text in REASONS or (head == APPLICATION and bool(colon and name))


def overlay_reason(key: Scalar) -> str:
    """A key of `on:`: a reason, or `application:NAME`."""
    if known_reason(key.text):
        return key.text
    known = f"known: {', '.join(REASONS)}, application:NAME"
    raise rejected(key, f"unknown reason {shown(key.text)}{nearest(key.text, REASONS) or ';'} {known}")
