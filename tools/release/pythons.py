"""The tests that ask no broker, on every Python that a release of Debian brings: `make test-pythons`.

Each is a freshly unpacked Debian; what is committed is cloned into it. 3.12, that of the image, is in none of them.
"""

import sys
from collections.abc import Sequence
from typing import Final

from tools.release import clean_machine

DEBIANS: Final = {"bookworm": "3.11", "trixie": "3.13", "forky": "3.14"}


def main(argv: Sequence[str] | None = None) -> int:
    """0: they pass on each · 1: not on one, or no such machine can be made here. `argv`: Pythons, 3.13 say."""
    wanted = list(sys.argv[1:] if argv is None else argv) or [*DEBIANS.values()]
    ends = {
        python: clean_machine.main(["--release", release, "python3 --version", "make test-pure"])
        for release, python in DEBIANS.items()
        if python in wanted
    }
    print(*(f"Python {python}: {'passed' if end == 0 else 'failed'}" for python, end in ends.items()), sep="\n")
    return max(ends.values(), default=1)


if __name__ == "__main__":
    sys.exit(main())
