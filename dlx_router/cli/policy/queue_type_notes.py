"""What the type of the failed queue and the broker's version add to `policy explain`: nothing here asks a broker.

Only a quorum queue lets a message die by its delivery limit, and what counts as a return differs by version. See
docs/architecture.md ("Life of a letter"), rabbitmq.com/docs/quorum-queues.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from dlx_router.config.language.value_text import left_out_text
from dlx_router.core.attending import QueueFacts, delivery_limit
from dlx_router.core.policy import Effective, Policy

LIMIT: Final = "delivery-limit"
DIED: Final = "delivery_limit"
_VERSION: Final = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})(\.[0-9]+)*", re.ASCII)
_NEGATIVE_SINCE: Final = (4, 0)
_FAILURES_SINCE: Final = (4, 3)


class Broker(NamedTuple):
    """Where the queue is. `kind` None: not said, so that policies for one type only are left out."""

    kind: str | None = None
    version: tuple[int, int] = (4, 3)

    @property
    def text(self) -> str:
        """The version as people write it."""
        return ".".join(map(str, self.version))


UNKNOWN: Final = Broker()


def version_of(text: str) -> tuple[int, int] | None:
    """`4.3` or `4.3.6` → (4, 3); None for anything else."""
    parts = _VERSION.fullmatch(text)
    return (int(parts[1]), int(parts[2])) if parts else None


def left_out(policies: Sequence[Policy]) -> Iterator[str]:
    """A line for each policy that holds only where the queue has the right type, which nobody has said."""
    for policy in policies:
        text = left_out_text(policy)
        yield f"{text[0].upper()}{text[1:]}: left out; see --queue-type {policy.queue_type}."


def returns(base: Effective, dying: Effective, broker: Broker) -> Iterator[str]:
    """When a message that consumers give back dies there, and how many deliveries the attempts come to.

    `base`: what is in force whatever the reason, which apply hands over; `dying`: for `delivery_limit`. Nothing where
    the type was not said.
    """
    if broker.kind == "classic":
        yield "A classic queue counts no returns: what consumers requeue never dies of it."
    if broker.kind != "quorum":
        return
    limit, by = _limit(base, broker)
    if limit is not None and limit < 0:
        yield f"RabbitMQ {broker.text} refuses a policy with {by}; write a number of 0 or more."
        return
    if limit is None:
        yield f"RabbitMQ {broker.text} has no delivery limit for this quorum queue ({by}): returns never end."
        yield "An x-delivery-limit of 0 or more among the queue's arguments holds instead."
        return
    yield f"RabbitMQ {broker.text} lets a message of this quorum queue die at its return number {limit + 1} ({by})."
    yield _deliveries(dying, limit)
    counted = "A requeue by basic.nack is no return there." if broker.version >= _FAILURES_SINCE else ""
    yield f"{counted} A smaller x-delivery-limit among the queue's arguments holds instead.".lstrip()


def _limit(policy: Effective, broker: Broker) -> tuple[int | None, str]:
    """How many returns are survived (None: any number; negative: refused there), and who says so."""
    settings = policy.settings
    asked = settings.get("requeue-is-death")
    if asked is not None and asked.value and policy.delay_ms:
        return 0, f"requeue-is-death, {asked.source}; by apply"
    limit = settings.get(LIMIT)
    if limit is None:
        return delivery_limit(QueueFacts("quorum"), broker.version), "its default"
    by = f"{LIMIT}: {limit.value}, {limit.source}; by apply"
    if limit.value < 0 and broker.version < _NEGATIVE_SINCE:
        return -1, by
    return delivery_limit(QueueFacts("quorum", policy={LIMIT: limit.value}), broker.version), by


def _deliveries(policy: Effective, limit: int) -> str:
    tried = DIED in policy.retry_on
    if tried and policy.max_attempts < 0:
        return f"Such a death is one attempt of {limit + 1} deliveries; attempts have no limit."
    attempts = policy.max_attempts if tried else 1
    return f"Such a death is one attempt: at most {attempts} × {limit + 1} = {attempts * (limit + 1)} deliveries."
