"""Inbox shards: which of several inboxes the dead letters of a queue come to.

The hash is one that a regular expression can work out too, because RabbitMQ policies say where dead letters go: so
queues to come have their shard at once, and a plan does not grow with the number of queues. See decision 0089.
"""

import re
from typing import Final

MOST_SHARDS: Final = 16
# Of each bit of the hash the letters and digits that change it, as a regular expression has them between brackets.
# Short, for an expression may have 1,024 bytes; each has half of the letters and of the digits, and no two the same.
COUNTED: Final = (
    "13579ACEGIKMOQSUWYacegikmoqsuwy",
    "0-4A-Ma-m",
    "2-6G-Sg-s",
    "12569C-FK-NS-Vc-fk-ns-v",
)
_ASCII: Final = tuple(map(chr, range(128)))
_BITS: Final = {
    character: sum(1 << bit for bit, counted in enumerate(COUNTED) if re.fullmatch(f"[{counted}]", character))
    for character in _ASCII
}


def hashed(queue: str) -> int:
    """0 to 15: each bit is set where the name has an odd number of the letters and digits that change it."""
    bits = 0
    for character in queue:
        bits ^= _BITS.get(character, 0)
    return bits


def shard_of(queue: str, shards: int) -> int:
    """The shard of a queue, from 0. With one shard more, what moves comes from one shard and goes to the new one."""
    bits = hashed(queue)
    wide = bits & ((1 << shards.bit_length()) - 1)
    return wide if wide < shards else bits & ((1 << (shards.bit_length() - 1)) - 1)


def bits_of(shard: int, shards: int) -> tuple[bool, ...]:
    """The lowest bits of the hash, lowest first, that all queues of the shard have in common and no others."""
    narrow = shards.bit_length() - 1
    is_split = shard >= 1 << narrow or shard + (1 << narrow) < shards
    return tuple(bool(shard >> bit & 1) for bit in range(narrow + is_split))
