"""Where a release came from: an in-toto statement with SLSA's predicate, and the checksums of its files.

Nobody signed it: who has the files may have written it too. What is signed is made by the workflow that publishes
(.github/workflows/release.yml). This one says what to build to get the same bytes: commit, time, tools.
"""

import hashlib
import json
import os
import platform
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any, Final, NamedTuple

STATEMENT: Final = "https://in-toto.io/Statement/v1"
PREDICATE: Final = "https://slsa.dev/provenance/v1"
BUILD_TYPE: Final = "urn:dlx-router:make-release:v1"  # docs/release.md says what it does
TOOLS: Final = ("build", "cyclonedx-python-lib", "hatchling", "packaging")  # what the bytes depend on


class Made(NamedTuple):
    """Of what a release was made. `repository`: where it is published; `base`: what the image stands on. "": none."""

    commit: str
    time_s: int
    constraints: Path
    repository: str
    base: str


def sha256(path: Path) -> str:
    """Of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def checksums(files: Iterable[Path]) -> str:
    """As `sha256sum --check` reads them."""
    return "".join(f"{sha256(path)}  {path.name}\n" for path in sorted(files))


def write(built: Iterable[Path], to: Path, made: Made) -> None:
    """The statement about these files."""
    to.write_text(json.dumps(statement(built, made), indent=1, sort_keys=True) + "\n", encoding="utf-8")


def statement(built: Iterable[Path], made: Made) -> dict[str, Any]:
    """Nothing in it is of this moment or this machine but Python, so that it is the same for the same bytes."""
    tools = [{"uri": f"pkg:pypi/{name}@{metadata.version(name)}"} for name in TOOLS]
    return {
        "_type": STATEMENT,
        "subject": [{"name": path.name, "digest": {"sha256": sha256(path)}} for path in sorted(built)],
        "predicateType": PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {
                    "target": "release",
                    "commit": made.commit,
                    "repository": made.repository or None,
                },
                "internalParameters": {
                    "SOURCE_DATE_EPOCH": made.time_s,
                    "python": platform.python_version(),
                    "imageBase": made.base or None,
                },
                "resolvedDependencies": [
                    {"name": "source", "digest": {"gitCommit": made.commit}},
                    {"name": "constraints.txt", "digest": {"sha256": sha256(made.constraints)}},
                    *tools,
                ],
            },
            "runDetails": {"builder": {"id": _builder()}},
        },
    }


def _builder() -> str:
    """The workflow's run, or somebody's machine."""
    if os.environ.get("GITHUB_ACTIONS") != "true":
        return "urn:dlx-router:builder:by-hand"
    place = "{GITHUB_SERVER_URL}/{GITHUB_REPOSITORY}/actions/runs/{GITHUB_RUN_ID}"
    return place.format_map(os.environ)
