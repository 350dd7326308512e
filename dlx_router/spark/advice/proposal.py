"""Advice → a policy file that `policy lint` accepts beside those in force, the reasons as comments in it."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from dlx_router.config.dialects.import_result import Carried, policy_file, printable
from dlx_router.config.findings import PolicyErrors
from dlx_router.config.units import duration_text
from dlx_router.core.policy import PolicySet, Selector, SelectorKind
from dlx_router.spark.advice import texts
from dlx_router.spark.advice.cells import InForce
from dlx_router.spark.advice.cost import Ladder
from dlx_router.spark.advice.evidence import Key
from dlx_router.spark.advice.judge import Advice, Interval, QueueAdvice, changing
from dlx_router.spark.backtest.replay import Files, Judge, QueueTypes, judge_of

FILE: Final = "advised.yaml"


class Proposal(NamedTuple):
    """`text`: the file. `advice`: what stands in it. `left`: (queue, why not) of advice that cannot be written."""

    text: str
    advice: tuple[QueueAdvice, ...]
    left: tuple[tuple[str, str], ...] = ()

    def beside(self, files: Files) -> Files:
        """The policy files in force, and this one."""
        name, taken = FILE, {other for other, _ in files}
        while name in taken:
            name = f"x-{name}"
        return (*files, (name, self.text.encode()))

    def headed(self, comments: Sequence[str]) -> "Proposal":
        """The same below some comments, which end with what could not be written."""
        lines = [*comments, *(f"Not written, {queue}: {why}" for queue, why in self.left)]
        return self._replace(text="".join(f"# {printable(line)}\n" for line in lines) + self.text)


def propose(
    advice: Sequence[QueueAdvice], files: Files, *, prefix: str = "dlx-router", types: QueueTypes = ()
) -> Proposal:
    """The file of all advice that changes anything and that together with `files` means what it should."""
    in_force = judge_of(files, prefix, types).policies

    def written(some: Sequence[QueueAdvice]) -> Proposal:
        return Proposal(_written(some, in_force, types), tuple(some))

    every = changing(advice)
    if not _wrong(proposal := written(every), files, prefix, types):
        return proposal
    left = [
        (queue_advice, why) for queue_advice in every if (why := _wrong(written([queue_advice]), files, prefix, types))
    ]
    kept = written([queue_advice for queue_advice in every if queue_advice not in [bad for bad, _ in left]])
    return kept._replace(left=tuple((queue_advice.queue, why) for queue_advice, why in left))


def _written(advice: Sequence[QueueAdvice], in_force: PolicySet, types: QueueTypes) -> str:
    carried = Carried()
    carried.take(policy.name for policy in in_force.policies)
    type_of = {(vhost, queue): queue_type for vhost, queue, queue_type in types}
    comments = []
    for queue_advice in advice:
        definition, reasons = definition_of(queue_advice)
        carried.add(
            f"advised-{queue_advice.queue}",
            {"queue": queue_advice.queue},
            definition,
            vhost=queue_advice.vhost,
            **_priority(queue_advice, in_force, type_of.get((queue_advice.vhost, queue_advice.queue))),
        )
        comments.append(reasons)
    return policy_file((), list(zip(carried.policies, comments, strict=True)))


def _priority(queue_advice: QueueAdvice, in_force: PolicySet, queue_type: str | None) -> dict[str, int]:
    """Above every policy that holds for the queue now; nothing where it is so without."""
    chain = in_force.chain(vhost=queue_advice.vhost, queue=queue_advice.queue, queue_type=queue_type)
    own = Selector(SelectorKind.QUEUE, queue_advice.queue).rank
    highest = max((policy.priority for policy in chain), default=0)
    if highest > 0 or any(policy.selector.rank <= own and policy.priority == highest for policy in chain):
        return {"priority": highest + 1}
    return {}


def definition_of(queue_advice: QueueAdvice) -> tuple[dict[str, Any], list[str]]:
    """The keys of a queue's advice as a policy has them, and the reasons."""
    definition: dict[str, Any] = {}
    reasons: list[str] = []
    on: dict[str, Any] = {}
    for part in queue_advice.parts:
        reasons += reasons_of(part)
        if keys := keys_of(part):
            on[part.key.reason] = keys
    if on:
        definition["on"] = on
    return definition, reasons


def keys_of(part: Advice) -> dict[str, Any]:
    """The keys that change for this reason, and what they should say."""
    if part.verdict == texts.NEVER:
        return {"retry-on": []}
    keys = {} if part.advised is None else _ladder(part.advised, part.now)
    if part.conditions:
        keys["never-retry"] = [*part.known, *part.conditions]
    return keys


def _ladder(advised: Ladder, now: Ladder) -> dict[str, Any]:
    keys: dict[str, Any] = {"max-delivery-attempts": advised.attempts} if advised.attempts != now.attempts else {}
    if advised.delay_ms != now.delay_ms:
        keys["redelivery-delay"] = duration_text(advised.delay_ms)
    if not advised.delay_ms:
        return keys
    if advised.multiplier != now.multiplier:
        keys["redelivery-delay-multiplier"] = advised.multiplier
    if advised.cap_ms != now.cap_ms or advised.delay_ms != now.delay_ms:  # the default cap goes with the delay
        keys["max-redelivery-delay"] = duration_text(advised.cap_ms)
    if advised.jitter != now.jitter:
        keys["redelivery-collision-avoidance-factor"] = advised.jitter
    return keys


def reasons_of(part: Advice) -> list[str]:
    """The advice in sentences: what, why, what it would bring, and what cannot be known."""
    lines = [f"{part.key.reason}: {texts.VERDICTS[part.verdict]}", *(f"  {reason}" for reason in part.reasons)]
    if part.verdict != texts.KEEP:
        lines += [f"  estimate: {effect}" for effect in effects_of(part)]
    return [*lines, *(f"  not known: {item}" for item in part.unknown)]


def effects_of(part: Advice) -> list[str]:
    """What would have changed for the letters that were recorded, with intervals."""
    return [
        f"{_ranged(part.saved, 'letters recovered')}, of {part.letters}",
        f"{_ranged(part.spared, 'retries made', less=True)}, of {part.retries}",
        f"{_ranged(part.sooner_s, 's that a letter waits until it recovers or is given up', less=True)}",
        f"cost of a letter {part.cost_now:.4g} → {part.cost_then:.4g} retries",
    ]


def _ranged(interval: Interval, what: str, *, less: bool = False) -> str:
    """An interval in words: what it expects is said as more or fewer."""
    flip = interval.expected < 0
    expected, low, high = (-interval.expected, -interval.high, -interval.low) if flip else interval
    word = "less" if what.startswith("s ") else "fewer"
    named = "more" if flip == less else word
    return f"{expected:.4g} {named} {what} (counts allow: {low:.4g} to {high:.4g})"


def _wrong(proposal: Proposal, files: Files, prefix: str, types: QueueTypes) -> str:
    """Why the advice cannot be written as a policy; "" where what then is in force is what is advised."""
    try:
        judge = judge_of(proposal.beside(files), prefix, types)
    except PolicyErrors as errors:
        return "; ".join(finding.message for finding in errors.findings)
    for queue_advice in proposal.advice:
        for part in queue_advice.parts:
            now = known_of(judge, part.key)
            if part.verdict != texts.KEEP and (now is None or not _is(part, now)):
                return f"{part.key.reason}: other policies would still decide otherwise"
    return ""


def _is(part: Advice, now: InForce) -> bool:
    """Whether it is in force."""
    if part.verdict == texts.NEVER:
        return not now.retries
    ladder = part.advised or part.now
    at_once = ladder.delay_ms == 0 == now.ladder.delay_ms and ladder.attempts == now.ladder.attempts
    conditions = not part.conditions or {*part.conditions} <= {*now.conditions}
    return (at_once or now.ladder == ladder) and conditions


def known_of(judge: Judge, key: Key) -> InForce | None:
    """What is in force for a key; None where no policy is for it."""
    policy = judge.effective(*key)
    return None if policy is None else InForce.of(policy, key.reason)
