"""What letters are judged by, and what says how much of them may be told: not the same where dead letters lie."""

import pytest

from dlx_router.core.names import Names
from dlx_router.core.policy import Policy, Selector, SelectorKind, Setting, Source, ordered
from dlx_router.service.inflight.in_force import Resolved, Rules

SOURCE = Source("all", "p.yaml", 1)
HIDDEN = Setting({"redact": ("x-token",)}, SOURCE)
LATE = {"dead-letter-queue-prefix": Setting("LATE.", SOURCE)}
EVERYTHING = Policy(
    "all", Selector(SelectorKind.MATCH, "#"), SOURCE, definition={"journal": HIDDEN}, on={"expired": LATE}
)
NAMED = Policy("named", Selector(SelectorKind.QUEUE, "DLQ.named"), SOURCE)
RESOLVED = Resolved(Rules(ordered([EVERYTHING, NAMED]), Names(), 0), "/", {})


@pytest.mark.parametrize("queue", ["DLQ.work", "LATE.work", "LATE.LATE.work", "DLQ.transient"])
def test_where_dead_letters_lie_no_policy_for_all_judges_and_what_it_hides_is_hidden(queue: str) -> None:
    for _ in range(2):  # the second time it is remembered
        assert RESOLVED.policy_of(queue, "rejected") is None
        hiding = RESOLVED.disclosing(queue, "rejected")
        assert hiding is not None
        assert hiding.settings["journal"] is HIDDEN
    assert RESOLVED.policies_of(queue), "by these it may once have got a dead-letter queue"


def test_of_our_own_queues_nothing_says_anything() -> None:
    assert RESOLVED.disclosing("dlx-router.inbox", "rejected") is None
