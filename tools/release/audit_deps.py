"""`make audit-deps`: known vulnerabilities of what constraints.txt installs, by pip-audit.

0 none known · 1 some, listed · 2 not audited: nobody answers, or who does knows nothing of vulnerabilities (an index of
one's own). It is a gate, so silence does not pass.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

CONSTRAINTS: Final = Path(__file__).parents[2] / "constraints.txt"
ASK: Final = ("-m", "pip_audit", "--no-deps", "--disable-pip", "--progress-spinner", "off", "--format", "json")
WITHIN_S: Final = 300.0
NOT_AUDITED: Final = 2


class Unanswered(Exception):
    """Nobody said what is known; the text is what came in its place."""


def main() -> int:
    """The exit code."""
    try:
        packages = _asked()
    except Unanswered as error:
        print(f"not audited: nobody who knows vulnerabilities answers: {error}")
        return NOT_AUDITED
    known = [package for package in packages if "skip_reason" not in package]
    if not known:
        print("not audited: the index that answers knows no vulnerabilities")
        return NOT_AUDITED
    flaws = [f"{dist['name']} {dist['version']}: {_shown(flaw)}" for dist in known for flaw in dist["vulns"]]
    skipped = [f"{dist['name']}: not audited, {dist['skip_reason']}" for dist in packages if "skip_reason" in dist]
    print(*flaws, *skipped, f"{len(known)} of {len(packages)} packages audited, {len(flaws)} vulnerabilities", sep="\n")
    return 1 if flaws else 0


def _asked() -> list[dict[str, Any]]:
    """Each package, with its vulnerabilities or why nothing is known of it."""
    argv = [sys.executable, *ASK, "--requirement", str(CONSTRAINTS)]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=WITHIN_S, check=False)
    except subprocess.TimeoutExpired:
        raise Unanswered(f"no answer within {WITHIN_S:g} s") from None
    try:
        packages: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        raise Unanswered(" ".join(done.stderr.splitlines()[-1:]) or f"exit code {done.returncode}") from None
    return packages


def _shown(flaw: dict[str, Any]) -> str:
    return f"{flaw['id']}, fixed in {', '.join(flaw['fix_versions']) or 'none yet'}"


if __name__ == "__main__":
    sys.exit(main())
