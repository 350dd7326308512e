"""The rights that settings and policies ask for: a table of policies, and laws about names.

Whether they are enough, and whether each is needed, is for a broker to say: tests/security/test_least_privilege.py.
"""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.config.policy_files.loader import load_policies
from dlx_router.config.rights.permissions import NOTHING, Grant, Right, Setup, escaped, matched, needed
from dlx_router.core.names import RUNGS, Names
from dlx_router.core.policy import PolicySet, words_match

AUTO = Setup(Names())
NEVER = Setup(Names(), declare=False)


def grant_of(policies: str, tmp_path: Path, setup: Setup = AUTO, vhost: str = "/") -> Grant:
    (tmp_path / "policies.yaml").write_text(f"version: 1\npolicies:\n{policies}", encoding="utf-8")
    return needed(load_policies(tmp_path).policies, (), setup, vhost)


def may(grant: Grant, right: Right, name: str) -> bool:
    """As the broker decides it."""
    return re.search(grant.regex(right), name) is not None


WORD = st.sampled_from(["a", "b", "", "*", "#", "a+"])
NAME = st.text("ab.+", max_size=12)


@given(st.lists(WORD, min_size=1, max_size=5), NAME)
def test_an_expression_fits_the_names_that_its_match_selects_and_no_others(words: list[str], name: str) -> None:
    fits = re.fullmatch(matched(".".join(words)), name) is not None
    assert fits == words_match(words, name.split("."))


@given(st.text(max_size=10), st.text(max_size=10))
def test_an_escaped_name_fits_itself_only(name: str, other: str) -> None:
    assert re.fullmatch(escaped(name), name)
    assert (re.fullmatch(escaped(name), other) is not None) == (name == other)


def test_without_policies_a_router_gets_what_it_owns_and_nothing_else() -> None:
    grant = needed(PolicySet(()), (), AUTO, "/")
    for name in ("dlx-router.inbox", "dlx-router.parking", "dlx-router.state", Names().delay(RUNGS[0])):
        assert may(grant, Right.CONFIGURE, name)
    for right in Right:
        for name in ("orders", "dlx-router", "dlx-routerXinbox", "dlx-router.inbox2", "a.dlx-router.inbox", ""):
            assert not may(grant, right, name), (right, name)
    assert not may(grant, Right.WRITE, "dlx-router.return"), "nothing is retried"


OPEN = "- {name: p, match: 'q.*', definition: {redelivery-delay: 1s}}\n"
CUT = "- {name: p, match: 'q.*', inherit: false, definition: {redelivery-delay: 1s}}\n"
CASES = [
    # policies, right, what it includes, what it does not
    ("- {name: p, queue: q, definition: {}}", Right.WRITE, "q dlx-router.return amq.default", "q2 DLQ.q"),
    ("- {name: p, queue: q, definition: {}}", Right.CONFIGURE, "DLQ.q DLQ.transient", "q DLQ.r"),
    ("- {name: p, queue: q, definition: {max-delivery-attempts: 1}}", Right.READ, "", "dlx-router.return"),
    ("- {name: p, queue: q, definition: {discard: true}}", Right.CONFIGURE, "", "DLQ.q DLQ.transient"),
    ("- {name: p, queue: q, definition: {discard: true}}", Right.WRITE, "q dlx-router.return", "DLQ.q"),
    ("- {name: p, queue: q, definition: {dead-letter-exchange: d}}", Right.CONFIGURE, "", "d DLQ.q"),
    ("- {name: p, queue: q, definition: {dead-letter-exchange: d}}", Right.WRITE, "d q", "DLQ.q"),
    (
        "- {name: p, queue: q, definition: {dead-letter-exchange: d, auto-create-dead-letter-resources: true}}",
        Right.CONFIGURE,
        "d DLQ.q",
        "q",
    ),
    (
        "- {name: p, match: 'a.*', definition: {dead-letter-queue-suffix: .dead}}",
        Right.CONFIGURE,
        "DLQ.a.b.dead",
        "a.b",
    ),
    ("- {name: p, pattern: '^a', definition: {}}", Right.WRITE, "abc", "bac"),
    ("- {name: p, pattern: 'a$', definition: {}}", Right.CONFIGURE, "DLQ.za", "za"),
    (
        "- {name: p, queue: q, definition: {on: {expired: {dead-letter-exchange: late}}}}",
        Right.WRITE,
        "late q amq.default",
        "",
    ),
    (  # what one policy leaves open, another says
        f"{OPEN}- {{name: all, match: '#', definition: {{dead-letter-exchange: d, max-delivery-attempts: 1}}}}",
        Right.CONFIGURE,
        "",
        "DLQ.q.a DLQ.transient",
    ),
    (
        f"{CUT}- {{name: all, match: '#', definition: {{dead-letter-exchange: d}}}}",
        Right.CONFIGURE,
        "DLQ.q.a",
        "DLQ.other",
    ),
    ("- {name: p, vhost: other, queue: q, definition: {}}", Right.WRITE, "", "q"),
]


@pytest.mark.parametrize(("policies", "right", "included", "excluded"), CASES)
def test_rights_follow_from_the_policies(
    policies: str, right: Right, included: str, excluded: str, tmp_path: Path
) -> None:
    grant = grant_of(policies, tmp_path)
    assert [name for name in included.split() if not may(grant, right, name)] == []
    assert [name for name in excluded.split() if may(grant, right, name)] == []


def test_who_may_not_declare_needs_no_right_to(tmp_path: Path) -> None:
    assert grant_of("- {name: p, queue: q, definition: {}}", tmp_path, NEVER).regex(Right.CONFIGURE) == NOTHING


def test_a_key_file_makes_the_state_queue_unread_where_nobody_leads() -> None:
    keyed = needed(PolicySet(()), (), Setup(Names("p"), key_file=True, journal=False), "/")
    assert not may(keyed, Right.READ, "p.state")
    leading = needed(PolicySet(()), (), Setup(Names("p"), key_file=True, journal=True), "/")
    assert may(leading, Right.READ, "p.state"), "redrive tasks and the index have one leader"
    assert may(leading, Right.CONFIGURE, "p.journal")


def test_attached_queues_are_read(tmp_path: Path) -> None:
    assert may(needed(PolicySet(()), ["old.failed"], AUTO, "/"), Right.READ, "old.failed")


def test_attachments_get_what_their_modes_need(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(
        """version: 1
attachments:
  - {match: "old.#"}
  - {queue: in, mode: relay, forward-to: {exchange: work}}
  - {queue: slow, mode: guard}
policies: [{name: slow, queue: slow, definition: {max-length: 5}}]
""",
        encoding="utf-8",
    )
    loaded = load_policies(tmp_path)
    grant = needed(loaded.policies, (), AUTO, "/", loaded.attachments)
    assert all(may(grant, Right.READ, queue) for queue in ("old.failed", "in", "slow"))
    assert may(grant, Right.WRITE, "work")
    assert may(grant, Right.CONFIGURE, AUTO.names.guard("slow"))
    looks_only = needed(loaded.policies, (), Setup(Names(), declare=False), "/", loaded.attachments)
    assert not may(looks_only, Right.CONFIGURE, Names().guard("slow"))


def test_no_need_is_said_twice(tmp_path: Path) -> None:
    policies = "".join(f"- {{name: p{n}, queue: q{n}, definition: {{dead-letter-exchange: d}}}}\n" for n in range(3))
    needs = [(need.right, need.names) for need in grant_of(policies, tmp_path).needs]
    assert len(needs) == len(set(needs))
