"""Policies and their resolution: which keys are in force for a failed queue, and who set each.

Resolution is key by key. Order of precedence, highest first: `priority`; `queue:` before `match:` before `pattern:`;
among `match:`, more literal words, then `*` before `#`; then the order of the files. See docs/policies.md.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from dlx_router.core.condition import Condition
from dlx_router.core.created_queues import Affixes, is_created
from dlx_router.core.limits import KEEP, Alert, Outage, Retention
from dlx_router.core.names import Names, as_read
from dlx_router.core.selection import Find, Index
from dlx_router.core.selector import Selector, SelectorKind, words_match
from dlx_router.core.template import Template

__all__ = [
    "DEFAULTS",
    "OURS",
    "TYPES",
    "Effective",
    "Policy",
    "PolicySet",
    "Rewrite",
    "SearchAll",
    "Selector",
    "SelectorKind",
    "Setting",
    "Source",
    "merged",
    "ordered",
    "overlay_keys",
    "words_match",
]


OURS: Final = Names()
TYPES: Final = ("classic", "quorum")  # that a policy may be for; nothing dies in a stream by the broker's doing


@dataclass(frozen=True, slots=True)
class Source:
    """Where a value was written; `line` counts from 1."""

    policy: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True)
class Setting:
    """One key's parsed value (durations in ms, sizes in bytes), and where it was written."""

    value: Any
    source: Source


@dataclass(frozen=True, slots=True)
class Rewrite:
    """One `{match, replace}` of dead-letter-routing-key-rewrite; `substitute(key)` is None where it does not match."""

    match: str
    replace: str
    substitute: Callable[[str], str | None] = field(compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Policy:
    """One policy of a file. `vhost` None means every served vhost; `on` maps a reason to its overlay."""

    name: str
    selector: Selector
    source: Source
    vhost: str | None = None
    apply_to: str = "queues"
    priority: int = 0
    inherit: bool = True
    labels: Mapping[str, str] = field(default_factory=dict)
    definition: Mapping[str, Setting] = field(default_factory=dict)
    on: Mapping[str, Mapping[str, Setting]] = field(default_factory=dict)

    @property
    def queue_type(self) -> str | None:
        """The one type of queues that it is for; None: any."""
        return None if self.apply_to == "queues" else self.apply_to.removesuffix("_queues")


DEFAULTS: Final[Mapping[str, Any]] = {
    "max-delivery-attempts": 10,
    "retry-on": ("rejected", "delivery_limit", "application"),
    "redelivery-delay": 0,
    "redelivery-delay-multiplier": 1.0,
    "redelivery-collision-avoidance-factor": 0.0,
    "dead-letter-queue-prefix": "DLQ.",
    "dead-letter-queue-suffix": "",
    "dead-letter-queue-type": "quorum",
    "dead-letter-headers": (),
    "max-redrives": 3,
    "discard": False,
    "ordering": "none",
    "allow-chain": False,
    "requeue-is-death": False,
    "trust-timestamp": False,
}


@dataclass(frozen=True, slots=True)
class Effective:
    """What is in force for one (vhost, queue, reason): every key has a value, and `settings` says who set it."""

    policy: str
    names: tuple[str, ...]
    settings: Mapping[str, Setting]
    labels: Mapping[str, str]
    named_exactly: bool
    dead_letter_exchange: str | None
    routing_key: Template | None
    rewrites: tuple[Rewrite, ...]
    max_attempts: int
    retry_on: frozenset[str]
    delay_ms: int
    multiplier: float
    cap_ms: int
    jitter: float
    auto_create: bool
    dlq_prefix: str
    dlq_suffix: str
    dlq_type: str
    aliases: tuple[str, ...]
    max_redrives: int
    discard: bool
    never_retry: tuple[Condition, ...] = ()
    retry_only: tuple[Condition, ...] = ()
    max_elapsed_ms: int | None = None
    outage: Outage | None = None
    fifo: bool = False
    retention: Retention = KEEP
    auto_delete_ms: int | None = None
    alert: Alert | None = None
    ours: Names = OURS

    @property
    def creates_queue(self) -> bool:
        """Whether dead letters lie in a queue that is named after the one where they failed."""
        return self.auto_create or (self.dead_letter_exchange is None and self.routing_key is None)

    @property
    def affixes(self) -> Affixes:
        """What stands before and behind the failed queue's name, as the broker reads it."""
        return as_read(self.dlq_prefix), as_read(self.dlq_suffix)

    @property
    def looks_further(self) -> bool:
        """Whether a decision depends on more than where, why and how often a letter died."""
        return bool(self.never_retry or self.retry_only or self.outage) or self.max_elapsed_ms is not None


# Makes one search of many selectors (kind PATTERN): a queue's name → positions of those that fit.
SearchAll = Callable[[Sequence[Selector]], Find]


def _one_by_one(selectors: Sequence[Selector]) -> Find:
    return lambda queue: (at for at, selector in enumerate(selectors) if selector.fits(queue))


@dataclass(frozen=True, slots=True)
class PolicySet:
    """All policies of a revision, in order of precedence after construction by `ordered`.

    `ours` are the router's own names, where no dead letter may go.
    """

    policies: tuple[Policy, ...]
    revision: str = "000000000000"
    search_all: SearchAll = field(default=_one_by_one, compare=False, repr=False)
    ours: Names = OURS
    prefixes: tuple[str, ...] = field(init=False, compare=False, repr=False)  # with which auto-created queues may begin
    suffixes: tuple[str, ...] = field(init=False, compare=False, repr=False)  # and end
    _index: Index = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "prefixes", _values(self.policies, "dead-letter-queue-prefix"))
        object.__setattr__(self, "suffixes", _values(self.policies, "dead-letter-queue-suffix"))
        numbered: dict[SelectorKind, list[tuple[int, str]]] = {kind: [] for kind in SelectorKind}
        for at, policy in enumerate(self.policies):
            numbered[policy.selector.kind].append((at, policy.selector.text))
        places = [at for at, _ in numbered[SelectorKind.PATTERN]]
        search = self.search_all([self.policies[at].selector for at in places])
        index = Index(
            numbered[SelectorKind.QUEUE],
            numbered[SelectorKind.MATCH],
            lambda queue: (places[at] for at in search(queue)),
        )
        object.__setattr__(self, "_index", index)

    def resolve(
        self, *, vhost: str, queue: str, reason: str, queue_type: str | None, own: bool | None = None
    ) -> Effective | None:
        """The effective keys, or None where no policy selects the queue: what every surface shows is decided here.

        `queue_type` is classic, quorum or stream, and has no default, so that nobody forgets it. None: not known, and
        then no policy for one type holds; `left_out` names those.
        `own` marks the router's own queues and auto-created DLQs: only a policy with `queue:` selects those. None: as
        `ours` and `creates` say.
        """
        return self.effective(self.chain(vhost=vhost, queue=queue, queue_type=queue_type, own=own), reason)

    def effective(self, chain: tuple[Policy, ...], reason: str) -> Effective | None:
        """The keys of a chain for a reason; None where it is empty. Equal for reasons of the same `overlays`."""
        return _effective(chain, reason, self.ours) if chain else None

    def fitting(self, queue: str) -> list[int]:
        """The positions of all policies whose selector names the queue, in order, whatever their vhost and type."""
        return self._index.fitting(queue)

    def creates(self, queue: str, vhost: str) -> bool:
        """Whether this is an auto-created dead-letter queue: of a queue of any type, for any reason to die."""
        if not queue.startswith(self.prefixes):  # as most do not
            return False
        return is_created(queue, self.prefixes, self.suffixes, lambda failed: self._affixes_for(failed, vhost))

    def _affixes_for(self, failed: str, vhost: str) -> Iterator[Affixes]:
        own = self.ours.is_own(failed)
        for kind in (None, *TYPES) if self.asks_types else (None,):
            chain = self.chain(vhost=vhost, queue=failed, queue_type=kind, own=own)
            for reason in {"", *(reason for policy in chain for reason in policy.on)}:
                effective = self.effective(chain, reason)
                if effective is not None and effective.creates_queue:
                    yield effective.affixes

    @property
    def asks_types(self) -> bool:
        """Whether any policy is for queues of one type."""
        return any(policy.queue_type is not None for policy in self.policies)

    def left_out(self, *, vhost: str, queue: str, queue_type: str | None) -> tuple[Policy, ...]:
        """The policies for one type that would contribute if the queue were of it: none where its type is known."""
        if queue_type is not None or not self.asks_types:
            return ()
        chains = (self.chain(vhost=vhost, queue=queue, queue_type=kind) for kind in TYPES)
        return tuple(policy for chain in chains for policy in chain if policy.queue_type is not None)

    def chain(self, *, vhost: str, queue: str, queue_type: str | None, own: bool | None = None) -> tuple[Policy, ...]:
        """The policies that contribute, highest precedence first; `inherit: false` ends it."""
        if own is None:
            own = self.ours.is_own(queue) or self.creates(queue, vhost)
        out: list[Policy] = []
        for at in self._index.fitting(queue):
            policy = self.policies[at]
            if policy.vhost not in {None, vhost} or (own and policy.selector.kind is not SelectorKind.QUEUE):
                continue
            if policy.queue_type not in {None, queue_type}:
                continue
            out.append(policy)
            if not policy.inherit:
                break
        return tuple(out)


def _values(policies: Sequence[Policy], key: str) -> tuple[str, ...]:
    """Every text that a key has in any of them, as the broker reads it, and its default; none without policies."""
    layers = (layer for policy in policies for layer in (policy.definition, *policy.on.values()))
    written = {as_read(layer[key].value) for layer in layers if key in layer}
    return tuple(sorted({DEFAULTS[key], *written})) if policies else ()


def ordered(
    policies: Sequence[Policy], revision: str = "000000000000", search_all: SearchAll = _one_by_one, ours: Names = OURS
) -> PolicySet:
    """A PolicySet in order of precedence; the sort is stable, so the order of files decides ties."""
    chain = sorted(policies, key=lambda policy: (-policy.priority, *policy.selector.rank))
    return PolicySet(tuple(chain), revision, search_all, ours)


def overlay_keys(reason: str) -> tuple[str, ...]:
    """The `on:` keys that apply to a reason, most specific first (`application:NAME` before `application`)."""
    head, colon, _ = reason.partition(":")
    return (reason, head) if colon else (reason,)


def overlays(chain: Sequence[Policy], reason: str) -> tuple[str, ...]:
    """Those of the reason's overlay keys that any policy of the chain has: nothing else of a reason matters."""
    return tuple(key for key in overlay_keys(reason) if any(key in policy.on for policy in chain))


def merged(chain: Sequence[Policy], reason: str) -> dict[str, Setting]:
    """Overlays beat every base key; within each layer the first in the chain wins."""
    settings: dict[str, Setting] = {}
    layers = [[policy.on.get(key, {}) for policy in chain] for key in overlay_keys(reason)]
    layers.append([policy.definition for policy in chain])
    for layer in layers:
        for definition in layer:
            for key, setting in definition.items():
                settings.setdefault(key, setting)
    return settings


def _effective(chain: tuple[Policy, ...], reason: str, ours: Names) -> Effective:
    settings = merged(chain, reason)

    def get(key: str) -> Any:  # noqa: ANN401 - a key has the type that its parser gave it
        return settings[key].value if key in settings else DEFAULTS.get(key)

    delay = get("redelivery-delay")
    cap = get("max-redelivery-delay")
    exchange = get("dead-letter-exchange")
    auto = get("auto-create-dead-letter-resources")
    labels: dict[str, str] = {}
    for policy in reversed(chain):
        labels.update(policy.labels)
    return Effective(
        policy=chain[0].name,
        names=tuple(policy.name for policy in chain),
        settings=settings,
        labels=labels,
        named_exactly=any(policy.selector.kind is SelectorKind.QUEUE for policy in chain),
        dead_letter_exchange=exchange,
        routing_key=get("dead-letter-routing-key"),
        rewrites=tuple(get("dead-letter-routing-key-rewrite") or ()),
        max_attempts=get("max-delivery-attempts"),
        retry_on=frozenset(get("retry-on")),
        delay_ms=delay,
        multiplier=float(get("redelivery-delay-multiplier")),
        cap_ms=10 * delay if cap is None else cap,
        jitter=float(get("redelivery-collision-avoidance-factor")),
        auto_create=exchange is None if auto is None else auto,
        dlq_prefix=get("dead-letter-queue-prefix"),
        dlq_suffix=get("dead-letter-queue-suffix"),
        dlq_type=get("dead-letter-queue-type"),
        aliases=tuple(get("dead-letter-headers")),
        max_redrives=get("max-redrives"),
        discard=bool(get("discard")),
        never_retry=tuple(get("never-retry") or ()),
        retry_only=tuple(get("retry-only") or ()),
        max_elapsed_ms=get("redelivery-max-elapsed"),
        outage=get("outage"),
        fifo=get("ordering") == "fifo",
        retention=Retention(
            get("dead-letter-queue-ttl"), get("dead-letter-queue-max-length"), get("dead-letter-queue-max-length-bytes")
        ),
        auto_delete_ms=get("auto-delete-dead-letter-queue-after"),
        alert=get("alert"),
        ours=ours,
    )
