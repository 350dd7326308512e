"""Attempts: which steps of a letter's journey did not happen, and why a letter is parked. Pure.

The journal tells an attempt before the broker has answered. Where the target did not take the copy, the next step of
the letter says so (`held`, `parked`, `quarantined`), or the next attempt counts one try more.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from dlx_router.core.recovered import LEASES
from dlx_router.core.words import Cause

ATTEMPTS: Final = frozenset({"retried", "dead_lettered", "parked", "released", "redriven", "forwarded"})
DONE: Final = "done"
REFUSED: Final = "refused"
_REFUSALS: Final = frozenset({
    Cause.UNROUTABLE, Cause.MISSING_EXCHANGE, Cause.FORBIDDEN, Cause.ROUTING_KEY_TOO_LONG, Cause.TOO_LARGE,
    Cause.TARGET_REFUSED,
})  # fmt: skip
_SEND_BACK: Final = "then send it back (dlx-router redrive start, or the button)"
_PARKED: Final[Mapping[str, tuple[str, str]]] = {
    Cause.ATTEMPTS_SPENT: (
        "its queue deletes a message after few more returns, so the router took it out",
        f"raise the delivery limit of that queue, or give it a dead-letter exchange; {_SEND_BACK}",
    ),
    Cause.NEVER_RETRY: ("the policy never retries it, and names no other target", _SEND_BACK),
    Cause.MAX_ELAPSED: ("it failed for longer than redelivery-max-elapsed allows", _SEND_BACK),
    Cause.NO_POLICY: ("no policy matches queue {queue}", f"write a policy that matches it; {_SEND_BACK}"),
    Cause.UNKNOWN_ORIGIN: (
        "nothing says in which queue it failed",
        "name the exchange it came by in dead-letter-exchanges of its attachment, and send this one to a queue (--to)",
    ),
    Cause.UNROUTABLE: ("{target} leads to no queue", f"bind a queue there; {_SEND_BACK}"),
    Cause.MISSING_EXCHANGE: (
        "{target} does not exist",
        f"declare it, or correct dead-letter-exchange of policy {{policy}}; {_SEND_BACK}",
    ),
    Cause.FORBIDDEN: (
        "the router may not publish to {target}",
        f"grant it the right (dlx-router permissions), or name another target; {_SEND_BACK}",
    ),
    Cause.ROUTING_KEY_TOO_LONG: (
        "its routing key would have over 255 bytes",
        f"shorten dead-letter-routing-key of policy {{policy}}; {_SEND_BACK}",
    ),
    Cause.CYCLE: (
        "it came to {queue} again, and nothing had rejected it in between",
        f"end the circle of queues and dead-letter exchanges; {_SEND_BACK}",
    ),
    Cause.LOOP: (
        "its target leads back to where it came from",
        f"name another target in policy {{policy}}; {_SEND_BACK}",
    ),
    Cause.REDRIVE_EXHAUSTED: (
        "it was sent back as often as max-redrives allows",
        f"correct what rejects it in {{queue}}, or raise max-redrives of policy {{policy}}; {_SEND_BACK}",
    ),
    Cause.TARGET_REFUSED: (
        "{target} does not take it",
        f"make room there (max-length, overflow), or name another target; {_SEND_BACK}",
    ),
    Cause.TOO_LARGE: (
        "it is larger than what the broker lets anybody publish",
        "raise max_message_size of the broker, and move it with a shovel",
    ),
    Cause.MALFORMED: (
        "its headers cannot be read",
        "correct what publishes it; take it out of the quarantine queue by hand",
    ),
}


def outcomes(journey: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Pair each step with its outcome: done, refused, or None where nothing was to be sent.

    `journey`: the steps of one letter, the oldest first. `outcome_cause` and `outcome_refused` say why and by whom.
    """
    moves = [at for at, step in enumerate(journey) if step["kind"] not in LEASES]
    after = dict(pairwise(moves))
    return [_outcome(step, journey[after[at]] if at in after else None) for at, step in enumerate(journey)]


def _outcome(step: Mapping[str, Any], following: Mapping[str, Any] | None) -> dict[str, Any]:
    if step["kind"] not in ATTEMPTS:
        return {"outcome": None, "outcome_cause": None, "outcome_refused": None}
    if following is not None and following["redrives"] == step["redrives"]:
        cause, kind = following["cause"], following["kind"]
        if kind == "quarantined" or (kind in {"held", "parked"} and cause in _REFUSALS):
            return {"outcome": REFUSED, "outcome_cause": cause, "outcome_refused": following["refused"]}
        if (following["tries"] or 0) > (step["tries"] or 0):  # the journal tells of no holds where it is to be brief
            return {"outcome": REFUSED, "outcome_cause": None, "outcome_refused": None}
    return {"outcome": DONE, "outcome_cause": None, "outcome_refused": None}


def why_parked(letter: Mapping[str, Any], journey: Sequence[Mapping[str, Any]]) -> dict[str, str] | None:
    """Say why a parked or quarantined letter is where it is, and how to resolve that; None for any other letter."""
    if letter["state"] not in {"parked", "quarantined"}:
        return None
    last = next((step for step in reversed(journey) if step["kind"] == letter["state"]), None)
    if last is not None and last["redrive_id"]:
        return {"why": f"task or lease {last['redrive_id']} parked it", "resolve": _SEND_BACK.removeprefix("then ")}
    target = (last["refused"] if last is not None else None) or "its target"
    words = {"queue": letter["failed_queue"], "target": target, "policy": letter["policy"] or "that decided"}
    cause = (letter["cause"] or "").partition(":")[0]
    why, resolve = _PARKED.get(cause, (cause or "the journal names no cause", _SEND_BACK.removeprefix("then ")))
    return {"why": why.format(**words), "resolve": resolve.format(**words).removeprefix("then ")}
