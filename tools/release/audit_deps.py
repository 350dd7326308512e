"""`make audit-deps`: known vulnerabilities of what constraints.txt installs, by pip-audit.

0 none known, or nobody who knows answers (said; an index of one's own tells no vulnerabilities) · 1 some, listed.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

CONSTRAINTS: Final = Path(__file__).parents[2] / "constraints.txt"
ASK: Final = ("-m", "pip_audit", "--no-deps", "--disable-pip", "--progress-spinner", "off", "--format", "json")


def main() -> int:
    """The exit code."""
    argv = [sys.executable, *ASK, "--requirement", str(CONSTRAINTS)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)
    try:
        packages: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        print("not audited: nobody who knows vulnerabilities answers:", *done.stderr.splitlines()[-1:])
        return 0
    known = [package for package in packages if "skip_reason" not in package]
    bad = [(dist, flaw) for dist in known for flaw in dist["vulns"]]
    for dist, flaw in bad:
        print(
            f"{dist['name']} {dist['version']}: {flaw['id']}, fixed in {', '.join(flaw['fix_versions']) or 'none yet'}"
        )
    if not known:
        print("not audited: the index that answers knows no vulnerabilities")
    else:
        print(f"{len(known)} of {len(packages)} packages audited, {len(bad)} vulnerabilities")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
