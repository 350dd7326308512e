"""Where a dead letter goes in the end: keys, exchange, and the names of dead-letter queues. Pure."""

from hashlib import blake2b
from typing import Final

from dlx_router.core.letter import Letter
from dlx_router.core.names import as_read
from dlx_router.core.policy import Effective

MAX_NAME_BYTES: Final = 255


def final_keys(letter: Letter, policy: Effective, attempts: int) -> tuple[tuple[str, ...], int]:
    """The keys of the final copy (DLQ name, template, rewrite, or as they came), and how many headers were missing."""
    original = original_keys(letter)
    if policy.auto_create or (policy.dead_letter_exchange is None and policy.routing_key is None):
        return (dead_letter_queue(policy, letter.failed_queue),), 0
    if policy.routing_key is not None:
        text, missing = policy.routing_key.render(_values(letter, original, attempts), letter.header)
        return (text,), missing
    for rewrite in policy.rewrites:
        if (changed := rewrite.substitute(original[0])) is not None:
            return (changed,), 0
    return original, 0


def original_keys(letter: Letter) -> tuple[str, ...]:
    """Routing key and CC keys with which the letter once entered its failed queue."""
    return (
        letter.history[0].routing_keys if letter.history and letter.history[0].routing_keys else (letter.routing_key,)
    )


def original_exchange(letter: Letter) -> str:
    """The exchange by which the letter entered its failed queue."""
    return letter.history[0].exchange if letter.history else letter.exchange


def _values(letter: Letter, keys: tuple[str, ...], attempts: int) -> dict[str, str]:
    return {
        "queue": letter.failed_queue,
        "exchange": original_exchange(letter),
        "routing_key": keys[0],
        "reason": letter.reason,
        "attempts": str(attempts),
        "vhost": letter.vhost,
    }


def dead_letter_queue(policy: Effective, failed_queue: str) -> str:
    """`<prefix><failed queue><suffix>`, as the broker reads it; over 255 bytes it ends in a hash of the whole."""
    return short_name(as_read(f"{policy.dlq_prefix}{failed_queue}{policy.dlq_suffix}"))


def transient_queue(policy: Effective) -> str:
    """The common dead-letter queue of exclusive, generated and vanished queues."""
    return dead_letter_queue(policy, "transient")


def short_name(name: str, limit: int = MAX_NAME_BYTES) -> str:
    """The name, or where it is too long its beginning and a hash of the whole: at most `limit` bytes, and stable."""
    data = name.encode(errors="surrogateescape")
    if len(data) <= limit:
        return name
    digest = blake2b(data, digest_size=8).hexdigest()
    return data[: limit - 17].decode(errors="ignore") + "-" + digest
