"""Who wrote a message of the journal: one keyed digest over its bytes, made with the key that signs records.

Whoever may publish by the default exchange can write into the journal. A reader with the key tells such messages from
a router's; it keeps their events, marks them and counts them. The digest covers vhost and stream, so that what one
journal says cannot be carried into another; a true message that is written again brings event ids that are known.
"""

from enum import StrEnum
from hashlib import blake2b
from hmac import compare_digest
from typing import Final

HEADER: Final = "dlx-router-mac"  # longstr: name of the key, a colon, digest; in hex
_PERSON: Final = b"dlx-journal"
_NAME: Final = b"dlx-key-name"


class Signature(StrEnum):
    """What a reader finds. `UNKNOWN`: signed, but with a key that this reader does not have."""

    OK = "ok"
    NONE = "none"
    UNKNOWN = "unknown_key"
    BAD = "bad"


class Signer:
    """Signs and verifies the messages of one stream with one key."""

    def __init__(self, key: bytes, vhost: str, stream: str) -> None:
        place = b"".join(len(part).to_bytes(4, "big") + part for part in map(_encoded, (vhost, stream)))
        self._begun = blake2b(place, digest_size=16, key=key, person=_PERSON)
        self._name = blake2b(digest_size=4, key=key, person=_NAME).hexdigest()

    def sign(self, body: bytes) -> bytes:
        """The header's value for a message with this body."""
        digest = self._begun.copy()
        digest.update(body)
        return f"{self._name}:{digest.hexdigest()}".encode()

    def judge(self, body: bytes, header: bytes | None) -> Signature:
        """What the header's value is worth; None: there is none, or it is no text."""
        if header is None:
            return Signature.NONE
        if header.partition(b":")[0] != self._name.encode():
            return Signature.UNKNOWN
        return Signature.OK if compare_digest(header, self.sign(body)) else Signature.BAD


def judged(signer: Signer | None, body: bytes, header: bytes | None) -> Signature:
    """The same for a reader that may have no key."""
    if signer is not None:
        return signer.judge(body, header)
    return Signature.NONE if header is None else Signature.UNKNOWN


def _encoded(text: str) -> bytes:
    return text.encode(errors="surrogateescape")
