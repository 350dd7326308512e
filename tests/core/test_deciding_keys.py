"""Which keys a decision rests on, as far as the journal tells what was decided."""

import pytest

from dlx_router.core.deciding_keys import deciding_keys
from dlx_router.core.policy import Effective, Policy, PolicySet, Selector, SelectorKind, Setting, Source


def effective(**keys: object) -> Effective:
    source = Source("p", "a.yaml", 7)
    settings = {name.replace("_", "-"): Setting(value, source) for name, value in keys.items()}
    policy = Policy("p", Selector(SelectorKind.QUEUE, "q"), source, definition=settings)
    resolved = PolicySet((policy,)).resolve(vhost="/", queue="q", reason="rejected", queue_type=None)
    assert resolved is not None
    return resolved


@pytest.mark.parametrize(
    ("kind", "cause", "reason", "keys", "expected"),
    [
        ("retried", None, "rejected", {"max_delivery_attempts": 5}, ("max-delivery-attempts",)),
        (
            "retried",
            None,
            "rejected",
            {"max_delivery_attempts": 5, "redelivery_delay": 7},
            ("max-delivery-attempts", "redelivery-delay"),
        ),
        ("retried", None, "rejected", {}, ("max-delivery-attempts",)),
        ("dead_lettered", "attempts_spent", "rejected", {"redelivery_delay": 7}, ("max-delivery-attempts",)),
        ("dead_lettered", "never_retry", "expired", {}, ("retry-on",)),
        ("dead_lettered", "never_retry", "expired", {"retry_on": ("expired",), "never_retry": ()}, ("never-retry",)),
        ("dead_lettered", "never_retry", "rejected", {}, ()),
        ("dead_lettered", "max_elapsed", "rejected", {"redelivery_max_elapsed": 9}, ("redelivery-max-elapsed",)),
        ("held", "outage", "rejected", {}, ("outage",)),
        ("held", "target_refused", "rejected", {}, ()),
        ("parked", "redrive_exhausted", "rejected", {"max_redrives": 1}, ("max-redrives",)),
        ("parked", "unroutable", "rejected", {"dead_letter_exchange": "x"}, ("dead-letter-exchange",)),
        ("parked", "loop", "rejected", {}, ()),
        ("discarded", None, "rejected", {"discard": True}, ("discard",)),
        ("released", None, "rejected", {}, ()),
    ],
)
def test_the_keys_that_were_set_decided_else_a_default(
    kind: str, cause: str | None, reason: str, keys: dict[str, object], expected: tuple[str, ...]
) -> None:
    assert deciding_keys(kind, cause, reason, effective(**keys)) == expected
