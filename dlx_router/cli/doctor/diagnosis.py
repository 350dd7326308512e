"""What `doctor` says: a check, what it found, and what mends it. The rules about queues are pure."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from dlx_router.core.attending import RAISE, delivery_limit, facts_of, remedy, vanishes
from dlx_router.core.names import Names

MAX_SKEW_S: Final = 5.0
OLDEST: Final = (3, 10)
ROOM: Final = 50  # queues that should still fit: those for delays, and some dead-letter queues


class Level(StrEnum):
    """How much it matters: `error` costs letters or stops the router, `warning` may, `note` is to be known."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One finding. `fix` is empty only where nothing has to be done."""

    check: str
    level: Level
    found: str
    fix: str = ""


def version(number: str) -> Diagnosis:
    """Whether this RabbitMQ is one that we know."""
    numbers = parsed(number)
    if numbers < OLDEST:
        return Diagnosis("version", Level.ERROR, f"RabbitMQ {number} is too old", "upgrade to 3.10 or later")
    return Diagnosis("version", Level.OK, f"RabbitMQ {number}")


def parsed(number: str) -> tuple[int, ...]:
    """Major and minor; (0,) where it is no version."""
    try:
        return tuple(int(part) for part in number.split(".")[:2])
    except ValueError:
        return (0,)


def clock(ahead_s: float) -> Diagnosis:
    """Waits end and runs are cut off by clocks."""
    if abs(ahead_s) <= MAX_SKEW_S:
        return Diagnosis("clock", Level.OK, "the broker's clock and this one agree")
    way = "ahead" if ahead_s > 0 else "behind"
    text = f"the broker's clock is {abs(ahead_s):.0f} s {way} of this one"
    return Diagnosis("clock", Level.WARNING, text, "let both follow NTP: ages, waits and cutoffs are told by them")


_MENDS: Final = {
    "memory": "let consumers empty queues, or give the node memory (vm_memory_high_watermark); `rabbitmq-diagnostics "
    "memory_breakdown` says what uses it",
    "disk": "free space on the node's disk, more than disk_free_limit; `rabbitmq-diagnostics status` shows both",
    "file": "raise the number of files that the node may open (ulimit -n, LimitNOFILE)",
}


def alarms(raised: Sequence[tuple[str, str]]) -> Diagnosis:
    """What blocks all publishers of a cluster: (node, resource or the broker's own words) of each."""
    if not raised:
        return Diagnosis("alarms", Level.OK, "none")
    where = ", ".join(f"{resource} ({node})" for node, resource in raised)
    text = f"the broker has an alarm: {where}; it takes no messages until it is over, so letters wait where they are"
    fixes = [fix for word, fix in _MENDS.items() if any(word in resource for _, resource in raised)]
    return Diagnosis("alarms", Level.ERROR, text, "; ".join(fixes) or "look at the broker's log")


def queue(row: Mapping[str, Any], names: Names, *, selected: bool) -> Iterator[Diagnosis]:
    """What is to be said of one queue that is not ours. `selected`: a policy of ours applies to it."""
    name, kind = row["name"], row.get("type", "classic")
    target = setting(row, "dead-letter-exchange")
    if target in names.inlets:
        yield from _hop(name, kind, row)
    elif target is None and selected and kind != "stream":
        yield Diagnosis(
            "dead-lettering",
            Level.WARNING,
            f"queue {name!r} has a policy of ours, but its dead letters are dropped by the broker",
            f"`dlx-router apply`, or a RabbitMQ policy of yours with dead-letter-exchange {names.inbox!r}",
        )


def _hop(name: str, kind: str, row: Mapping[str, Any]) -> Iterator[Diagnosis]:
    if kind == "quorum" and setting(row, "dead-letter-strategy") == "at-least-once":
        if setting(row, "overflow") != "reject-publish":
            yield Diagnosis(
                "hop",
                Level.WARNING,
                f"queue {name!r}: at-least-once has no effect without overflow reject-publish",
                "add overflow: reject-publish to its policy",
            )
        return
    fix = "accept it (docs/limits.md), or make it a quorum queue with dead-letter-strategy: at-least-once"
    if kind == "quorum":
        fix = "add dead-letter-strategy: at-least-once and overflow: reject-publish to its policy"
    text = f"queue {name!r} ({kind}) dead-letters at most once: what the broker drops on that hop nobody has"
    yield Diagnosis("hop", Level.NOTE, text, fix)


def queue_limit(vhost: str, limit: int | None, queues: int) -> Diagnosis | None:
    """Whether the vhost may have more queues: the router declares dead-letter queues and delay queues as needed."""
    if limit is None or limit < 0:
        return None
    text = f"vhost {vhost!r} has {queues} of at most {limit} queues (max-queues)"
    if limit - queues > ROOM:
        return Diagnosis("queue limit", Level.OK, text)
    text += ": the router cannot declare the dead-letter queues and delay queues that it needs; messages are parked"
    raised = f"rabbitmqctl set_vhost_limits -p {shlex.quote(vhost)} '{{\"max-queues\": {queues + 1000}}}'"
    fix = f"{raised}, or share dead-letter queues"
    return Diagnosis("queue limit", Level.ERROR if limit <= queues else Level.WARNING, text, fix)


def source(row: Mapping[str, Any], broker: tuple[int, ...]) -> Iterator[Diagnosis]:
    """Say of an attached queue whether a read would delete it, or the broker ends what was given back too often."""
    facts = facts_of(row)
    if why := vanishes(facts):
        text = f"source {row['name']!r} is not attached: {why}"
        yield Diagnosis("lifetime", Level.ERROR, text, "as it says; until then its messages stay where they are")
        return
    if (limit := delivery_limit(facts, broker)) is None:
        return
    drops = not facts.has_dlx
    text = f"source {row['name']!r} has delivery limit {limit}"
    text += ": beyond it the broker deletes the letter" if drops else ""
    can_rise = remedy(facts, broker) is RAISE
    fix = f"{RAISE} (2147483647), or " if can_rise else "no policy raises its argument x-delivery-limit: "
    fix += "give the queue a dead-letter-exchange"
    yield Diagnosis("delivery limit", Level.ERROR if drops else Level.NOTE, text, fix)


def setting(row: Mapping[str, Any], key: str) -> Any:  # noqa: ANN401 - as RabbitMQ has it
    """Of a queue: its argument, or else its policy."""
    argument = (row.get("arguments") or {}).get(f"x-{key}")
    return argument if argument is not None else (row.get("effective_policy_definition") or {}).get(key)
