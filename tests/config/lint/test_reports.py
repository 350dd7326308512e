"""Findings for programs: what GitHub, SARIF viewers and scripts read."""

import json

from dlx_router.config.findings import TITLES, Finding, Severity
from dlx_router.config.lint.output_formats import as_github, as_json, as_sarif, as_text

ODD = Finding("policies/a,b: 50%.yaml", 7, "DLX007", Severity.ERROR, "50% of\nall")
PLAIN = Finding("/etc/policies/p.yaml", 3, "DLX101", Severity.WARNING, "ties")


def test_text_is_a_line_each_with_place_and_code() -> None:
    assert as_text([PLAIN]) == "/etc/policies/p.yaml:3: warning DLX101: ties"
    assert as_text([]) == ""


def test_json_counts_errors_and_warnings() -> None:
    document = json.loads(as_json([ODD, PLAIN]))
    assert (document["errors"], document["warnings"], len(document["findings"])) == (1, 1, 2)
    assert document["findings"][0] == {
        "code": "DLX007",
        "severity": "error",
        "file": ODD.file,
        "line": 7,
        "message": ODD.message,
    }


def test_github_gets_one_command_a_line_whatever_names_and_messages_hold() -> None:
    assert as_github([ODD, PLAIN]).splitlines() == [
        "::error file=policies/a%2Cb%3A 50%25.yaml,line=7,title=DLX007::50%25 of%0Aall",
        "::warning file=/etc/policies/p.yaml,line=3,title=DLX101::ties",
    ]


def test_sarif_names_a_rule_for_each_code_and_a_place_for_each_finding() -> None:
    document = json.loads(as_sarif([ODD, PLAIN]))
    assert document["version"] == "2.1.0"
    (run,) = document["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == sorted(TITLES)
    assert rules[0]["help"]["text"] == "docs/lint.md#dlx001"
    assert [(result["ruleId"], result["level"], result["message"]["text"]) for result in run["results"]] == [
        ("DLX007", "error", ODD.message),
        ("DLX101", "warning", "ties"),
    ]
    places = [result["locations"][0]["physicalLocation"] for result in run["results"]]
    assert [place["artifactLocation"]["uri"] for place in places] == [
        "policies/a%2Cb%3A%2050%25.yaml",
        "file:///etc/policies/p.yaml",
    ]
    assert [place["region"]["startLine"] for place in places] == [7, 3]


def test_sarif_without_findings_is_still_a_run() -> None:
    assert json.loads(as_sarif([]))["runs"][0]["results"] == []
