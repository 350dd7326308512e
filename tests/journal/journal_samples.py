"""Events for the tests of the journal: rulings, properties, and the table of odd header values."""

import json
from typing import Any

from hypothesis import strategies as st

from dlx_router.core.letter import Arrival, Declared, Letter
from dlx_router.journal.events import Ruling, fragments
from dlx_router.journal.fields import KINDS
from dlx_router.wire import properties
from tests.core.core_samples import NOW, amqp_text, firsts, histories, letter, queues, reasons

Event = dict[str, Any]
RULING = Ruling("dead_lettered", 1, "router-a", policy="all", revision="0123456789ab", exchange="dlx", routing_key="k")
NAMES = (
    "content_type", "content_encoding", "correlation_id", "reply_to", "expiration", "message_id", "type", "user_id",
    "app_id",
)  # fmt: skip


def told(number: int = 1, kind: str = "dead_lettered", *, queue: str = "orders", at: int = 0, **own: Any) -> bytes:
    """The line of an event of letter `number`, `at` ms after NOW."""
    died = letter(id=f"{number:032x}", failed_queue=queue, **own)
    return line(died, RULING._replace(kind=kind), now_ms=NOW + at)


def line(died: Letter | None = None, ruling: Ruling = RULING, now_ms: int = NOW, **own: Any) -> bytes:
    """The line of a letter that was dead-lettered, to be varied."""
    died = died or letter()
    plain: dict[str, Any] = {"first_ms": died.first_death_ms, "last_ms": died.last_death_ms, "crc32": 7, "size": 3}
    plain |= {"serial": died.serial, "possible_copy": died.possible_copy}
    return fragments(died, ruling).line(died.id, now_ms, **(plain | own))


def event(*args: Any, **own: Any) -> Event:
    """The same, read again."""
    document = json.loads(line(*args, **own))
    assert isinstance(document, dict)
    return document


def props(**values: Any) -> properties.Properties:
    """Properties as the wire brings them."""
    blank = properties.parse(b"\x00\x00", 0)
    for name, value in values.items():
        setattr(blank, name, value)
    return blank


octets = st.integers(0, 255)
short = st.binary(max_size=20)
some_props = st.fixed_dictionaries(
    {},
    optional=dict.fromkeys(NAMES, short)
    | {"priority": octets, "delivery_mode": octets, "timestamp": st.integers(0, 2**63 - 1)},
)
moments = st.integers(0, 2**43)
letters = st.builds(
    letter,
    id=st.from_regex(r"\A[0-9a-f]{32}\Z"),
    vhost=amqp_text,
    source=queues,
    arrival=st.sampled_from(Arrival),
    exchange=amqp_text,
    routing_key=amqp_text,
    history=histories,
    fresh=histories,
    first=st.none() | firsts,
    failed_queue=queues,
    reason=reasons | st.just("unknown"),
    base_attempts=st.integers(0, 100),
    redrives=st.integers(0, 5),
    tries=st.integers(0, 100),
    state=st.none() | st.sampled_from(["retrying", "dead", "parked", "held"]),
    first_death_ms=moments,
    last_death_ms=moments,
    parent=st.none() | st.just("cd" * 16),
    known_before=st.booleans(),
    rejected_since=st.booleans(),
    declared=st.none() | st.builds(Declared, st.booleans(), st.none() | st.integers(0, 10**9), st.none() | amqp_text),
)
rulings = st.builds(
    Ruling,
    kind=st.sampled_from(sorted(KINDS)),
    attempts=st.integers(0, 100),
    router_id=st.just("router-a"),
    policy=amqp_text,
    revision=st.just("0123456789ab"),
    cause=st.sampled_from(["", "loop", "attempts_spent"]),
    exchange=st.none() | amqp_text,
    routing_key=amqp_text,
    rung_ms=st.sampled_from([0, 100, 5000]),
    breaker=st.sampled_from(["", "open"]),
    redrive_id=st.sampled_from(["", "r-1"]),
    detail=amqp_text,
)
