"""What lies in the state queue: hellos of routers, the key that signs, and what no router wrote.

Anybody who may publish to the default exchange can write there. Guarantees: reading never raises, whatever the bytes;
the first key that was seen stays the key, whatever comes behind it; a key that cannot be decoded is never passed over
for one that lies behind it.
"""

import base64
import binascii
import json
from collections.abc import Container
from dataclasses import dataclass, field
from hashlib import blake2b
from hmac import compare_digest
from typing import Any, Final

KEY_BYTES: Final = 32
VERSION: Final = 1
MAX_BYTES: Final = 65_536  # what routers write has some 150, an answer 400
MAX_NONCE: Final = 64


@dataclass(frozen=True, slots=True)
class Claim:
    """Who leads, by its own word. `url`: of its HTTP port; "": it tells none."""

    router_id: str
    url: str


@dataclass(frozen=True, slots=True)
class Hello:
    """A router is there; what it gets back tells it that it is the active consumer. `nonce`: of this hello alone."""

    instance: str
    mac: str = ""
    nonce: str = ""

    def is_by(self, shared: bytes | None) -> bool:
        """Whether a router with this key said it."""
        return shared is not None and compare_digest(self.mac.encode(errors="replace"), _mac(shared, self.instance))


@dataclass(frozen=True, slots=True)
class Key:
    """The key of all, or a copy of it."""

    secret: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Sealed:
    """A message that says it is a key, and cannot be decoded: a later version may have written it."""

    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Junk:
    """Nothing that a router keeps here."""

    why: str


First = Key | Sealed


def read(body: bytes, first: First | None) -> Hello | First | Junk:
    """What a message is, `first` being the key that was seen before. A key comes out only where it is that one."""
    document = _parsed(body)
    match document.get("kind"):
        case "hello":
            instance, mac, nonce = document.get("instance"), document.get("mac", ""), document.get("nonce", "")
            if isinstance(instance, str) and isinstance(mac, str) and isinstance(nonce, str):
                return Hello(instance, mac, nonce[:MAX_NONCE])
            return Junk("a hello of nobody")
        case "key":
            return _as_first(_decoded(document) or Sealed(body), first)
        case _:
            return Junk("no message of a router")


def hello(instance: str, shared: bytes | None = None, nonce: str = "") -> bytes:
    """A hello; signed with the key that routers share, it is answered."""
    mac = {} if shared is None else {"mac": _mac(shared, instance).decode()}
    extra = {"nonce": nonce} if nonce else {}
    return _written({"kind": "hello", "v": VERSION, "instance": instance} | mac | extra)


def answer(instance: str, shared: bytes, claim: Claim | None = None, nonce: str = "") -> bytes:
    """What whoever is active answers to this hello: that it leads, and where it can be asked."""
    document: dict[str, Any] = {"kind": "leader", "v": VERSION, "mac": _mac(shared, f"leader {instance}").decode()}
    if claim is not None and nonce:
        digest = _claim_mac(shared, instance, nonce, claim)
        document["claim"] = {"router": claim.router_id, "url": claim.url, "nonce": nonce, "mac": digest}
    return _written(document)


def claimed(body: bytes, instance: str, nonces: Container[str], shared: bytes) -> Claim | None:
    """The claim in an answer to one of these hellos of this instance; None: there is none, or not by this key.

    An answer that was given before is none: it names a hello that is over.
    """
    document = _parsed(body).get("claim")
    members = [document.get(name) for name in ("router", "url", "nonce", "mac")] if isinstance(document, dict) else []
    if not members or not all(isinstance(member, str) for member in members):
        return None
    router_id, url, nonce, mac = map(str, members)
    claim = Claim(router_id, url)
    is_ours = compare_digest(mac.encode(errors="replace"), _claim_mac(shared, instance, nonce, claim).encode())
    return claim if is_ours and nonce in nonces else None


def is_answer(body: bytes, instance: str, shared: bytes) -> bool:
    """Whether a leader with this key says that to this instance."""
    document = _parsed(body)
    mac = document.get("mac")
    if document.get("kind") != "leader" or not isinstance(mac, str):
        return False
    return compare_digest(mac.encode(errors="replace"), _mac(shared, f"leader {instance}"))


def key(secret: bytes, instance: str, created_ms: int) -> bytes:
    """The message that keeps a key."""
    text = base64.b64encode(secret).decode()
    return _written({"kind": "key", "v": VERSION, "key": text, "instance": instance, "created_ms": created_ms})


def _as_first(candidate: First, first: First | None) -> First | Junk:
    if first is None:
        return candidate
    match candidate, first:
        case Key(secret), Key(known) if compare_digest(secret, known):
            return candidate
        case Sealed(body), Sealed(known) if body == known:
            return candidate
        case Key(), _:
            return Junk("a second key; the first one stays in use")
    return Junk("a key that cannot be decoded, behind the first")


def _decoded(document: dict[str, Any]) -> Key | None:
    version, text = document.get("v"), document.get("key")
    if version is True or version != VERSION or not isinstance(text, str):
        return None
    try:
        secret = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return Key(secret) if len(secret) == KEY_BYTES else None


def _parsed(body: bytes) -> dict[str, Any]:
    """Its JSON object; none where it is no such thing, however large or deep."""
    if len(body) > MAX_BYTES:
        return {}
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _mac(shared: bytes, instance: str) -> bytes:
    text = instance.encode(errors="surrogatepass")
    return blake2b(text, digest_size=16, key=shared, person=b"dlx-hello").hexdigest().encode()


def _claim_mac(shared: bytes, instance: str, nonce: str, claim: Claim) -> str:
    """Each part with its length: no two claims have the same bytes."""
    digest = blake2b(digest_size=32, key=shared, person=b"dlx-claim")
    for part in (instance, nonce, claim.router_id, claim.url):
        data = part.encode(errors="surrogatepass")
        digest.update(len(data).to_bytes(4, "big") + data)
    return digest.hexdigest()


def _written(document: dict[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()
