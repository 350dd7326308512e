"""Run what failed in the last run once more, alone: six workers on two cores make limits of time fail that hold.

What is named is run whatever its marks: the tests of `make test-clients` too, which no other run has.

Ends with 1 where one fails again, where too many failed, or where the last run did not get to its end.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

MANY: Final = 12  # then it is not the machine
_WHATEVER_MARKS: Final = ("-m", "")  # over those that pyproject.toml leaves out
_CACHE: Final = Path(".pytest_cache/v/cache/lastfailed")


def main() -> int:
    """The exit code of pytest, and each name."""
    names = [plain(name) for name in json.loads(_CACHE.read_text(encoding="utf-8"))] if _CACHE.exists() else []
    print(f"failed beside others, now alone ({len(names)}):", *names, sep="\n  ", flush=True)
    if not 0 < len(names) <= MANY:
        return 1
    return subprocess.run([sys.executable, "-m", "pytest", *_WHATEVER_MARKS, *names], check=False).returncode


def plain(name: str) -> str:
    """Without the group that several workers append: `a.py::test_b[c]@group` → `a.py::test_b[c]`."""
    at = name.rfind("]")
    return name[: at + 1] if at >= 0 else name.partition("@")[0]


if __name__ == "__main__":
    sys.exit(main())
