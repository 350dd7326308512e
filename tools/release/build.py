"""Everything that a release is, into one folder: `make release`.

    python -m tools.release.build --to dist

Wheel and source archive of each distribution of the tree, the Helm chart, the router's image as an OCI archive (where
images can be built), what all of it is made of (SBOM), checksums, and a statement of where it came from.

It is made from the commit, never from what lies around it, and two builds of one commit give the same bytes: each time
in an archive is that of the commit, and its tools are those of constraints.txt. (The image: docs/release.md.) Where it
is published (`--repository`) is written into chart and READMEs, and the same for the same repository.

Exit: 0 all of it · 1 something cannot be built, or versions differ.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from tools.brokers.programs import BrokerError
from tools.containers.engine import EngineError
from tools.release import image, place, provenance, sbom
from tools.release.archive import packed
from tools.release.history import ROOT, HistoryError, export, git

CHECKSUMS: Final = "SHA256SUMS"
STATEMENT: Final = "provenance.intoto.json"


class ReleaseError(Exception):
    """It cannot be built; says why and what to do."""


@dataclass(frozen=True)
class Commit:
    """What is released: its name, its time in seconds, the folder that holds it alone, the version of the router."""

    name: str
    time_s: int
    source: Path
    version: str


def exported(name: str, folder: Path) -> Commit:
    """The commit of that name, as files in a new folder."""
    full = git("rev-parse", "--verify", f"{name}^{{commit}}").decode().strip()
    time_s = int(git("show", "--no-patch", "--format=%ct", full))
    export(full, folder)
    return Commit(full, time_s, folder, _version(folder))


def _version(source: Path) -> str:
    text = (source / "dlx_router/__init__.py").read_text(encoding="utf-8")
    (version,) = re.findall(r'^__version__ = "(.+)"$', text, re.MULTILINE)
    return str(version)


def distributions(source: Path) -> list[Path]:
    """The folders of all Python distributions of the tree, the router's first."""
    folders = [path.parent for path in source.rglob("pyproject.toml") if _is_distribution(path)]
    return sorted(folders, key=lambda path: (len(path.parts), path))


def _is_distribution(path: Path) -> bool:
    return {"build-system", "project"} <= tomllib.loads(path.read_text(encoding="utf-8")).keys()


def build(commit: Commit, to: Path, *, with_image: bool, repository: str = "") -> list[Path]:
    """Every file of the release, in a folder that has nothing else. `repository`: where it is published, OWNER/NAME."""
    _check_versions(commit)
    _emptied(to)
    try:
        return _built(commit, to, with_image=with_image, repository=repository)
    except BaseException:
        shutil.rmtree(to, ignore_errors=True)  # a part of a release is none, and would be in the way of the next
        raise


def _built(commit: Commit, to: Path, *, with_image: bool, repository: str) -> list[Path]:
    if repository:
        place.write(commit.source, repository, commit.version)
    for folder in distributions(commit.source):
        _wheel_and_source(folder, to, commit.time_s)
    for chart in _charts(commit.source):
        packed(chart.parent, to / f"{chart.parent.name}-{_of_chart(chart)['version']}.tgz", commit.time_s)
    (wheel,) = to.glob(f"dlx_router-{commit.version}-*.whl")
    sbom.write(wheel, to / f"dlx-router-{commit.version}.cdx.json", commit.time_s)
    base = image.write(commit.source, to / f"dlx-router-{commit.version}.oci.tar", commit.time_s) if with_image else ""
    built = sorted(to.iterdir())
    made = provenance.Made(commit.name, commit.time_s, commit.source / "constraints.txt", repository, base)
    provenance.write(built, to / STATEMENT, made)
    # Without the statement, which says who built: by hand it is another one than by the workflow, of the same files.
    (to / CHECKSUMS).write_text(provenance.checksums(built), encoding="utf-8")
    return sorted(to.iterdir())


def _emptied(to: Path) -> None:
    """Only a release of before is removed: the folder may have been mistyped."""
    if to.exists() and any(to.iterdir()) and not (to / CHECKSUMS).exists():
        raise ReleaseError(f"{to} has files that are no release: empty it, or name another folder")
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir(parents=True)


def _wheel_and_source(folder: Path, to: Path, time_s: int) -> None:
    argv = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(to.resolve()), str(folder)]
    env = os.environ | {"SOURCE_DATE_EPOCH": str(time_s), "PYTHONHASHSEED": "0"}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False, umask=0o022)
    if done.returncode:
        raise ReleaseError(f"{folder.name} cannot be built:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")


def _charts(source: Path) -> Iterator[Path]:
    yield from sorted((source / "charts").glob("*/Chart.yaml"))


def _of_chart(path: Path) -> dict[str, str]:
    document: dict[str, str] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return document


def chart_version(version: str) -> str:
    """As Helm wants it, which takes Semantic Versioning alone: 0.2.0.dev0 is 0.2.0-dev0 there."""
    return re.sub(r"^(\d+\.\d+\.\d+)\.?(?=[a-z])", r"\1-", version)


def _check_versions(commit: Commit) -> None:
    """Package and charts are released together, and say one version."""
    for chart in _charts(commit.source):
        document = _of_chart(chart)
        if (document["version"], document["appVersion"]) != (chart_version(commit.version), commit.version):
            where = chart.relative_to(commit.source)
            raise ReleaseError(
                f"{where} says {document['version']} of {document['appVersion']}, the package {commit.version}"
            )


def main(argv: Sequence[str] | None = None) -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=Path, default=ROOT / "dist", help="folder, emptied first (default dist)")
    parser.add_argument("--commit", default="HEAD", help="what is released (default HEAD)")
    parser.add_argument("--no-image", action="store_true", help="without the image")
    parser.add_argument("--repository", default="", metavar="OWNER/NAME", help="on GitHub, where it is published")
    given = parser.parse_args(argv)
    try:
        with tempfile.TemporaryDirectory(prefix="dlx-router-release-") as folder:
            commit = exported(given.commit, Path(folder))
            if given.commit == "HEAD" and git("status", "--porcelain", "--untracked-files=no"):
                print(f"Not in it: what is changed and not committed. This is {commit.name[:12]}.", file=sys.stderr)
            files = build(commit, given.to, with_image=not given.no_image, repository=given.repository)
    except (ReleaseError, place.PlaceError, HistoryError, EngineError, BrokerError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"dlx-router {commit.version} of {commit.name[:12]}:")
    print(*(f"  {path.stat().st_size:>11,}  {path.name}" for path in files), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
