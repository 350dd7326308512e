"""This repository's git: what a commit is called, when it was, and its files."""

import subprocess
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
# Version → commit: a release adds a line, and upgrades are tried from the last. 0.1.0 was never published; the recorded
# journal of tests/journal/old is of that tree.
COMMITS: Final = {"0.1.0": "203533f8c0bb0c8acd4989ecce0a1c3e90d31210"}
LAST: Final = [*COMMITS][-1]


class HistoryError(Exception):
    """There is no such commit, or no git; the text is what git says."""


def git(*args: str) -> bytes:
    """What git prints."""
    done = subprocess.run(["git", *args], cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        reason = done.stderr.decode(errors="replace").strip()
        raise HistoryError(f"this wants a git checkout with its history: git {args[0]} says {reason}")
    return done.stdout


def export(commit: str, folder: Path, *paths: str) -> None:
    """The files of a commit (those paths of it), and nothing else, into an existing folder."""
    subprocess.run(["tar", "-x", "-C", str(folder)], input=git("archive", "--format=tar", commit, *paths), check=True)


def release_before(folder: Path) -> Path:
    """Write the package of the release before below a folder; return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    export(COMMITS[LAST], folder, "dlx_router")
    return folder
