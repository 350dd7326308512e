"""What `make audit-deps` says as a gate: silence does not pass. pip-audit is a program that answers as it does."""

import json
from pathlib import Path
from typing import Any, Final

import pytest

from tools.release import audit_deps

FLAW: Final = {"id": "PYSEC-1", "fix_versions": ["2"], "aliases": [], "description": ""}
GOOD: Final = {"name": "a", "version": "1", "vulns": []}
BAD: Final = {"name": "b", "version": "1", "vulns": [FLAW]}
SKIPPED: Final = {"name": "c", "skip_reason": "not on the index"}


def answers(folder: Path, monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    (folder / "pip_audit.py").write_text(program, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(folder))


@pytest.mark.parametrize(
    ("packages", "code", "words"),
    [
        ([GOOD], 0, "1 of 1 packages audited, 0 vulnerabilities"),
        ([GOOD, SKIPPED], 0, "c: not audited, not on the index\n1 of 2 packages audited"),
        ([GOOD, BAD], 1, "b 1: PYSEC-1, fixed in 2"),
        ([SKIPPED], 2, "not audited"),
        ([], 2, "not audited"),
    ],
)
def test_none_known_is_0_some_are_1_and_who_knows_nothing_is_2(
    packages: list[dict[str, Any]],
    code: int,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    answers(tmp_path, monkeypatch, f"print({json.dumps({'dependencies': packages})!r})")
    assert audit_deps.main() == code
    assert words in capsys.readouterr().out


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("raise SystemExit('ConnectionError: no route')", "ConnectionError: no route"),
        ("raise SystemExit(3)", "exit code 3"),
        ("print('{}')", "exit code 0"),
        ("import threading; threading.Event().wait()", "no answer within 2 s"),
    ],
)
def test_who_is_not_answered_ends_with_2_and_says_so(
    program: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(audit_deps, "WITHIN_S", 2.0)
    answers(tmp_path, monkeypatch, program)
    assert audit_deps.main() == 2
    printed = capsys.readouterr().out
    assert printed.startswith("not audited")
    assert words in printed
