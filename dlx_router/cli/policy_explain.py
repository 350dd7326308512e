"""`dlx-router policy explain`: what is in force for a queue, by the router's own resolution and `decide`.

What the queue's type and the broker's version add is computed here: no broker is asked. Only a quorum queue lets a
message die by its delivery limit, and what counts as a return differs by version: rabbitmq.com/docs/quorum-queues.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from dlx_router.cli import output
from dlx_router.config.environment import prefix
from dlx_router.config.environment.prefix import PrefixError
from dlx_router.config.language.keys import REASONS, known_reason
from dlx_router.config.language.value_text import DEFAULT, Explanation, explained, left_out_text, overlay_rows
from dlx_router.config.policy_files.attachments import Attachment
from dlx_router.config.policy_files.delayed_exchanges import Delayed
from dlx_router.config.policy_files.loader import PolicyErrors, load_policies
from dlx_router.config.units import duration_text
from dlx_router.core.attending import QueueFacts, delivery_limit
from dlx_router.core.backoff import base_delay_ms, wait_ms
from dlx_router.core.decision import decide
from dlx_router.core.letter import Arrival, Death, Letter
from dlx_router.core.names import Names
from dlx_router.core.outcome import DeadLetter, Discard, Park
from dlx_router.core.policy import Effective, Policy, PolicySet

LIMIT: Final = "delivery-limit"
DIED: Final = "delivery_limit"
_VERSION: Final = re.compile(r"([0-9]{1,4})\.([0-9]{1,4})(\.[0-9]+)*", re.ASCII)
_NEGATIVE_SINCE: Final = (4, 0)
_FAILURES_SINCE: Final = (4, 3)


class Broker(NamedTuple):
    """Where the queue is. `kind` None: not said, so that policies for one type only are left out."""

    kind: str | None = None
    version: tuple[int, int] = (4, 3)

    @property
    def text(self) -> str:
        """The version as people write it."""
        return ".".join(map(str, self.version))


UNKNOWN: Final = Broker()


def version_of(text: str) -> tuple[int, int] | None:
    """`4.3` or `4.3.6` → (4, 3); None for anything else."""
    parts = _VERSION.fullmatch(text)
    return (int(parts[1]), int(parts[2])) if parts else None


def left_out(policies: Sequence[Policy]) -> Iterator[str]:
    """A line for each policy that holds only where the queue has the right type, which nobody has said."""
    for policy in policies:
        text = left_out_text(policy)
        yield f"{text[0].upper()}{text[1:]}: left out; see --queue-type {policy.queue_type}."


def returns(base: Effective, dying: Effective, broker: Broker) -> Iterator[str]:
    """When a message that consumers give back dies there, and how many deliveries the attempts come to.

    `base`: what is in force whatever the reason, which apply hands over; `dying`: for `delivery_limit`. Nothing where
    the type was not said.
    """
    if broker.kind == "classic":
        yield "A classic queue counts no returns: what consumers requeue never dies of it."
    if broker.kind != "quorum":
        return
    limit, by = _limit(base, broker)
    if limit is not None and limit < 0:
        yield f"RabbitMQ {broker.text} refuses a policy with {by}; write a number of 0 or more."
        return
    if limit is None:
        yield f"RabbitMQ {broker.text} has no delivery limit for this quorum queue ({by}): returns never end."
        yield "An x-delivery-limit of 0 or more among the queue's arguments holds instead."
        return
    yield f"RabbitMQ {broker.text} lets a message of this quorum queue die at its return number {limit + 1} ({by})."
    yield _deliveries(dying, limit)
    counted = "A requeue by basic.nack is no return there." if broker.version >= _FAILURES_SINCE else ""
    yield f"{counted} A smaller x-delivery-limit among the queue's arguments holds instead.".lstrip()


def _limit(policy: Effective, broker: Broker) -> tuple[int | None, str]:
    """How many returns are survived (None: any number; negative: refused there), and who says so."""
    settings = policy.settings
    asked = settings.get("requeue-is-death")
    if asked is not None and asked.value and policy.delay_ms:
        return 0, f"requeue-is-death, {asked.source}; by apply"
    limit = settings.get(LIMIT)
    if limit is None:
        return delivery_limit(QueueFacts("quorum"), broker.version), "its default"
    by = f"{LIMIT}: {limit.value}, {limit.source}; by apply"
    if limit.value < 0 and broker.version < _NEGATIVE_SINCE:
        return -1, by
    return delivery_limit(QueueFacts("quorum", policy={LIMIT: limit.value}), broker.version), by


def _deliveries(policy: Effective, limit: int) -> str:
    tried = DIED in policy.retry_on
    if tried and policy.max_attempts < 0:
        return f"Such a death is one attempt of {limit + 1} deliveries; attempts have no limit."
    attempts = policy.max_attempts if tried else 1
    return f"Such a death is one attempt: at most {attempts} × {limit + 1} = {attempts * (limit + 1)} deliveries."


MAX_ROWS: Final = 12
FOR_EVER: Final = 2**31  # as many deliveries as no letter has
_BASE: Final = ""  # no reason: what holds before any overlay


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
    """What is asked about. `reason` None: all reasons; `only_set`: without the keys that nobody sets."""

    queue: str
    vhost: str = "/"
    reason: str | None = None
    broker: Broker = UNKNOWN
    only_set: bool = False


def run(asked: Question, folder: Path, *, as_json: bool = False) -> int:
    """Print the explanation; 1 where the policies have errors, 2 where they or the arguments cannot be used."""
    wrong = _wrong(asked.reason, asked.broker)
    if wrong:
        return output.wrong_use(wrong)
    try:
        names = prefix.names()
        loaded = load_policies(folder, names)
    except PolicyErrors as error:
        return output.refuse(error)
    except PrefixError as error:
        return output.wrong_use(error)
    notes = [*delayed(loaded.delayed, asked.queue, asked.vhost, names)]
    is_delayed = bool(notes)
    notes += attended(loaded.attachments, asked.queue, asked.vhost)
    answer = document(loaded.policies, asked)
    if as_json:
        output.as_json({**answer, "notes": notes})
        return output.OK
    output.say(*notes, *left_out(_explanation(loaded.policies, asked).left_out))
    if answer["policies"]:
        _print(answer, asked)
    elif not is_delayed:
        text = f"No policy names queue {asked.queue} in vhost {asked.vhost}: its letters are parked (no_policy)."
        output.say(text)
    return output.OK


def _wrong(reason: str | None, broker: Broker) -> str:
    """Why nothing can be said of this reason; empty where it can."""
    if reason is not None and not known_reason(reason):
        return f"unknown reason {reason!r}; known: {', '.join(REASONS)}, application:NAME"
    if reason == DIED and broker.kind == "classic":
        return "reason delivery_limit: only quorum queues have one; --queue-type quorum shows it"
    return ""


def attended(attachments: Sequence[Attachment], queue: str, vhost: str) -> Iterator[str]:
    """How the queue itself is attended, where an attachment names it; its own name before patterns."""
    here = [entry for entry in attachments if entry.vhost in {None, vhost} and entry.selector.fits(queue)]
    for attachment in sorted(here, key=lambda entry: entry.selector.rank)[:1]:
        sentence = f"Queue {queue} is attached ({attachment.source}), mode {attachment.mode}"
        if attachment.forward is not None:
            key = (
                "all its keys"
                if attachment.forward.routing_key is None
                else f"key {attachment.forward.routing_key.text}"
            )
            where = f"exchange {attachment.forward.exchange}" if attachment.forward.exchange else "the default exchange"
            sentence += f": what lives goes on to {where} with {key}"
        yield f"{sentence}."


def delayed(definitions: Sequence[Delayed], name: str, vhost: str, names: Names) -> Iterator[str]:
    """What happens to what is published to the exchange of this name, or lies in the router's queue for it."""
    for definition in definitions:
        if definition.vhost in {None, vhost} and name in {definition.exchange, names.delayed(definition.exchange)}:
            yield (
                f"Exchange {definition.exchange} is delayed ({definition.source}): what is published to it goes on "
                f"to exchange {definition.to} after x-delay ms (without that header "
                f"{duration_text(definition.default_ms)}), with its key and its headers. It is no letter."
            )


def _explanation(policies: PolicySet, asked: Question) -> Explanation:
    where = {"vhost": asked.vhost, "queue": asked.queue}
    return explained(policies, **where, reason=asked.reason or _BASE, queue_type=asked.broker.kind)


def document(policies: PolicySet, asked: Question) -> dict[str, Any]:
    """All that is to be said of the queue, as JSON has it; durations in ms, `last` and `tries` null: for ever."""
    queue, vhost, reason, broker, only_set = asked
    explanation = _explanation(policies, asked)
    answer: dict[str, Any] = {"vhost": vhost, "queue": queue, "queue_type": broker.kind, "reason": reason}
    answer |= {"revision": policies.revision, "policies": [*explanation.policies]}
    answer |= {"left_out": [*map(left_out_text, explanation.left_out)]}
    answer |= {name: [] for name in ("keys", "on", "waits", "ends", "returns")}
    if not explanation.policies:
        return answer
    chain = policies.chain(vhost=vhost, queue=queue, queue_type=broker.kind)
    reasons = (reason,) if reason is not None else reasons_of(chain)
    if broker.kind == "classic":
        reasons = tuple(name for name in reasons if name != DIED)
    effective = {name: _effective(policies, chain, name) for name in (*reasons, _BASE)}
    answer["keys"] = [row._asdict() for row in explanation.keys if not only_set or row.set_by != DEFAULT]
    for name in () if reason else reasons:
        answer["on"] += [{"reason": name, **row._asdict()} for row in overlay_rows(effective[name], effective[_BASE])]
    for names, waits in schedules({name: effective[name] for name in reasons}):
        steps = [{**wait._asdict(), "last": wait.last or None} for wait in waits]
        answer["waits"].append({"reasons": names, "steps": steps})
    for name in reasons:
        end = target(effective[name], queue, vhost, name)
        answer["ends"].append({"reason": name, "tries": tries(effective[name], name), "target": end})
    if reason in {None, DIED} and broker.kind is not None:
        dying = _effective(policies, chain, DIED)
        answer["returns"] = [*returns(effective[_BASE], dying, broker)]
    return answer


def _print(answer: Mapping[str, Any], asked: Question) -> None:
    which = f"{asked.vhost}{f', {asked.reason}' if asked.reason else ''}"
    by = f"policies {', '.join(answer['policies'])} (revision {answer['revision']})"
    output.say(f"Queue {asked.queue} in vhost {which}: {by}", "")
    overlays = [(f"on {row['reason']}: {row['key']}", row["value"], row["set_by"]) for row in answer["on"]]
    keys = [(row["key"], row["value"], row["set_by"]) for row in answer["keys"]]
    _print_keys([*keys, *overlays])
    for entry in answer["waits"]:
        output.say("", f"Waits ({', '.join(entry['reasons'])}):")
        output.table(("after delivery", "base", "wait"), [*map(_wait_row, entry["steps"])])
    output.say("", "End:")
    ends = [(end["reason"], _tries_text(end["tries"]), end["target"]) for end in answer["ends"]]
    output.table(("reason", "tried again", "final target"), ends)
    if answer["returns"]:
        output.say("", "Returns:", *answer["returns"])


def _print_keys(rows: Sequence[tuple[str, str, str]]) -> None:
    """On a terminal what is set comes first, and what nobody set apart from it."""
    shown = [row for row in rows if not output.is_terminal() or row[2] != DEFAULT]
    if shown:
        output.table(("key", "value", "set by"), shown)
    if len(shown) < len(rows):
        output.say(*([""] if shown else []), "By default:")
        output.table(("key", "value"), [(key, value) for key, value, by in rows if by == DEFAULT])


def _effective(policies: PolicySet, chain: tuple[Policy, ...], reason: str) -> Effective:
    policy = policies.effective(chain, reason)
    assert policy is not None
    return policy


def reasons_of(chain: Sequence[Policy]) -> tuple[str, ...]:
    """Every reason that can make a difference: the five, and each application:NAME that an overlay names."""
    named = sorted({reason for policy in chain for reason in policy.on} - set(REASONS))
    return (*REASONS, *named)


def schedules(effective: Mapping[str, Effective]) -> list[tuple[list[str], list[Wait]]]:
    """The waits of all reasons that are tried again; reasons with the same waits share a schedule."""
    by_waits: dict[tuple[Wait, ...], list[str]] = {}
    for reason, policy in effective.items():
        if reason.partition(":")[0] in policy.retry_on and (waits := tuple(schedule(policy))):
            by_waits.setdefault(waits, []).append(reason)
    return [(reasons, list(waits)) for waits, reasons in by_waits.items()]


def schedule(policy: Effective) -> list[Wait]:
    """Up to 12 steps and one for all that follow; `last` 0 means for ever."""
    end = policy.max_attempts - 1 if policy.max_attempts >= 0 else FOR_EVER
    last = 0 if end == FOR_EVER else end
    steps: list[Wait] = []
    for attempt in range(1, end + 1):
        if _is_settled(policy, attempt):
            return [*steps, Wait(attempt, last, *_range(policy, attempt))]
        if MAX_ROWS < attempt < end:
            return [*steps, _rest(policy, attempt, end)._replace(last=last)]
        steps.append(Wait(attempt, attempt, *_range(policy, attempt)))
    return steps


def _is_settled(policy: Effective, attempt: int) -> bool:
    """Whether all waits from this one on are equal. Two that are equal prove nothing: bases are whole milliseconds."""
    base = base_delay_ms(policy, attempt)
    return base == 0 or policy.multiplier == 1.0 or (policy.multiplier > 1.0 and base == policy.cap_ms)


def _rest(policy: Effective, first: int, last: int) -> Wait:
    """The step of these deliveries; waits only grow, or only shrink."""
    ends = [*_range(policy, first)[1:], *_range(policy, last)[1:]]
    return Wait(first, last, None, min(ends), max(ends))


def _range(policy: Effective, attempt: int) -> tuple[int, int, int]:
    return base_delay_ms(policy, attempt), wait_ms(policy, attempt, -1.0), wait_ms(policy, attempt, 1.0)


def _wait_row(wait: Mapping[str, Any]) -> tuple[str, str, str]:
    first, last = wait["first"], wait["last"]
    deliveries = f"{first}" if first == last else f"{first} … {last or ''}".rstrip()
    least, most = (duration_text(wait[name]) for name in ("least_ms", "most_ms"))
    base = "" if wait["base_ms"] is None else duration_text(wait["base_ms"])
    return deliveries, base, least if least == most else f"{least} … {most}"


def tries(policy: Effective, reason: str) -> int | None:
    """How often a letter of this reason is tried again; None: without limit."""
    if reason.partition(":")[0] not in policy.retry_on:
        return 0
    return None if policy.max_attempts < 0 else policy.max_attempts - 1


def _tries_text(times: int | None) -> str:
    if times is None:
        return "without limit"
    return output.number(times, "time") if times else "no"


def target(policy: Effective, queue: str, vhost: str, reason: str) -> str:
    """Where a letter of this reason ends when it is out of tries, as `decide` says of a made-up letter."""
    decision = decide(_letter(policy, queue, vhost, reason), policy, 0, 0.0)
    match decision:
        case DeadLetter(queue=str() as made):
            by = f" by exchange {decision.exchange}" if decision.exchange else ""
            return f"queue {made} ({policy.dlq_type}, created when needed){by}"
        case DeadLetter(exchange=exchange, keys=keys):
            key = _key(policy, keys)
            return f"exchange {exchange}, {key}" if exchange else f"default exchange, {key}"
        case Park():
            return f"parking ({decision.cause})"
        case Discard():
            return "dropped (discard: true)"
        case _:
            return "none: tried again without limit"


def _key(policy: Effective, keys: tuple[str, ...]) -> str:
    if policy.routing_key is None and policy.dead_letter_exchange is not None:
        return "original keys, rewritten where a rewrite matches" if policy.rewrites else "original keys"
    return f"key {keys[0]}"


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
