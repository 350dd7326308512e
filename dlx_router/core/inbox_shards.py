"""Inbox shards: which of several inboxes the dead letters of a queue come to.

The hash is one that a regular expression can work out too, because RabbitMQ policies say where dead letters go: so
queues to come have their shard at once, and a plan does not grow with the number of queues. See decision 0089.
"""

from typing import Final

MOST_SHARDS: Final = 16
_COUNTED: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def hashed(queue: str) -> int:
    """0 to 15: the exclusive or of the lowest four bits of the name's ASCII letters and digits."""
    found = 0
    for character in queue:
        if character in _COUNTED:
            found ^= ord(character)
    return found & (MOST_SHARDS - 1)


def shard_of(queue: str, shards: int) -> int:
    """The shard of a queue, from 0. With one shard more, what moves comes from one shard and goes to the new one."""
    found = hashed(queue)
    wide = found & ((1 << shards.bit_length()) - 1)
    return wide if wide < shards else found & ((1 << (shards.bit_length() - 1)) - 1)


def bits_of(shard: int, shards: int) -> tuple[bool, ...]:
    """The lowest bits of the hash, lowest first, that all queues of the shard have in common and no others."""
    narrow = shards.bit_length() - 1
    is_split = shard >= 1 << narrow or shard + (1 << narrow) < shards
    return tuple(bool(shard >> bit & 1) for bit in range(narrow + is_split))


def having(bit: int) -> str:
    """The letters and digits that change this bit of the hash."""
    return "".join(character for character in _COUNTED if ord(character) >> bit & 1)
