"""Findings about policies that are right one by one: what they mean together."""
# ruff: noqa: E501 - a row of a table is read as one line

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.config.lint.policy_conflicts import covers, words_meet
from dlx_router.config.policy_files.loader import PolicyErrors, load_policies
from dlx_router.core.names import Names
from dlx_router.core.policy import Policy, Selector, SelectorKind, Source, words_match

# (what it is about, policies one a line from line 3, findings as (code, line, words))
SETS = [
    ("one policy", "- {name: a, match: '#'}", []),
    ("a cap alone, for waits that consumers ask for", "- {name: a, match: '#', definition: {max-redelivery-delay: 1m}}", []),
    ("a multiplier without a delay", "- {name: a, match: '#', definition: {redelivery-delay-multiplier: 2}}",
     [("DLX103", 3, "tried again at once")]),
    ("a multiplier whose delay others write",
     "- {name: a, match: '#', definition: {redelivery-delay-multiplier: 2}}\n- {name: b, match: b, definition: {redelivery-delay: 5}}", []),
    ("a key beside the auto-created queue", "- {name: a, match: '#', definition: {dead-letter-routing-key: x}}",
     [("DLX103", 3, "auto-created")]),
    ("a template beside the auto-created queue, which every letter reaches by its name",
     "- {name: a, match: '#', definition: {dead-letter-routing-key: '{queue}.dead'}}", [("DLX103", 3, "write dead-letter-exchange:")]),
    ("a template on the default exchange without an auto-created queue",
     "- {name: a, match: '#', definition: {auto-create-dead-letter-resources: false, dead-letter-routing-key: '{queue}.dead'}}", []),
    ("a key whose exchange another policy writes",
     "- {name: a, match: '#', definition: {dead-letter-exchange: x}}\n- {name: b, match: b, definition: {dead-letter-routing-key: x}}", []),
    ("a rewrite beside a key",
     "- {name: a, match: '#', definition: {dead-letter-exchange: x, dead-letter-routing-key: y, dead-letter-routing-key-rewrite: [{match: a, replace: b}]}}", [("DLX103", 3, "keep one of them")]),
    ("the default exchange whose key another policy writes",
     "- {name: a, match: '#', definition: {dead-letter-routing-key: x}}\n- {name: b, match: b.#, definition: {dead-letter-exchange: ''}}",
     []),
    ("the default exchange whose key only some queues have",
     "- {name: a, match: b.c, definition: {dead-letter-routing-key: x}}\n- {name: b, match: b.#, definition: {dead-letter-exchange: ''}}",
     [("DLX105", 4, "write dead-letter-routing-key")]),
    ("the default exchange for one reason only", "- {name: a, match: '#', definition: {on: {expired: {dead-letter-exchange: ''}}}}",
     [("DLX105", 3, "work queue")]),
    ("the default exchange with an auto-created queue",
     "- {name: a, match: '#', definition: {dead-letter-exchange: '', auto-create-dead-letter-resources: true}}", []),
    ("the default exchange and letters that are dropped",
     "- {name: a, match: a.#, definition: {dead-letter-exchange: '', discard: true}}", []),
    ("a header on a named exchange",
     "- {name: a, match: '#', definition: {dead-letter-exchange: x, dead-letter-routing-key: '{header:to}'}}", []),
    *((f"an auto-created queue on {exchange}",
       f"- {{name: a, match: '#', definition: {{dead-letter-exchange: {exchange}, auto-create-dead-letter-resources: true}}}}",
       [("DLX106", 3, f"{kind} exchange")]) for exchange, kind in (("amq.fanout", "fanout"), ("amq.headers", "headers"), ("amq.match", "headers"))),
    ("an auto-created queue on an exchange that goes by keys",
     "- {name: a, match: '#', definition: {dead-letter-exchange: amq.topic, auto-create-dead-letter-resources: true}}", []),
    ("a fanout exchange whose queues others bind", "- {name: a, match: '#', definition: {dead-letter-exchange: amq.fanout}}", []),
    ("a fanout exchange and an auto-created queue for one reason only",
     "- {name: a, match: '#', definition: {dead-letter-exchange: amq.fanout, on: {expired: {auto-create-dead-letter-resources: true}}}}",
     [("DLX106", 3, "get the letters of all")]),
    ("a fanout exchange and letters that are dropped",
     "- {name: a, match: a.#, definition: {dead-letter-exchange: amq.fanout, auto-create-dead-letter-resources: true, discard: true}}", []),
    ("a queue without a name of its own", "- {name: a, match: '#', definition: {dead-letter-queue-prefix: ''}}",
     [("DLX105", 3, "the work queue itself")]),
    ("empty names that nothing uses",
     "- {name: a, match: '#', definition: {dead-letter-exchange: x, dead-letter-queue-prefix: ''}}", []),
    ("an exchange of the router", "- {name: a, match: '#', definition: {dead-letter-exchange: dlx-router.release}}",
     [("DLX116", 3, "an exchange of the router itself")]),
    ("an exchange of the router for one reason only", "- {name: a, match: '#', definition: {on: {expired: {dead-letter-exchange: dlx-router.inbox}}}}",
     [("DLX116", 3, "an exchange of the router itself")]),
    ("an exchange of the router and letters that are dropped",
     "- {name: a, match: a.#, definition: {dead-letter-exchange: dlx-router.release, discard: true}}", []),
    *((f"a queue of the router by {key}",
       f"- {{name: a, match: '#', definition: {{dead-letter-exchange: '', dead-letter-routing-key: '{key}'}}}}",
       [("DLX116", 3, f'"{key}", a queue of the router itself')]) for key in ("dlx-router.retired", "dlx-router.{queue}")),
    ("a key that the exchange of others binds as it likes",
     "- {name: a, match: '#', definition: {dead-letter-exchange: x, dead-letter-routing-key: dlx-router.retired}}", []),
    ("a key that a message chooses, and is looked at then",
     "- {name: a, match: '#', definition: {dead-letter-exchange: '', dead-letter-routing-key: '{routing_key}'}}", []),
    ("dead-letter queues with names of the router's", "- {name: a, match: '#', definition: {dead-letter-queue-prefix: dlx-router.}}",
     [("DLX116", 3, "begin with")]),
    ("names of the router's that nothing uses",
     "- {name: a, match: '#', definition: {dead-letter-exchange: x, dead-letter-queue-prefix: dlx-router.}}", []),
    ("two policies for one queue that disagree",
     "- {name: a, queue: q, definition: {max-redrives: 1}}\n- {name: b, queue: q, definition: {max-redrives: 2}}",
     [("DLX101", 4, 'max-redrives of policy "b" ties with policy "a"')]),
    ("two policies for one queue that agree",
     "- {name: a, queue: q, definition: {max-redrives: 1}}\n- {name: b, queue: q, definition: {max-redrives: 1, discard: false}}", []),
    ("a tie that a priority resolves",
     "- {name: a, queue: q, definition: {max-redrives: 1}}\n- {name: b, queue: q, priority: 1, definition: {max-redrives: 2}}", []),
    ("a tie in different vhosts",
     "- {name: a, vhost: x, queue: q, definition: {max-redrives: 1}}\n- {name: b, vhost: y, queue: q, definition: {max-redrives: 2}}", []),
    ("words that may meet",
     "- {name: a, match: a.*, definition: {max-redrives: 1}}\n- {name: b, match: '*.b', definition: {max-redrives: 2}}",
     [("DLX101", 4, "higher priority")]),
    ("words that cannot meet",
     "- {name: a, match: a.*, definition: {max-redrives: 1}}\n- {name: b, match: b.*, definition: {max-redrives: 2}}", []),
    ("overlays that disagree",
     "- {name: a, queue: q, definition: {on: {expired: {discard: true}}}}\n- {name: b, queue: q, definition: {on: {expired: {discard: false}}}}", [("DLX101", 4, "discard")]),
    ("one of a tie that cuts the chain", "- {name: a, queue: q}\n- {name: b, queue: q, inherit: false}", [("DLX101", 4, "inherit")]),
    ("equal patterns",
     "- {name: a, pattern: q, definition: {max-redrives: 1}}\n- {name: b, pattern: q, definition: {max-redrives: 2}}",
     [("DLX101", 4, "max-redrives")]),
    ("a policy behind one that cuts the chain", "- {name: a, match: a.#, inherit: false}\n- {name: b, match: 'a.*.#', priority: -1}",
     [("DLX102", 4, '"a"')]),
    ("a policy that is only partly behind the cut", "- {name: a, match: a.b, inherit: false}\n- {name: b, match: a.#}", []),
    *((f"letters of any queue are dropped, by {selector}", f"- {{name: a, {selector}, definition: {{discard: true}}}}",
       [("DLX117", 3, "names any queue: what dies there is gone")])
      for selector in ("match: '#'", "match: '*.#'", "pattern: '.*'", "pattern: '^'", "pattern: '.'")),
    ("letters of any queue are dropped for one reason", "- {name: a, match: '#', definition: {on: {expired: {discard: true}}}}",
     [("DLX117", 3, "logs.#")]),
    *((f"letters of some queues are dropped, by {selector}", f"- {{name: a, {selector}, definition: {{discard: true}}}}", [])
      for selector in ("match: logs.#", "queue: logs", "pattern: '^logs'", "match: '*.logs'")),
    ("nothing is dropped", "- {name: a, match: '#', definition: {discard: false}}", []),
    ("a policy for the dead-letter queue of another", "- {name: a, queue: q}\n- {name: b, queue: DLQ.q}", [("DLX107", 4, 'the dead-letter queue of "q"')]),
    ("a policy for a dead-letter queue, where one for all allows it",
     "- {name: a, match: '#', definition: {allow-chain: true}}\n- {name: b, queue: q}\n- {name: c, queue: DLQ.q}", []),
    ("a policy for a queue of that name in another vhost", "- {name: a, vhost: v1, queue: q}\n- {name: b, vhost: v2, queue: DLQ.q}", []),
    *((f"a policy for a dead-letter queue in {where}",
       f"- {{name: a, {first}queue: q}}\n- {{name: b, {second}queue: DLQ.q}}", [("DLX107", 4, '"DLQ.q"')])
      for where, first, second in (("its vhost", "vhost: v1, ", "vhost: v1, "), ("every vhost", "vhost: v1, ", ""), ("one of all vhosts", "", "vhost: v1, "))),
    ("a policy for a dead-letter queue in one of two vhosts",
     "- {name: a, vhost: v1, queue: q}\n- {name: b, vhost: v1, queue: DLQ.q}\n- {name: c, vhost: v2, queue: q}\n- {name: d, vhost: v3, queue: DLQ.q}",
     [("DLX107", 4, 'policy "b"')]),
    ("a policy for a queue that is a dead-letter queue in no vhost where it holds",
     "- {name: a, queue: q}\n- {name: b, vhost: v1, match: '#', definition: {dead-letter-queue-prefix: X.}}\n- {name: c, vhost: v1, queue: DLQ.q}", []),
    ("a queue of the router", "- {name: a, queue: dlx-router.inbox}", [("DLX118", 3, "where none fails")]),
    ("queues of the router by words", "- {name: a, match: dlx-router.#}", [("DLX118", 3, "it is never used; name the queues")]),
    ("queues of the router by a pattern", "- {name: a, pattern: '^dlx-router\\.'}", [("DLX118", 3, "it is never used")]),
    ("an attachment of a queue of the router", "[]\nattachments:\n- {queue: dlx-router.parking, dead-letter-exchanges: []}",
     [("DLX118", 4, "take the attachment out")]),
    ("the inbox, whose exchanges are named", "[]\nattachments:\n- {queue: dlx-router.inbox, dead-letter-exchanges: x}", []),
    ("an attachment where dead letters end",
     "- {name: a, queue: q}\nattachments:\n- {queue: DLQ.q, dead-letter-exchanges: x}", [("DLX108", 5, "takes them from there again")]),
    ("an attachment where dead letters of many end",
     "- {name: a, match: '#', definition: {dead-letter-exchange: '', dead-letter-routing-key: end}}\nattachments:\n- {queue: end, dead-letter-exchanges: x}",
     [("DLX108", 5, 'policy "a" sends dead letters to "end"')]),
    ("a relay back to a queue that it takes from",
     "[]\nattachments:\n- {match: in.#, mode: relay, forward-to: {exchange: '', routing-key: in.two}}", [("DLX105", 4, "leads back")]),
]  # fmt: skip


@pytest.mark.parametrize(("policies", "expected"), [row[1:] for row in SETS], ids=[row[0] for row in SETS])
def test_lint_says_what_policies_mean_together(
    policies: str, expected: list[tuple[str, int, str]], tmp_path: Path
) -> None:
    (tmp_path / "p.yaml").write_text(
        f"version: 1\npolicies:{chr(10) if policies[0] == chr(45) else chr(32)}{policies}\n"
    )
    try:
        findings = load_policies(tmp_path).warnings
    except PolicyErrors as error:
        findings = error.findings
    assert [(finding.code, finding.line) for finding in findings] == [(code, line) for code, line, _ in expected], (
        findings
    )
    assert all(words in finding.message for finding, (_, _, words) in zip(findings, expected, strict=True))


def test_what_is_the_routers_own_begins_with_its_prefix(tmp_path: Path) -> None:
    rows = [
        f"- {{name: {name}, queue: {name}, definition: {{dead-letter-exchange: {name}.inbox}}}}"
        for name in ("dlx-router", "mine")
    ]
    (tmp_path / "p.yaml").write_text("\n".join(["version: 1", "policies:", *rows]))
    with pytest.raises(PolicyErrors) as raised:
        load_policies(tmp_path, Names("mine"))
    assert [(finding.code, finding.line) for finding in raised.value.findings] == [("DLX116", 4)]


@pytest.mark.parametrize(
    ("forward", "said"),
    [
        ('{exchange: "", routing-key: dlx-router.state}', '"dlx-router.state", a queue of the router itself'),
        ('{exchange: "", routing-key: "dlx-router.\\nstate"}', "a queue of the router itself"),
        ('{exchange: "", routing-key: "dlx-router.{routing_key}"}', "a queue of the router itself"),
        ("{exchange: dlx-router.journal}", "an exchange of the router itself"),
        ('{exchange: "\\rdlx-router.return", routing-key: x}', "an exchange of the router itself"),
        ("{exchange: out, routing-key: dlx-router.state}", ""),
        ('{exchange: "", routing-key: "out.{routing_key}"}', ""),
    ],
)
def test_a_relay_never_leads_to_what_is_the_routers_own(forward: str, said: str, tmp_path: Path) -> None:
    attachment = f"  - {{queue: entry, mode: relay, forward-to: {forward}}}"
    (tmp_path / "p.yaml").write_text(f"version: 1\npolicies: []\nattachments:\n{attachment}\n")
    findings: list[tuple[str, int, bool]] = []
    try:
        load_policies(tmp_path)
    except PolicyErrors as error:
        findings = [(finding.code, finding.line, said in finding.message) for finding in error.findings]
    assert findings == ([("DLX116", 4, True)] if said else [])


PATTERNS = st.lists(st.sampled_from(["a", "b", "*", "#"]), min_size=1, max_size=5).map(".".join)
QUEUES = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=5).map(".".join)


@given(PATTERNS, PATTERNS, QUEUES)
def test_patterns_that_share_a_queue_are_said_to_meet(pattern: str, other: str, queue: str) -> None:
    words = queue.split(".")
    if words_match(pattern.split("."), words) and words_match(other.split("."), words):
        assert words_meet(pattern.split("."), other.split("."))
    assert words_meet(pattern.split("."), other.split(".")) == words_meet(other.split("."), pattern.split("."))


@given(PATTERNS, PATTERNS, QUEUES)
def test_a_pattern_that_covers_another_fits_all_its_queues(wide: str, narrow: str, queue: str) -> None:
    policies = [Policy(text, Selector(SelectorKind.MATCH, text), Source(text, "p", 1)) for text in (wide, narrow)]
    if covers(*policies) and policies[1].selector.fits(queue):
        assert policies[0].selector.fits(queue)
