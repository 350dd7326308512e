"""Letters, records and policies for the tests of the core: plain ones to be varied, and strategies of odd ones."""

from collections.abc import Mapping
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from dlx_router.core.arrival import Facts, read
from dlx_router.core.letter import Arrival, Death, First, History, Letter, Props
from dlx_router.core.policy import (
    Effective,
    Policy,
    PolicySet,
    Rewrite,
    Selector,
    SelectorKind,
    Setting,
    Source,
    ordered,
)
from dlx_router.core.publication import Content
from dlx_router.core.record import Record
from dlx_router.core.template import parse
from tests.support.thoroughness import THOROUGH

law = settings(
    max_examples=12 * THOROUGH,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
hard_law = settings(law, max_examples=40 * THOROUGH)  # what the whole project stands on
KEY = b"k" * 32
NOW = 1_700_000_000_000
CONTENT = Content(crc32=7, size=3, props=Props(message_id="m-1", priority=5, delivery_mode=1))
OWN = "dlx-router."


def is_own(name: str) -> bool:
    return name.startswith(OWN)


def death(queue: str = "work", reason: str = "rejected", times: int = 1, **fields: Any) -> Death:
    plain: dict[str, Any] = {"time_s": NOW // 1000, "exchange": "shop", "routing_keys": ("order.created",)}
    return Death(queue, reason, times, **(plain | fields))


def letter(**fields: Any) -> Letter:
    """A letter that was rejected once at `work`, taken from the inbox."""
    history: History = fields.get("history", (death(),))
    plain: dict[str, Any] = {
        "id": "ab" * 16,
        "vhost": "/",
        "source": "dlx-router.inbox",
        "arrival": Arrival.INBOX,
        "exchange": "dlx-router.inbox",
        "routing_key": "order.created",
        "history": history,
        "first": First("work", "shop", ("order.created",), "rejected"),
        "failed_queue": history[0].queue if history else "dlx-router.inbox",
        "reason": history[0].reason if history else "unknown",
        "fresh": history,
        "base_attempts": 0,
        "redrives": 0,
        "tries": 0,
    }
    return Letter(**(plain | fields))


def record(**fields: Any) -> Record:
    """What is remembered of that letter after its first retry."""
    plain: dict[str, Any] = {
        "id": "ab" * 16,
        "state": "retrying",
        "vhost": "/",
        "failed_queue": "work",
        "attempts": 1,
        "redrives": 0,
        "tries": 0,
        "reason": "rejected",
        "policy": "all",
        "revision": "0123456789ab",
        "first_death_ms": NOW,
        "last_death_ms": NOW,
        "deaths": (death(),),
        "crc32": 7,
        "size": 3,
        "first": First("work", "shop", ("order.created",), "rejected"),
        "props": CONTENT.props,
    }
    return Record(**(plain | fields))


def facts(deaths: History = (), remembered: Record | None = None, **fields: Any) -> Facts:
    plain: dict[str, Any] = {
        "vhost": "/",
        "source": "dlx-router.inbox",
        "arrival": Arrival.INBOX,
        "exchange": "dlx-router.inbox",
        "routing_key": "order.created",
        "deaths": deaths,
        "record": remembered,
        "belongs": remembered is not None,
        "native": True,
        "first": None,
        "now_ms": NOW,
    }
    return Facts(**(plain | fields))


def arrived(deaths: History = (), remembered: Record | None = None, **fields: Any) -> Letter:
    return read(facts(deaths, remembered, **fields), is_own, lambda queue: f"new:{queue}")


def source(policy: str = "all", line: int = 1) -> Source:
    return Source(policy, "orders.yaml", line)


def keys(definition: Mapping[str, Any], policy: str = "all") -> dict[str, Setting]:
    return {key: Setting(value, source(policy, line)) for line, (key, value) in enumerate(definition.items(), 1)}


def policy(
    name: str = "all",
    *,
    match: str = "#",
    kind: SelectorKind = SelectorKind.MATCH,
    search: Any = None,
    on: Mapping[str, Mapping[str, Any]] | None = None,
    definition: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Policy:
    return Policy(
        name,
        Selector(kind, match, search),
        source(name),
        definition=keys(definition or {}, name),
        on={reason: keys(overlay, name) for reason, overlay in (on or {}).items()},
        **fields,
    )


def effective(reason: str = "rejected", *, exact: bool = False, **definition: Any) -> Effective:
    """The keys in force, written `max_redrives=2`; templates as text."""
    named = {name.replace("_", "-"): value for name, value in definition.items()}
    if isinstance(named.get("dead-letter-routing-key"), str):
        named["dead-letter-routing-key"] = parse(named["dead-letter-routing-key"])
    kind, match = (SelectorKind.QUEUE, "work") if exact else (SelectorKind.MATCH, "#")
    resolved = policy_set(policy(match=match, kind=kind, definition=named)).resolve(
        vhost="/", queue="work", reason=reason, queue_type=None
    )
    assert resolved is not None
    return resolved


def policy_set(*policies: Policy) -> PolicySet:
    return ordered(policies, "0123456789ab")


def rewrite(match: str, replace: str) -> Rewrite:
    return Rewrite(match, replace, lambda key: key.replace(match, replace) if match in key else None)


# What an AMQP string may be once decoded: any bytes at all, up to 255 of them.
amqp_text = st.binary(max_size=24).map(lambda raw: raw.decode(errors="surrogateescape")) | st.sampled_from(
    ["", "work", "to:work", "dlx-router.inbox", 'quo"te', "back\\slash", ',"mac":"', "e\u0301", "😀", "\x00", "q" * 255]
)
queues = st.sampled_from(["work", "other", "third", "é", "\udcff"]) | amqp_text
reasons = st.sampled_from(["rejected", "expired", "maxlen", "delivery_limit", "application:card declined"])
deaths = st.builds(
    Death,
    queues,
    reasons,
    st.integers(1, 2**63 - 1),
    st.integers(0, 2**33),
    amqp_text,
    st.lists(amqp_text, max_size=3).map(tuple),
    st.none() | amqp_text,
)
histories = st.lists(deaths, max_size=5, unique_by=lambda entry: entry.key).map(tuple)
firsts = st.builds(First, queues, amqp_text, st.lists(amqp_text, max_size=2).map(tuple), reasons)
