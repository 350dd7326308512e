"""`dlx-router policy explain`: what is in force for a queue, by the router's own resolution and `decide`."""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer

from dlx_router.cli import output
from dlx_router.cli.options import Json, Policies
from dlx_router.config.environment import prefix
from dlx_router.config.language.keys import REASONS, known_reason
from dlx_router.config.language.value_text import DEFAULT, explained, left_out_text, overlay_rows
from dlx_router.config.policy_files.loader import LoadedPolicies, load_policies
from dlx_router.config.units import duration_text
from dlx_router.core.backoff import base_delay_ms, wait_ms
from dlx_router.core.decision import decide
from dlx_router.core.letter import Arrival, Death, Letter
from dlx_router.core.names import Names
from dlx_router.core.outcome import DeadLetter, Discard, Park
from dlx_router.core.policy import Effective, Policy, PolicySet

DIED: Final = "delivery_limit"
MAX_ROWS: Final = 12
FOR_EVER: Final = 2**31  # as many deliveries as no letter has
_BASE: Final = ""  # no reason: what holds before any overlay


class QueueType(StrEnum):
    """Types of queues whose messages can die."""

    CLASSIC = "classic"
    QUORUM = "quorum"


class Wait(NamedTuple):
    """One step of a schedule: deliveries first..last failed, and how long the next one waits, in ms.

    `base_ms` is None where the waits of the step differ.
    """

    first: int
    last: int
    base_ms: int | None
    least_ms: int
    most_ms: int


class Question(NamedTuple):
    """What is asked about. `reason` None: all reasons; `queue_type` None: not said; `only_set`: no defaults."""

    queue: str
    vhost: str = "/"
    reason: str | None = None
    queue_type: str | None = None
    only_set: bool = False


def explain(  # noqa: PLR0913 - each is an option
    queue: Annotated[str, typer.Argument(help="Name of the queue whose messages fail.")],
    *,
    policies: Policies = Path("policies"),
    vhost: Annotated[str, typer.Option(help="Vhost of the queue.")] = "/",
    reason: Annotated[
        str | None,
        typer.Option(help="Only for rejected, expired, maxlen, delivery_limit, application or application:NAME."),
    ] = None,
    queue_type: Annotated[
        QueueType | None, typer.Option(help="Type of the queue: shows policies that are for one type only.")
    ] = None,
    only_set: Annotated[bool, typer.Option("--set", help="Only the keys that a policy sets.")] = False,
    as_json: Json = False,
) -> None:
    """Show every key in force for a queue and who set it, the waits, and where its dead letters end."""
    if reason is not None and not known_reason(reason):
        raise typer.BadParameter(f"unknown reason {reason!r}; known: {', '.join(REASONS)}, application:NAME")
    if reason == DIED and queue_type is QueueType.CLASSIC:
        raise typer.BadParameter("reason delivery_limit: only quorum queues have one; --queue-type quorum shows it")
    names = prefix.names()
    loaded = load_policies(policies, names)
    asked = Question(queue, vhost, reason, None if queue_type is None else queue_type.value, only_set)
    answer = {**document(loaded.policies, asked), "notes": [*notes(loaded, queue, vhost, names)]}
    if as_json:
        output.as_json(answer)
    else:
        _print(answer)


def notes(loaded: LoadedPolicies, queue: str, vhost: str, names: Names) -> Iterator[str]:
    """Yield what happens to messages of a delayed exchange of this name, and how the queue itself is attached."""
    for delayed in loaded.delayed:
        if delayed.vhost in {None, vhost} and queue in {delayed.exchange, names.delayed(delayed.exchange)}:
            yield (
                f"Exchange {delayed.exchange} is delayed ({delayed.source}): what is published to it goes on "
                f"to exchange {delayed.to} after x-delay ms (without that header "
                f"{duration_text(delayed.default_ms)}), with its key and its headers. It is no letter."
            )
    here = [each for each in loaded.attachments if each.vhost in {None, vhost} and each.selector.fits(queue)]
    for attachment in sorted(here, key=lambda each: each.selector.rank)[:1]:  # its own name before patterns
        goes = ""
        if forward := attachment.forward:
            key = "all its keys" if forward.routing_key is None else f"key {forward.routing_key.text}"
            where = f"exchange {forward.exchange}" if forward.exchange else "the default exchange"
            goes = f": what lives goes on to {where} with {key}"
        yield f"Queue {queue} is attached ({attachment.source}), mode {attachment.mode}{goes}."


def document(policies: PolicySet, asked: Question) -> dict[str, Any]:
    """Return all that is to be said of the queue; durations in ms, `last` and `tries` null: for ever."""
    queue, vhost, reason, queue_type, only_set = asked
    explanation = explained(policies, vhost=vhost, queue=queue, reason=reason or _BASE, queue_type=queue_type)
    answer: dict[str, Any] = {"vhost": vhost, "queue": queue, "queue_type": queue_type, "reason": reason}
    answer |= {"revision": policies.revision, "policies": [*explanation.policies], "keys": [], "on": [], "waits": []}
    answer |= {"ends": [], "left_out": [*map(left_out_text, explanation.left_out)]}
    if not explanation.policies:
        return answer
    chain = policies.chain(vhost=vhost, queue=queue, queue_type=queue_type)
    named = sorted({name for policy in chain for name in policy.on} - set(REASONS))  # each application:NAME
    reasons = (*REASONS, *named) if reason is None else (reason,)
    if queue_type == QueueType.CLASSIC:
        reasons = tuple(name for name in reasons if name != DIED)
    effective = {name: _effective(policies, chain, name) for name in (*reasons, _BASE)}
    answer["keys"] = [row._asdict() for row in explanation.keys if not only_set or row.set_by != DEFAULT]
    for name in () if reason else reasons:
        answer["on"] += [{"reason": name, **row._asdict()} for row in overlay_rows(effective[name], effective[_BASE])]
    for names, waits in _schedules({name: effective[name] for name in reasons}):
        steps = [{**wait._asdict(), "last": wait.last or None} for wait in waits]
        answer["waits"].append({"reasons": names, "steps": steps})
    for name in reasons:
        end = target(effective[name], queue, vhost, name)
        answer["ends"].append({"reason": name, "tries": _tries(effective[name], name), "target": end})
    return answer


def _print(answer: Mapping[str, Any]) -> None:
    for line in (*answer["notes"], *(f"{text}: left out; see --queue-type" for text in answer["left_out"])):
        output.say(line)
    queue, vhost, by = answer["queue"], answer["vhost"], ", ".join(answer["policies"])
    if not by:
        output.say(f"No policy names queue {queue} in vhost {vhost}: its letters are parked (no_policy).")
        return
    which = f"{vhost}, {answer['reason']}" if answer["reason"] else vhost
    output.say(f"Queue {queue} in vhost {which}: policies {by} (revision {answer['revision']})", "")
    overlays = [(f"on {row['reason']}: {row['key']}", row["value"], row["set_by"]) for row in answer["on"]]
    keys = [(row["key"], row["value"], row["set_by"]) for row in answer["keys"]]
    output.table(("key", "value", "set by"), [*keys, *overlays])
    for entry in answer["waits"]:
        output.say("", f"Waits ({', '.join(entry['reasons'])}):")
        output.table(("after delivery", "base", "wait"), [*map(_wait_row, entry["steps"])])
    output.say("", "End:")
    ends = [(end["reason"], _tries_text(end["tries"]), end["target"]) for end in answer["ends"]]
    output.table(("reason", "tried again", "final target"), ends)


def _effective(policies: PolicySet, chain: tuple[Policy, ...], reason: str) -> Effective:
    policy = policies.effective(chain, reason)
    assert policy is not None
    return policy


def _schedules(effective: Mapping[str, Effective]) -> list[tuple[list[str], list[Wait]]]:
    """The waits of all reasons that are tried again; reasons with the same waits share a schedule."""
    by_waits: dict[tuple[Wait, ...], list[str]] = {}
    for reason, policy in effective.items():
        if reason.partition(":")[0] in policy.retry_on and (waits := tuple(schedule(policy))):
            by_waits.setdefault(waits, []).append(reason)
    return [(reasons, list(waits)) for waits, reasons in by_waits.items()]


def schedule(policy: Effective) -> list[Wait]:
    """Return up to 12 steps and one for all that follow; `last` 0 means for ever."""
    end = policy.max_attempts - 1 if policy.max_attempts >= 0 else FOR_EVER
    last = 0 if end == FOR_EVER else end
    steps: list[Wait] = []
    for attempt in range(1, end + 1):
        if _is_settled(policy, attempt):
            return [*steps, Wait(attempt, last, *_range(policy, attempt))]
        if MAX_ROWS < attempt < end:
            ends = [*_range(policy, attempt)[1:], *_range(policy, end)[1:]]  # waits only grow, or only shrink
            return [*steps, Wait(attempt, last, None, min(ends), max(ends))]
        steps.append(Wait(attempt, attempt, *_range(policy, attempt)))
    return steps


def _is_settled(policy: Effective, attempt: int) -> bool:
    """Whether all waits from this one on are equal. Two that are equal prove nothing: bases are whole milliseconds."""
    base = base_delay_ms(policy, attempt)
    return base == 0 or policy.multiplier == 1.0 or (policy.multiplier > 1.0 and base == policy.cap_ms)


def _range(policy: Effective, attempt: int) -> tuple[int, int, int]:
    return base_delay_ms(policy, attempt), wait_ms(policy, attempt, -1.0), wait_ms(policy, attempt, 1.0)


def _wait_row(wait: Mapping[str, Any]) -> tuple[str, str, str]:
    first, last = wait["first"], wait["last"]
    deliveries = f"{first}" if first == last else f"{first} … {last or ''}".rstrip()
    least, most = (duration_text(wait[name]) for name in ("least_ms", "most_ms"))
    base = "" if wait["base_ms"] is None else duration_text(wait["base_ms"])
    return deliveries, base, least if least == most else f"{least} … {most}"


def _tries(policy: Effective, reason: str) -> int | None:
    """How often a letter of this reason is tried again; None: without limit."""
    if reason.partition(":")[0] not in policy.retry_on:
        return 0
    return None if policy.max_attempts < 0 else policy.max_attempts - 1


def _tries_text(times: int | None) -> str:
    if times is None:
        return "without limit"
    return output.number(times, "time") if times else "no"


def target(policy: Effective, queue: str, vhost: str, reason: str) -> str:
    """Return where a letter of this reason ends when it is out of tries, as `decide` says of a made-up letter."""
    decision = decide(_letter(policy, queue, vhost, reason), policy, 0, 0.0)
    match decision:
        case DeadLetter(queue=str() as made):
            by = f" by exchange {decision.exchange}" if decision.exchange else ""
            return f"queue {made} ({policy.dlq_type}, created when needed){by}"
        case DeadLetter(exchange=exchange, keys=keys):
            key = f"key {keys[0]}"
            if policy.routing_key is None and policy.dead_letter_exchange is not None:
                key = "original keys, rewritten where a rewrite matches" if policy.rewrites else "original keys"
            return f"exchange {exchange}, {key}" if exchange else f"default exchange, {key}"
        case Park():
            return f"parking ({decision.cause})"
        case Discard():
            return "dropped (discard: true)"
        case _:
            return "none: tried again without limit"


def _letter(policy: Effective, queue: str, vhost: str, reason: str) -> Letter:
    """A letter that has just died for the last time; what only a real one knows is shown as <name>."""
    broker_reason = reason if reason in REASONS[:4] else REASONS[0]
    death = Death(queue, broker_reason, 1, 0, "<exchange>", ("<routing_key>",))
    return Letter(
        id="", vhost=vhost, source="<inbox>", arrival=Arrival.INBOX, exchange="<exchange>", routing_key="<routing_key>",
        history=(death,), first=None, failed_queue=queue, reason=reason,
        fresh=(death._replace(reason=reason),), base_attempts=max(policy.max_attempts - 1, 0), redrives=0, tries=0,
        header=lambda name: f"<header:{name}>",
    )  # fmt: skip
