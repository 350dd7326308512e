"""Findings as other programs read them: JSON, annotations of GitHub, SARIF 2.1.0."""

import json
from collections.abc import Sequence
from pathlib import PurePath
from typing import Any, Final
from urllib.parse import quote

from dlx_router import __version__
from dlx_router.config.findings import TITLES, Finding, Severity

PAGE: Final = "docs/lint.md"
_SARIF: Final = "https://json.schemastore.org/sarif-2.1.0.json"


def counts(findings: Sequence[Finding]) -> dict[str, int]:
    """How many errors and warnings there are."""
    errors = sum(finding.severity is Severity.ERROR for finding in findings)
    return {"errors": errors, "warnings": len(findings) - errors}


def as_text(findings: Sequence[Finding]) -> str:
    """A line each: file, line, severity, code, message."""
    return "\n".join(map(str, findings))


def as_json(findings: Sequence[Finding]) -> str:
    """One JSON object: the findings, and how many errors and warnings they are."""
    rows = [
        {
            "code": finding.code,
            "severity": finding.severity.value,
            "file": finding.file,
            "line": finding.line,
            "message": finding.message,
        }
        for finding in findings
    ]
    return json.dumps({"findings": rows, **counts(findings)}, indent=2)


def as_github(findings: Sequence[Finding]) -> str:
    """A workflow command each, which GitHub shows as an annotation at the line."""
    return "\n".join(
        f"::{finding.severity} file={_property(finding.file)},line={finding.line},"
        f"title={_property(finding.code)}::{_data(finding.message)}"
        for finding in findings
    )


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


def as_sarif(findings: Sequence[Finding]) -> str:
    """One run of SARIF 2.1.0, with a rule for each code, found or not."""
    rules = [
        {"id": code, "shortDescription": {"text": title}, "help": {"text": f"{PAGE}#{code.lower()}"}}
        for code, title in sorted(TITLES.items())
    ]
    driver = {"name": "dlx-router", "version": __version__, "rules": rules}
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "results": [_result(finding) for finding in findings],
    }
    return json.dumps({"$schema": _SARIF, "version": "2.1.0", "runs": [run]}, indent=2)


def _result(finding: Finding) -> dict[str, Any]:
    where = {"artifactLocation": {"uri": _uri(finding.file)}, "region": {"startLine": finding.line}}
    message = {"text": finding.message}
    location = {"physicalLocation": where}
    return {"ruleId": finding.code, "level": finding.severity.value, "message": message, "locations": [location]}


def _uri(file: str) -> str:
    """A path as a URI reference; relative paths stay relative."""
    path = PurePath(file)
    text = quote(path.as_posix().encode(errors="surrogateescape"))
    return f"file://{text}" if path.is_absolute() else text
