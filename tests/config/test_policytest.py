"""Tests beside policies: judged as the daemon judges, clear where they fail, and refused where they are wrong."""
# ruff: noqa: E501 - a row of a table is read as one line

from pathlib import Path
from typing import Final

import pytest

from dlx_router.config.policy_files.loader import PolicyErrors, load_policies
from dlx_router.config.policytest import Result, run_tests

SHIPPED: Final = Path(__file__).parents[2] / "policies"
POLICIES: Final = """
version: 1
policies:
  - name: plain
    match: "work.#"
    definition:
      max-delivery-attempts: 3
      redelivery-delay: 10s
      on:
        maxlen: {discard: true}
        expired: {dead-letter-exchange: dlx, dead-letter-routing-key: "{header:team}.{attempts}.{routing_key}"}
        "application:odd": {retry-on: [], dead-letter-exchange: dlx}
  - name: asks
    match: "asks.#"
    definition:
      redelivery-max-elapsed: 1h
      never-retry: ['body("/error/code") == 42', 'body("/1") == "b"', 'content_type == "text/plain" && size > 100', 'age >= 60']
  - {name: eu, vhost: eu, queue: work.eu}
  - {name: rest, queue: rest}
"""


def test_tests_in_a_file_with_capitals_are_found(tmp_path: Path) -> None:
    (tmp_path / "P.YAML").write_text(POLICIES)
    (tmp_path / "P.TEST.YAML").write_text(
        "version: 1\ntests: [{letter: {queue: rest}, expect: {decision: retry, policy: rest}}]"
    )
    for path in (tmp_path, tmp_path / "P.TEST.YAML"):
        assert [result.passed for result in run_tests(path)] == [True]


# letter → expectation that holds
RIGHT: Final = [
    ("queue: work.a", "decision: retry, wait: 10s, policy: plain"),
    ("queue: work.a, reason: rejected, attempts: 2", "decision: retry, wait: 10000"),
    ("queue: work.a, reason: rejected, attempts: 3", "decision: dead-letter, cause: attempts_spent, queue: DLQ.work.a, exchange: '', routing-key: DLQ.work.a, cc: []"),
    ("queue: work.a, reason: application, attempts: 3", "decision: dead-letter, cause: attempts_spent"),
    ("queue: work.a, reason: maxlen", "decision: discard"),
    ("queue: work.a, reason: expired, headers: {team: blue}, routing-key: k", "decision: dead-letter, exchange: dlx, routing-key: blue.0.k, cause: never_retry"),
    ("queue: work.a, reason: expired, attempts: 2, headers: {team: true}", "decision: dead-letter, routing-key: true.2.work.a"),
    ("queue: work.a, reason: expired, headers: {team: 1.50}", "decision: dead-letter, routing-key: 1.5.0.work.a"),
    ("queue: work.a, reason: expired", "decision: dead-letter, routing-key: .0.work.a"),
    ("queue: work.a, reason: 'application:odd', routing-key: k, cc: [c, d]", "decision: dead-letter, routing-key: k, cc: [c, d]"),
    ("queue: work.a, attempts: 3, redrives: 3", "decision: park, cause: redrive_exhausted"),
    ("queue: work.eu", "decision: retry, policy: plain"),
    ("queue: work.eu, vhost: eu", "decision: retry, policy: eu"),
    ("queue: other", "decision: park, cause: no_policy"),
    ("queue: work.a, reason: unknown", "decision: park, cause: unknown_origin"),
    ("queue: rest, reason: unknown", "decision: dead-letter, queue: DLQ.rest"),
    ("queue: dlx-router.parking", "decision: park, cause: no_policy"),
    ("queue: asks.a", "decision: retry"),
    ("queue: asks.a, body: {error: {code: 42}}", "decision: dead-letter, cause: never_retry"),
    ("queue: asks.a, body: {error: {code: 43}, list: [1, null, true, 1.5]}", "decision: retry"),
    ("queue: asks.a, body: [a, b]", "decision: dead-letter, cause: never_retry"),
    ("queue: asks.a, body: '{\"error\": {\"code\": 42}}'", "decision: dead-letter, cause: never_retry"),
    ("queue: asks.a, body: 'no JSON'", "decision: retry"),
    ("queue: asks.a, content-type: text/plain, size: 101", "decision: dead-letter, cause: never_retry"),
    (f"queue: asks.a, content-type: text/plain, body: {'x' * 101}", "decision: dead-letter, cause: never_retry"),
    (f"queue: asks.a, content-type: text/plain, body: {'x' * 101}, size: 5", "decision: retry"),
    ("queue: asks.a, age: 59s", "decision: retry"),
    ("queue: asks.a, age: 1m", "decision: dead-letter, cause: never_retry"),
]  # fmt: skip


def results(folder: Path, *tests: tuple[str, str]) -> tuple[Result, ...]:
    (folder / "p.yaml").write_text(POLICIES, encoding="utf-8")
    rows = [
        f"- {{name: test {at}, letter: {{{letter}}}, expect: {{{expect}}}}}"
        for at, (letter, expect) in enumerate(tests)
    ]
    (folder / "p.test.yaml").write_text("\n".join(["version: 1", "tests:", *rows]), encoding="utf-8")
    return run_tests(folder)


@pytest.mark.parametrize(("letter", "expect"), RIGHT)
def test_a_letter_is_judged_as_by_the_daemon(letter: str, expect: str, tmp_path: Path) -> None:
    (result,) = results(tmp_path, (letter, expect))
    assert result.passed, str(result)


def test_what_fails_says_where_what_was_expected_what_was_found_and_why(tmp_path: Path) -> None:
    passed, failed = results(
        tmp_path,
        ("queue: work.a", "decision: retry"),
        ("queue: work.a, attempts: 3", "decision: retry, policy: plain, wait: 1m, queue: DLQ.x"),
    )
    file = tmp_path / "p.test.yaml"
    assert str(passed).startswith(f"{file}:3: passed: test 0\n")
    assert str(failed).splitlines() == [
        f"{file}:4: FAILED: test 1",
        "              expected  found",
        "    decision  retry     dead-letter",
        "    wait      1m        none",
        "    queue     DLQ.x     DLQ.work.a",
        "    rejected at work.a: attempts_spent after 3 attempts; to exchange '' with key 'DLQ.work.a' (policy plain)",
    ]


# what is wrong with a file of tests: text, code, line, words
WRONG: Final = [
    ("tests: []", "DLX010", 1, "version: 1"),
    ("version: 1\ntests: {}", "DLX007", 2, "a dash"),
    ("version: 1\ntests:\n- {}", "DLX006", 3, "letter:"),
    ("version: 1\ntests:\n- {letter: {queue: a}}", "DLX006", 3, "expect:"),
    ("version: 1\ntests:\n- {letter: {}, expect: {decision: retry}}", "DLX006", 3, "queue: is missing"),
    ("version: 1\ntests:\n- {letter: {queue: a}, expect: {wait: 5s}}", "DLX006", 3, "decision: is missing"),
    ("version: 1\ntests:\n- {letter: {queue: a}, expect: {decision: dead_letter}}", "DLX007", 3, 'did you mean "dead-letter"?'),
    ("version: 1\ntests:\n- {letter: {queue: a}, expect: {decision: retry, atempts: 1}}", "DLX005", 3, "atempts"),
    ("version: 1\ntests:\n- {letter: {queue: a, reason: tired}, expect: {decision: retry}}", "DLX007", 3, "application:NAME or unknown"),
    ("version: 1\ntests:\n- {letter: {queue: a, attempts: 0}, expect: {decision: retry}}", "DLX007", 3, "1..2147483647"),
    ("version: 1\ntests:\n- {letter: {queue: a, draw: 2}, expect: {decision: retry}}", "DLX007", 3, "the jitter"),
    ("version: 1\ntests:\n- {letter: {queue: a, headers: {x: [1]}}, expect: {decision: retry}}", "DLX007", 3, "a list"),
    ("version: 1\ntests:\n- {letter: {queue: a, age: old}, expect: {decision: retry}}", "DLX007", 3, "is no duration"),
    ("version: 1\ntests:\n- {letter: {queue: a, size: -1}, expect: {decision: retry}}", "DLX007", 3, "negative"),
    ("version: 1\ntests:\n- {letter: {queue: a}, expect: {decision: park, cause: bored}}", "DLX007", 3, "bored"),
    ("version: 1\npolicies: []", "DLX005", 2, "a file of their own"),
    ("version: 1\ntests: [", "DLX002", 3, "not YAML"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "code", "line", "words"), WRONG)
def test_a_test_that_is_wrong_is_refused_with_code_line_and_help(
    text: str, code: str, line: int, words: str, tmp_path: Path
) -> None:
    (tmp_path / "p.yaml").write_text(POLICIES, encoding="utf-8")
    (tmp_path / "p.test.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(PolicyErrors) as raised:
        run_tests(tmp_path)
    findings = raised.value.findings
    assert [(finding.code, finding.line) for finding in findings if words in finding.message] == [(code, line)], (
        raised.value
    )


def test_errors_of_policies_and_tests_are_told_together(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("version: 2", encoding="utf-8")
    (tmp_path / "p.test.yaml").write_text("version: 3", encoding="utf-8")
    with pytest.raises(PolicyErrors) as raised:
        run_tests(tmp_path)
    assert [Path(finding.file).name for finding in raised.value.findings] == ["p.test.yaml", "p.yaml"]
    assert not raised.value.unreadable


def test_no_tests_are_no_success(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(POLICIES, encoding="utf-8")
    for path in (tmp_path, tmp_path / "nowhere", tmp_path / "nowhere.test.yaml"):
        with pytest.raises(PolicyErrors) as raised:
            run_tests(path)
        assert raised.value.unreadable


def test_one_file_of_tests_can_be_named(tmp_path: Path) -> None:
    results(tmp_path, ("queue: work.a", "decision: retry"))
    (tmp_path / "q.test.yaml").write_text("nonsense", encoding="utf-8")
    assert [result.passed for result in run_tests(tmp_path / "p.test.yaml")] == [True]


def test_a_file_of_tests_is_no_policy_and_one_that_is_named_otherwise_says_how(tmp_path: Path) -> None:
    results(tmp_path, ("queue: work.a", "decision: retry"))
    assert load_policies(tmp_path).files == (str(tmp_path / "p.yaml"),)
    (tmp_path / "q.yaml").write_text("version: 1\ntests: []", encoding="utf-8")
    with pytest.raises(PolicyErrors, match=r"whose name ends in \.test\.yaml"):
        load_policies(tmp_path)


def test_every_shipped_policy_keeps_its_promises() -> None:
    shipped = run_tests(SHIPPED)
    assert [str(result) for result in shipped if not result.passed] == []
    named = {result.case.expect.get("policy") for result in shipped} - {None}
    assert named == {policy.name for policy in load_policies(SHIPPED).policies.policies}
