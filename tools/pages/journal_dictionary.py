"""The dictionary that messages of the journal are compressed with, made of events of nobody's letters.

    python -m tools.pages.journal_dictionary FILE

The same zstd makes the same bytes. A dictionary that is in use never changes: another one gets another id, and readers
know both for ever.
"""

import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import zstandard

from dlx_router.core.letter import Arrival, Death, First, Letter
from dlx_router.journal import dictionary
from dlx_router.journal.entry import Entry, line_of
from dlx_router.journal.events import NO_BODY, Ruling, fragments
from dlx_router.journal.packing import LEVEL
from dlx_router.wire import properties

SIZE: Final = 4096
JOURNALS: Final = 120
EVENTS: Final = 60
WORDS: Final = (
    "order", "invoice", "payment", "stock", "mail", "report", "user", "account", "ship", "refund", "cart", "price",
    "audit", "import", "sync", "login",
)  # fmt: skip
WAITS_MS: Final = (1_000, 5_000, 30_000, 60_000, 300_000)
TYPES: Final = (b"application/json", b"text/plain", b"application/octet-stream")
EXTRA: Final = (
    '"redacted":["x-token"],"body_mode":"none"',
    '"error":{"type":"ValueError","message":"no such order","frame":"shop/orders.py:42 in take"},"body_mode":"none"',
    '"headers":{"x-tenant":"\\"acme\\""},"body_mode":"hash","body_sha256":"{sha}"',
    '"body_mode":"inline","body_sha256":"{sha}","body":"eyJvcmRlciI6IDQ3MTEsICJwcmljZSI6IDEyLjUwfQ=="',
)


def main(arguments: list[str]) -> None:
    """Write it."""
    Path(arguments[0]).write_bytes(trained())


def trained() -> bytes:
    """Its bytes."""
    return zstandard.train_dictionary(SIZE, [*samples()], dict_id=dictionary.ID, level=LEVEL).as_bytes()


def samples() -> Iterator[bytes]:
    """Texts of messages: most of real ones hold one to three events."""
    for seed in range(JOURNALS):
        chance = random.Random(seed)  # the same every time
        entries = [*_journal(chance)]
        while entries:
            count = chance.choice((1, 1, 1, 2, 3, 8))
            yield text(entries[:count])
            del entries[:count]


def text(entries: list[Entry]) -> bytes:
    """The lines of a message."""
    numbers: dict[Any, int] = {}
    lines = []
    for shared, row in entries:
        if shared not in numbers:
            numbers[shared] = len(numbers)
            lines.append(line_of(shared))
        lines.append(f"[{numbers[shared]}{row}")
    return "".join(lines).encode()


def _journal(chance: random.Random) -> Iterator[Entry]:
    """Of one vhost, some queues, one revision of the policies."""
    now_ms = 1_795_000_000_000 + chance.randrange(10**11)
    revision = f"{chance.getrandbits(48):012x}"
    kinds = [_kind(chance) for _ in range(chance.choice((2, 5, 10)))]
    vhost = chance.choice(("/", "/", "/", chance.choice(WORDS)))
    for _ in range(EVENTS):
        now_ms += chance.randrange(3)
        yield _event(chance, chance.choice(kinds), now_ms, revision, vhost)


def _kind(chance: random.Random) -> dict[str, Any]:
    """What letters of one queue have in common."""
    exchange, policy = chance.choice(WORDS), chance.choice(("all", "defaults", chance.choice(WORDS)))
    props = properties.parse(b"\x00\x00", 0)
    props.content_type, props.app_id = chance.choice(TYPES), chance.choice((None, chance.choice(WORDS).encode()))
    props.delivery_mode, props.priority = 2, chance.choice((None, None, None, 5))
    kind = chance.choice(("retried", "retried", "dead_lettered", "dead_lettered", "released", "parked", "held"))
    queue, key = ".".join(chance.sample(WORDS, 2)), ".".join(chance.sample(WORDS, chance.choice((1, 2))))
    reason = chance.choice(("rejected", "rejected", "rejected", "expired", "maxlen", "delivery_limit"))
    own = {"id": not _seldom(chance, 5), "correlation": _seldom(chance, 3), "time": _seldom(chance, 2)}
    return {"exchange": exchange, "queue": queue, "key": key, "policy": policy, "reason": reason, "kind": kind,
            "props": props, "own": own, "wait_ms": chance.choice(WAITS_MS)}  # fmt: skip


def _seldom(chance: random.Random, of: int) -> bool:
    return not chance.randrange(of)


def _event(chance: random.Random, kind: dict[str, Any], now_ms: int, revision: str, vhost: str) -> Entry:
    queue, key, reason, props, own = (kind[name] for name in ("queue", "key", "reason", "props", "own"))
    times = chance.choice((1, 1, 1, 2, 3))
    first_ms = now_ms - chance.randrange(2, 40) if times == 1 else now_ms - chance.randrange(5_000, 120_000)
    died = Death(queue, reason, times, first_ms // 1000, kind["exchange"], (key,))
    comes_back = kind["kind"] == "released"
    letter = Letter(
        id=f"{chance.getrandbits(128):032x}", vhost=vhost, source=f"dlx-router.{'release' if comes_back else 'inbox'}",
        arrival=Arrival.RELEASE if comes_back else Arrival.INBOX,
        exchange="" if comes_back else "dlx-router.inbox", routing_key=key,
        history=(died,), first=First(queue, kind["exchange"], (key,), reason), failed_queue=queue, reason=reason,
        fresh=() if comes_back else (died._replace(times=1),), base_attempts=times - 1, redrives=0, tries=0,
        state="retrying" if comes_back or times > 1 else None, first_death_ms=first_ms // 1000 * 1000,
        last_death_ms=now_ms,
    )  # fmt: skip
    waits = kind["kind"] in {"retried", "held"}
    exchange, target = ("", "dlx-router.parking") if kind["kind"] == "parked" else ("", f"DLQ.{queue}")
    ruling = Ruling(
        kind["kind"], times, f"{chance.choice(WORDS)}-{chance.getrandbits(24):06x}", policy=kind["policy"],
        revision=revision, exchange=None if waits else exchange, routing_key="" if waits else target,
        cause="attempts_spent" if kind["kind"] == "dead_lettered" else "", rung_ms=kind["wait_ms"] if waits else 0,
    )  # fmt: skip
    props.message_id = str(UUID(int=chance.getrandbits(128), version=4)).encode() if own["id"] else None
    props.correlation_id = str(UUID(int=chance.getrandbits(128), version=4)).encode() if own["correlation"] else None
    props.timestamp = now_ms // 1000 if own["time"] else None
    extra = NO_BODY
    if _seldom(chance, 10):
        extra = chance.choice(EXTRA).replace("{sha}", f"{chance.getrandbits(256):064x}")
    return fragments(letter, ruling).entry(
        letter.id, now_ms, first_ms=letter.first_death_ms, last_ms=now_ms, crc32=chance.getrandbits(32),
        size=chance.randrange(50, 5000), props=props, due_ms=now_ms + kind["wait_ms"] if waits else None,
        draw=round(chance.uniform(-1, 1), 6) if waits and _seldom(chance, 5) else None, extra=extra,
    )  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1:])
