"""The source of a release of before, out of this repository's history.

    python -m tools.release.before 0.1.0 build/before

Whoever releases adds a line; the upgrade of each release is tried from the last one (`make upgrade`).
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tools.release.history import HistoryError, export

COMMITS: Final = {"0.1.0": "203533f8c0bb0c8acd4989ecce0a1c3e90d31210"}
"""Version → its commit. 0.1.0 was never published: the recorded journal of tests/journal/old is of that tree."""

LAST: Final = [*COMMITS][-1]


def unpacked(version: str, folder: Path) -> Path:
    """The package as that release had it, below a folder; → the folder. Raises HistoryError."""
    folder.mkdir(parents=True, exist_ok=True)
    export(COMMITS[version], folder, "dlx_router")
    return folder


def main(argv: Sequence[str] | None = None) -> int:
    """0 unpacked · 1 it cannot be had · 2 wrong use."""
    given = list(sys.argv[1:] if argv is None else argv)
    if len(given) != 2 or given[0] not in COMMITS:  # noqa: PLR2004 - version, folder
        print(f"usage: python -m tools.release.before {'|'.join(COMMITS)} FOLDER", file=sys.stderr)
        return 2
    try:
        print(unpacked(given[0], Path(given[1])))
    except HistoryError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
