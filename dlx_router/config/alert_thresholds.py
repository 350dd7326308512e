"""Thresholds of `alert:`, for each policy that letters may be counted under: its own, or those that it inherits."""

from dlx_router.config.lint.policy_conflicts import Covering
from dlx_router.core.limits import Alert
from dlx_router.core.policy import Policy, PolicySet


def thresholds(policies: PolicySet) -> dict[tuple[str, str], float]:
    """By (policy, kind), as the metric has them; of a key that is overlaid, the base.

    What a policy inherits is known where another covers all of its queues.
    """
    covering = Covering(policies)
    if not any("alert" in policy.definition for policy in policies.policies):
        return {}
    alerts = [(policy.name, _alert(covering, policy)) for policy in policies.policies]
    return {(name, kind): value for name, alert in alerts if alert for kind, value in alert.thresholds().items()}


def _alert(covering: Covering, policy: Policy) -> Alert | None:
    for candidate in covering.of(policy):
        if "alert" in candidate.definition:
            alert: Alert = candidate.definition["alert"].value
            return alert
        if not candidate.inherit:
            return None
    return None
