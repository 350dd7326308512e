"""Which keys of a policy a decision rests on, told by what the journal says of it. Pure."""

from collections.abc import Mapping
from typing import Final

from dlx_router.core.policy import Effective
from dlx_router.core.words import Cause

_AIM: Final = ("dead-letter-exchange", "dead-letter-routing-key", "auto-create-dead-letter-resources")
_BY_CAUSE: Final[Mapping[str, tuple[str, ...]]] = {
    Cause.ATTEMPTS_SPENT: ("max-delivery-attempts",),
    Cause.MAX_ELAPSED: ("redelivery-max-elapsed",),
    Cause.OUTAGE: ("outage",),
    Cause.REDRIVE_EXHAUSTED: ("max-redrives",),
    Cause.FORBIDDEN: ("allow-queues", *_AIM),
    Cause.UNROUTABLE: _AIM,
    Cause.MISSING_EXCHANGE: ("dead-letter-exchange",),
    Cause.ROUTING_KEY_TOO_LONG: ("dead-letter-routing-key",),
}
_BY_KIND: Final = {"retried": ("max-delivery-attempts", "redelivery-delay"), "discarded": ("discard",)}


def deciding_keys(kind: str, cause: str | None, reason: str, policy: Effective) -> tuple[str, ...]:
    """Those that somebody set, else the one whose default decided; none where no key of a policy did.

    `kind`, `cause`: of the event; `policy`: what is in force for the letter, for `reason`.
    """
    if cause == Cause.NEVER_RETRY:
        return _no_retry(reason, policy)
    keys = _BY_CAUSE.get(cause or "", ()) if cause else _BY_KIND.get(kind, ())
    return tuple(key for key in keys if key in policy.settings) or keys[:1]


def _no_retry(reason: str, policy: Effective) -> tuple[str, ...]:
    """Its reason is not tried again, or a condition said so; else its consumer declared it, which is no key."""
    if reason.partition(":")[0] not in policy.retry_on:
        return ("retry-on",)
    return tuple(key for key in ("never-retry", "retry-only") if key in policy.settings)
