"""What a token for some queues is shown of two revisions: its queues, and what holds for them."""

from dlx_router.admin.api.revisions import _of_queues
from dlx_router.config.policy_files.revision_diff import Change, Diff, PolicyChange, QueueChange

KEY = Change("max-delivery-attempts", "2", "3", "a.yaml:4", "a.yaml:4")


def test_policies_attachments_and_queues_of_others_are_left_out() -> None:
    policies = tuple(PolicyChange(name, "changed", (KEY,)) for name in ("orders", "payroll"))
    queues = tuple(QueueChange(f"{name}.new", None, (name,), (name,), (KEY,)) for name in ("orders", "payroll"))
    whole = Diff(policies, queues, (KEY._replace(key="attachment payroll.dead"),), is_reordered=False, queues_left=0)
    limited = _of_queues(whole, lambda queue: queue.startswith("orders."))
    assert "payroll" not in repr(limited)
    assert (limited.policies, limited.queues, limited.sources) == (policies[:1], queues[:1], None)
    assert _of_queues(whole, lambda _queue: False).is_equal
