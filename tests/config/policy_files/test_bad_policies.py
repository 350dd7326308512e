"""Every way to write a policy wrongly, and what is said about it: code, line, and the words that help."""
# ruff: noqa: E501 - a row of a table is read as one line

from pathlib import Path

import pytest

from dlx_router.config.policy_files.loader import PolicyErrors, fingerprint, load_policies

HEAD = "version: 1\npolicies:\n  - name: a\n    match: '#'\n    definition:\n"  # what follows begins in line 6

IN_A_DEFINITION = [
    ("max-delivery-atempts: 3", "DLX005", 6, 'did you mean "max-delivery-attempts"?'),
    ("x-dead-letter-exchange: dlx", "DLX005", 6, 'did you mean "dead-letter-exchange"?'),
    ("dead-letter-address: dlx", "DLX005", 6, "write dead-letter-exchange"),
    ("maxReceiveCount: 3", "DLX005", 6, "write max-delivery-attempts"),
    ("priority: 3", "DLX005", 6, 'beside "definition:"'),
    ("max-delivery-attempts: 0", "DLX007", 6, "Artemis"),
    ("max-delivery-attempts: -2", "DLX007", 6, "-1 for no limit"),
    ("max-delivery-attempts: five", "DLX007", 6, 'found "five"'),
    ("max-delivery-attempts: true", "DLX007", 6, "1 or more"),
    ("max-delivery-attempts: 1.5", "DLX007", 6, "found 1.5"),
    ("max-delivery-attempts: '3'", "DLX007", 6, 'found "3"'),
    ("max-delivery-attempts:", "DLX007", 6, "found nothing"),
    ("max-delivery-attempts: [3]", "DLX007", 6, "found a list"),
    ("max-delivery-attempts: {a: 3}", "DLX007", 6, "found a mapping"),
    ("redelivery-delay: 5 apples", "DLX007", 6, '"5s"'),
    ("redelivery-delay: -5s", "DLX007", 6, "negative"),
    ("redelivery-delay: 1.5ms", "DLX007", 6, "whole milliseconds"),
    ("redelivery-delay: 4000d", "DLX007", 6, "10 years"),
    ("redelivery-delay-multiplier: 0", "DLX007", 6, "above 0"),
    ("redelivery-delay-multiplier: .inf", "DLX007", 6, "above 0"),
    ("redelivery-collision-avoidance-factor: 1.1", "DLX007", 6, "0..1"),
    ("auto-create-dead-letter-resources: yes", "DLX007", 6, "true or false"),
    ("discard: 1", "DLX007", 6, "true or false"),
    ("dead-letter-queue-type: stream", "DLX007", 6, "drop the record"),
    ("dead-letter-exchange: 12", "DLX007", 6, 'in quotes: "12"'),
    (f"dead-letter-exchange: {'x' * 256}", "DLX007", 6, "at most 255"),
    ("dead-letter-headers: [emq, artemis, emq]", "DLX007", 6, "twice"),
    ("retry-on: [rejected, timeout]", "DLX007", 6, '"timeout"'),
    ("retry-on: ['application:oops']", "DLX007", 6, "{retry-on: []}"),
    ("retry-on: rejected", "DLX007", 6, "a list of reasons"),
    ("max-redrives: 0", "DLX007", 6, "-1 for no limit"),
    ("dead-letter-exchange: x\n      dead-letter-routing-key: '{quue}'", "DLX007", 7, "unknown field {quue}"),
    ("dead-letter-exchange: x\n      dead-letter-routing-key: 'a{queue'", "DLX007", 7, "never closed"),
    ("dead-letter-routing-key-rewrite: [{match: '(', replace: x}]", "DLX007", 6, "RE2"),
    ("dead-letter-routing-key-rewrite: [{match: '(a)', replace: '\\2'}]", "DLX007", 6, "group \\2"),
    ("dead-letter-routing-key-rewrite: [{match: 'a', replace: '\\n'}]", "DLX007", 6, "\\n"),
    ("dead-letter-routing-key-rewrite: [{match: 'a'}]", "DLX007", 6, "match and replace"),
    ("dead-letter-routing-key-rewrite: [a]", "DLX007", 6, "{match: REGEX, replace: TEXT}"),
    ("allow-queues: ['orders*']", "DLX007", 6, "between dots"),
    ("on: rejected", "DLX007", 6, "a mapping of reasons"),
    ("on: {rejeted: {}}", "DLX007", 6, 'did you mean "rejected"?'),
    ("on: {'application:': {}}", "DLX007", 6, "application:NAME"),
    ("on:\n        rejected:\n          redelivery-delay: x", "DLX007", 8, "redelivery-delay"),
    ("on:\n        rejected:\n          on: {}", "DLX005", 8, "no further reasons"),
    ("on:\n        expired:\n          message-ttl: 1h", "DLX005", 8, 'about the queue, not about a reason; write it beside "on:"'),
    *(
        (f"on: {{rejected: {{{key}}}}}", "DLX005", 6, 'beside "on:"')
        for key in ("max-length: 5", "max-length-bytes: 1KiB", "overflow: drop-head", "delivery-limit: 5", "expires: 1h")
    ),
    ("on: {rejected: {requeue-is-death: true}}", "DLX005", 6, 'beside "on:"'),
    ("on: {expired: {ordering: fifo}}", "DLX005", 6, 'beside "on:"'),
    ("on: {expired: {trust-timestamp: true}}", "DLX005", 6, 'beside "on:"'),
    ("on:\n        rejected:", "DLX007", 7, "a mapping"),
    ("redelivery-delay: 1s\n      redelivery-delay: 2s", "DLX004", 7, "first in line 6"),
    ("redelivery-delay: &x 1s", "DLX003", 6, "anchor &x"),
    ("redelivery-delay: *x", "DLX003", 6, "alias *x"),
    ("redelivery-delay: !!int '5'", "DLX003", 6, "tag"),
    ("redelivery-delay: !!python/object/apply:os.system [ls]", "DLX003", 6, "tag"),
    ("<<: {redelivery-delay: 1s}", "DLX003", 6, "merge key"),
    ("? [a, b]\n      : 1", "DLX003", 6, "a key is a word"),
    ("redelivery-delay: [1s", "DLX002", 7, "not YAML"),
    ("\tredelivery-delay: 1s", "DLX002", 6, "not YAML"),
    ("dead-letter-exchange: ''", "DLX105", 6, "work queue"),
    ("dead-letter-exchange: ''\n      dead-letter-routing-key: '{queue}'", "DLX105", 7, "the work queue itself"),
    ("dead-letter-exchange: ''\n      dead-letter-routing-key: '{header:to}'", "DLX114", 7, "allow-queues"),
    ("dead-letter-queue-prefix: ''", "DLX105", 6, "both empty"),
    ("on:\n        expired:\n          dead-letter-queue-prefix: ''", "DLX105", 8, "both empty"),
    ("outage: 1", "DLX007", 6, "{deaths: 50, within: 10s, probe-every: 5s}"),
    ("outage: {deaths: 50, within: 10s}", "DLX007", 6, "probe-every missing"),
    ("outage: {deaths: 0, within: 10s, probe-every: 5s}", "DLX007", 6, "in 1..100000"),
    ("outage: {deaths: 5, within: 0, probe-every: 5s}", "DLX007", 6, "no time in which"),
    ("outage: {deaths: 5, within: 10s, probe-every: 99ms}", "DLX007", 6, '"99ms" is below 100ms'),
    ("outage: {deaths: 5, within: 10s, probe-every: 0}", "DLX007", 6, "the shortest time that a letter waits; write 5s"),
    ("outage: {deaths: 5, within: 10s, probe-evry: 5s}", "DLX005", 6, 'did you mean "probe-every"?'),
    ("ordering: lifo", "DLX007", 6, "none or fifo"),
    ("never-retry: 'true'", "DLX007", 6, "a list of conditions"),
    ("never-retry: ['reason =']", "DLX007", 6, "Syntax error"),
    ("retry-only: [1]", "DLX007", 6, "in quotes"),
    ("redelivery-max-elapsed: 0", "DLX007", 6, "keep nothing"),
    ("message-ttl: -1", "DLX007", 6, "negative"),
    ("max-length: many", "DLX007", 6, "a number of messages"),
    ("max-length-bytes: 10MB", "DLX007", 6, '"10MiB"'),
    ("overflow: drop-tail", "DLX007", 6, "drop-head"),
    ("delivery-limit: -2", "DLX007", 6, "or -1"),
    ("expires: never", "DLX007", 6, "no duration"),
    ("trust-timestamp: 1", "DLX007", 6, "true or false"),
    ("allow-chain: 1", "DLX007", 6, "true or false"),
    ("requeue-is-death: 1", "DLX007", 6, "true or false"),
    ("dead-letter-queue-ttl: 0", "DLX007", 6, "keep nothing"),
    ("dead-letter-queue-max-length: 0", "DLX007", 6, "1 or more"),
    ("dead-letter-queue-max-length-bytes: 0", "DLX007", 6, "keep nothing"),
    ("auto-delete-dead-letter-queue-after: soon", "DLX007", 6, "no duration"),
    ("alert: {}", "DLX007", 6, "{depth: 1000, oldest: 1h, rate: 5}"),
    ("alert: {depth: 0}", "DLX007", 6, "whole number"),
    ("journal: {body: everything}", "DLX007", 6, "expected none"),
    ("journal: {redact: x-token}", "DLX007", 6, "a list of header names"),
]  # fmt: skip

WHOLE_FILES = [
    ("", "DLX010", 1, "version: 1"),
    ("policies: []", "DLX010", 1, "version: 1"),
    ("version: 2", "DLX010", 1, "reads version: 1"),
    ("version: 1.0", "DLX010", 1, "reads version: 1"),
    ("just words", "DLX007", 1, "a policy file (a mapping)"),
    ("version: 1\npolices: []", "DLX005", 2, 'did you mean "policies"?'),
    ("version: 1\npolicies: {}", "DLX007", 2, "a dash"),
    ("version: 1\npolicies:\n", "DLX007", 2, "found nothing"),
    ("version: 1\npolicies:\n- words", "DLX007", 3, "a policy (a mapping)"),
    ("version: 1\npolicies:\n- match: a", "DLX006", 3, "without a name"),
    ("version: 1\npolicies:\n- name: ''\n  match: a", "DLX007", 3, "must not be empty"),
    ('version: 1\npolicies:\n- name: "a\\nb"\n  match: a', "DLX007", 3, "cannot be printed"),
    ("version: 1\npolicies:\n- name: a", "DLX006", 3, "exactly one of queue:, match: or pattern:"),
    ("version: 1\npolicies:\n- name: a\n  match: a\n  queue: b", "DLX006", 3, "queue and match"),
    ("version: 1\npolicies:\n- {name: a, match: orders*}", "DLX007", 3, "orders.#"),
    ("version: 1\npolicies:\n- {name: a, pattern: '(a'}", "DLX007", 3, "missing )"),
    ("version: 1\npolicies:\n- {name: a, queue: ''}", "DLX007", 3, "must not be empty"),
    ("version: 1\npolicies:\n- {name: a, queue: a, priority: high}", "DLX007", 3, "a whole number"),
    ("version: 1\npolicies:\n- {name: a, queue: a, apply-to: exchanges}", "DLX007", 3, "expected queues"),
    ("version: 1\npolicies:\n- {name: a, queue: a, max-redrives: 1}", "DLX005", 3, 'under "definition:"'),
    ("version: 1\npolicies:\n- {name: a, queue: a, definition: x}", "DLX007", 3, "a definition (a mapping)"),
    ("version: 1\npolicies:\n- {name: a, queue: a}\n- {name: a, queue: b}", "DLX009", 4, "p.yaml:3"),
    ("version: 1\nattachments:\n- mode: inbox", "DLX006", 3, "this one has none"),
    ("version: 1\nattachments:\n- {queue: a, mode: relay}", "DLX006", 3, "a relay without forward-to"),
    ("version: 1\nattachments:\n- {queue: a, forward-to: {exchange: e}}", "DLX006", 3, "mode: inbox"),
    ("version: 1\nattachments:\n- {queue: a, mode: inbx}", "DLX007", 3, 'did you mean "inbox"?'),
    ("version: 1\nattachments:\n- {match: a, pattern: b}", "DLX006", 3, "has match and pattern"),
    ("version: 1\nattachments:\n- {pattern: '('}", "DLX007", 3, "pattern: "),
    ("version: 1\nattachments:\n- {queue: a, mode: relay, forward-to: {}}", "DLX007", 3, "{exchange: NAME}"),
    (
        "version: 1\nattachments:\n- {queue: a, mode: relay, forward-to: {exchange: e, key: k}}",
        "DLX007",
        3,
        "routing-key",
    ),
    (
        "version: 1\nattachments:\n- {queue: a, mode: relay, forward-to: {exchange: e, routing-key: '{reason}'}}",
        "DLX007",
        3,
        "known of dead letters only",
    ),
    (
        "version: 1\nattachments:\n- {queue: a, mode: relay, forward-to: {exchange: ''}}",
        "DLX105",
        3,
        "leads back to the source",
    ),
    (
        "version: 1\nattachments:\n- {queue: a, mode: relay, forward-to: {exchange: '', routing-key: a}}",
        "DLX105",
        3,
        "leads back to the source",
    ),
    (
        "version: 1\nattachments:\n- {queue: a, mode: relay, forward-to: {exchange: '', routing-key: '{header:to}'}}",
        "DLX114",
        3,
        "whoever publishes",
    ),
    ("version: 1\nattachments:\n- {queue: a}\n- {queue: a, mode: inbox}", "DLX130", 4, "is there already"),
    ("version: 1\nattachments: a", "DLX007", 2, "expected a list"),
    ("version: 1\n---\nversion: 1", "DLX003", 2, "second document"),
    ("version: 1\npolicies: " + "[" * 30 + "]" * 30, "DLX003", 2, "nested deeper"),
    ("version: 1\n" + "#" * (1 << 20), "DLX003", 1, "split it"),
    ("version: 1\n\x07", "DLX002", 2, "not YAML"),
    ("%YAML " + "9" * 5000 + ".1\n---\nversion: 1", "DLX002", 1, "not YAML"),
    ('version: "\\UFFFFFFFF"', "DLX002", 1, "not YAML"),
]


def findings(folder: Path, text: str | bytes) -> list[tuple[str, int, str]]:
    """What is wrong with a file that is alone in a folder."""
    (folder / "p.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(PolicyErrors) as raised:
        load_policies(folder)
    return [(finding.code, finding.line, finding.message) for finding in raised.value.findings]


@pytest.mark.parametrize(("text", "code", "line", "words"), IN_A_DEFINITION)
def test_a_definition_that_is_wrong_is_refused_with_code_line_and_help(
    text: str, code: str, line: int, words: str, tmp_path: Path
) -> None:
    problems = findings(tmp_path, HEAD + "      " + text)
    assert [(problem[0], problem[1]) for problem in problems] == [(code, line)], problems
    assert words in problems[0][2]


@pytest.mark.parametrize(("text", "code", "line", "words"), WHOLE_FILES)
def test_a_file_that_is_wrong_is_refused_with_code_line_and_help(
    text: str, code: str, line: int, words: str, tmp_path: Path
) -> None:
    problems = findings(tmp_path, text)
    assert [(problem[0], problem[1]) for problem in problems] == [(code, line)], problems
    assert words in problems[0][2]


def test_bytes_that_are_not_utf_8_are_named_with_their_line(tmp_path: Path) -> None:
    assert findings(tmp_path, b"version: 1\n# \xff")[0][:2] == ("DLX002", 2)


def test_all_errors_of_all_files_are_shown_at_once_in_order(tmp_path: Path) -> None:
    (tmp_path / "b.yml").write_text(HEAD + "      discard: maybe\n      max-redrives: none\n")
    (tmp_path / "a.yaml").write_text("version: 1\npolicies:\n- name: x\n- {queue: y, nmae: y}\n")
    with pytest.raises(PolicyErrors) as raised:
        load_policies(tmp_path)
    where = [(Path(finding.file).name, finding.line, finding.code) for finding in raised.value.findings]
    assert where == [
        ("a.yaml", 3, "DLX006"), ("a.yaml", 4, "DLX005"), ("a.yaml", 4, "DLX006"), ("b.yml", 6, "DLX007"), ("b.yml", 7, "DLX007"),
    ]  # fmt: skip
    assert "a.yaml:3: error DLX006: " in str(raised.value)


def test_every_bad_overlay_is_told(tmp_path: Path) -> None:
    problems = findings(
        tmp_path, HEAD + "      on:\n        boredom: {}\n        expired: {discard: x}\n        age: {}\n"
    )
    assert [(code, line) for code, line, _ in problems] == [("DLX007", 7), ("DLX007", 8), ("DLX007", 9)]


def test_every_bad_item_of_a_list_is_told(tmp_path: Path) -> None:
    problems = findings(tmp_path, HEAD + "      retry-on:\n        - timeout\n        - rejected\n        - later\n")
    assert [(code, line) for code, line, _ in problems] == [("DLX007", 7), ("DLX007", 9)]


@pytest.mark.parametrize("path", ["missing", "file/below", "nul\0byte"])
def test_a_path_that_cannot_be_read_is_unreadable(path: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PolicyErrors) as raised:
        load_policies(tmp_path / path)
    assert raised.value.unreadable


def test_a_folder_without_policy_files_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "orders.test.yaml").write_text("version: 1")
    (tmp_path / "notes.txt").write_text("version: 1")
    with pytest.raises(PolicyErrors, match="no policy file"):
        load_policies(tmp_path)


def test_files_with_names_in_capitals_are_read_and_their_tests_are_tests(tmp_path: Path) -> None:
    for name in ("A.YAML", "b.Yml", "c.yaml", "A.TEST.YAML"):
        (tmp_path / name).write_text(f"version: 1\npolicies: [{{name: {name[0]}, queue: {name[0]}}}]")
    loaded = load_policies(tmp_path)
    assert [policy.name for policy in loaded.policies.policies] == ["A", "b", "c"]
    before = fingerprint(tmp_path)
    (tmp_path / "b.Yml").write_text("version: 1")
    assert fingerprint(tmp_path) != before


def test_a_file_that_cannot_be_read_is_told_beside_the_errors_of_others(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").symlink_to(tmp_path / "nowhere")
    (tmp_path / ".b.yaml").write_text("hidden")
    (tmp_path / "folder.yaml").mkdir()
    assert [problem[0] for problem in findings(tmp_path, "version: 2")] == ["DLX001", "DLX010"]
