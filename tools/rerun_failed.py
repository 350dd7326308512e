"""Run pytest with the given options, then run what failed once more, alone: `make test`.

Several workers share few cores, and a machine may have other work. A test that fails for want of time passes alone.
The exit code is 0 if every test passed in one of the two runs. It is 1 at once after a crash or too many failures.
"""

import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

MANY: Final = 40  # more failures than this are a fault, whatever the load
_ANY_MARKS: Final = ("-m", "")  # the names say what to run, also what pyproject.toml deselects


def main(options: list[str]) -> int:
    """Return the exit code for `make`."""
    os.environ.setdefault("DLX_ROUTER_TEST_SEED", str(random.SystemRandom().randrange(10_000)))  # the same names twice
    with tempfile.TemporaryDirectory() as cache:
        if (first := _pytest(cache, *options)) == 0:
            return 0
        file = Path(cache, "v/cache/lastfailed")
        names = [plain(name) for name in json.loads(file.read_text(encoding="utf-8"))] if file.exists() else []
        if first != 1 or not 0 < len(names) <= MANY:
            print(f"exit {first} of pytest, {len(names)} failed tests: not run again")
            return 1
        print(f"\nfailed beside others ({len(names)}), now run alone:", *names, sep="\n  ", flush=True)
        second = _pytest(cache, *_ANY_MARKS, *names)
        print(f"first run: {len(names)} failed; alone: {'all passed' if second == 0 else 'failed again'}")
    return min(second, 1)


def plain(name: str) -> str:
    """Remove the group that xdist appends: `a.py::test_b[c]@group` → `a.py::test_b[c]`."""
    at = name.rfind("]")
    return name[: at + 1] if at >= 0 else name.partition("@")[0]


def _pytest(cache: str, *options: str) -> int:
    argv = [sys.executable, "-m", "pytest", "-o", f"cache_dir={cache}", *options]
    return subprocess.run(argv, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
