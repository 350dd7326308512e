"""Build a release into one folder: `make release`.

    python -m tools.release.build --to dist

Wheel and source archive (by `build`), the Helm chart, the packages that the router needs (SBOM, CycloneDX), and
SHA256SUMS. It is made from the commit, and two builds of one commit give the same bytes. The workflow builds the images
and attests where all of it came from. `--repository`: where it is published; the chart then names the images there, and
the READMEs have no relative link.

Exit: 0 all of it · 1 something cannot be built, or versions differ.
"""

import argparse
import gzip
import hashlib
import os
import posixpath
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import uuid
import zipfile
from collections.abc import Sequence
from datetime import UTC, datetime
from email import message_from_bytes
from importlib import metadata
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import yaml
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.release.history import ROOT, HistoryError, export, git

CHECKSUMS: Final = "SHA256SUMS"
EXTRA: Final = "otel"  # which the image has
_LINK: Final = re.compile(r"(!?)\[([^\]]*)\]\(([^)#\s]+)(#[^)\s]*)?\)")
_IMAGE: Final = re.compile(r"^(.*repository[:`][ |`]*)(?=dlx-router(?:-pipeline)?`?(?: \||$))", re.MULTILINE)
_UNPUBLISHED: Final = re.compile(r"^## Not in this version\n.*?(?=^## )", re.MULTILINE | re.DOTALL)


class ReleaseError(Exception):
    """It cannot be built; says why and what to do."""


def build(source: Path, to: Path, time_s: int, repository: str = "") -> list[Path]:
    """Return every file of the release in an empty folder; `source` has the files of the commit alone, of this time."""
    version = _version(source)
    chart = source / "charts" / "dlx-router"
    said = yaml.safe_load((chart / "Chart.yaml").read_text(encoding="utf-8"))
    if (said["version"], said["appVersion"]) != (chart_version(version), version):
        raise ReleaseError(f"Chart.yaml has {said['version']} of {said['appVersion']}, the package {version}")
    projects = [path.parent for path in source.rglob("pyproject.toml") if _is_project(path)]
    if repository:
        publish_at(repository, version, source, projects)
    for folder in projects:
        argv = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(to.resolve()), str(folder)]
        env = os.environ | {"SOURCE_DATE_EPOCH": str(time_s), "PYTHONHASHSEED": "0"}
        done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False, umask=0o022)
        if done.returncode:
            raise ReleaseError(f"{folder.name} cannot be built:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    _packed(chart, to / f"dlx-router-{said['version']}.tgz", time_s)
    (wheel,) = to.glob(f"dlx_router-{version}-*.whl")
    (to / f"dlx-router-{version}.cdx.json").write_text(sbom(wheel, time_s) + "\n", encoding="utf-8")
    sums = (f"{_sha256(path)}  {path.name}\n" for path in sorted(to.iterdir()))
    (to / CHECKSUMS).write_text("".join(sums), encoding="utf-8")
    return sorted(to.iterdir())


def _version(source: Path) -> str:
    text = (source / "dlx_router/__init__.py").read_text(encoding="utf-8")
    (version,) = re.findall(r'^__version__ = "(.+)"$', text, re.MULTILINE)
    return str(version)


def _is_project(path: Path) -> bool:
    return {"build-system", "project"} <= tomllib.loads(path.read_text(encoding="utf-8")).keys()


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def chart_version(version: str) -> str:
    """Return it as Helm takes it, which wants Semantic Versioning: 0.2.0.dev0 is 0.2.0-dev0 there."""
    return re.sub(r"^(\d+\.\d+\.\d+)\.?(?=[a-z])", r"\1-", version)


def publish_at(repository: str, version: str, source: Path, projects: Sequence[Path]) -> None:
    """Write where it is published: images of ghcr.io into the chart, absolute links into the packages' READMEs."""
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", repository):
        raise ReleaseError(f"--repository {repository!r}: OWNER/NAME as GitHub has it")
    for readme in (folder / "README.md" for folder in projects):
        text = _UNPUBLISHED.sub("", readme.read_text(encoding="utf-8"))
        readme.write_text(linked(text, readme.parent, source, f"{repository}@{version}"), encoding="utf-8")
    for path in (source / "charts/dlx-router/values.yaml", source / "charts/dlx-router/README.md"):
        registry = f"ghcr.io/{repository.partition('/')[0].lower()}/"
        path.write_text(_IMAGE.sub(rf"\g<1>{registry}", path.read_text(encoding="utf-8")), encoding="utf-8")


def linked(text: str, folder: Path, source: Path, where: str) -> str:
    """Return Markdown without relative links. `where`: OWNER/NAME@VERSION; ReleaseError for a file that is missing."""
    repository, _, version = where.partition("@")

    def absolute(match: re.Match[str]) -> str:
        is_image, words, target, anchor = match.groups("")
        if urlsplit(target).scheme:
            return match[0]
        path = posixpath.normpath(posixpath.join(folder.relative_to(source).as_posix(), target))
        if not (source / path).exists():
            raise ReleaseError(f"{folder.relative_to(source) / 'README.md'} links to {target}, which is not there")
        if is_image:
            return f"![{words}](https://raw.githubusercontent.com/{repository}/v{version}/{path})"
        kind = "tree" if (source / path).is_dir() else "blob"
        return f"[{words}](https://github.com/{repository}/{kind}/v{version}/{path}{anchor})"

    return _LINK.sub(absolute, text)


def _packed(folder: Path, to: Path, time_s: int) -> None:
    """Pack a folder as `helm package` does, the same bytes each time."""
    with (
        to.open("wb") as raw,
        gzip.GzipFile("", "wb", 9, raw, mtime=time_s) as file,
        tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            entry = tarfile.TarInfo(f"{folder.name}/{path.relative_to(folder).as_posix()}")
            entry.size, entry.mtime = path.stat().st_size, time_s
            entry.mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
            with path.open("rb") as content:
                tar.addfile(entry, content)


def sbom(wheel: Path, time_s: int) -> str:
    """Return the packages that a wheel needs, with the versions of this environment, as CycloneDX."""
    with zipfile.ZipFile(wheel) as file:
        (name,) = (name for name in file.namelist() if name.endswith(".dist-info/METADATA"))
        own = message_from_bytes(file.read(name))
    root = "dlx-router"
    waiting, needs = [(root, line, EXTRA) for line in own.get_all("Requires-Dist") or []], {root: set[str]()}
    while waiting:
        asking, line, extra = waiting.pop()
        need = Requirement(line)
        if need.marker is not None and not any(need.marker.evaluate({"extra": one}) for one in {extra, ""}):
            continue
        needs[asking].add(name := canonicalize_name(need.name))
        if name not in needs:
            needs[name] = set()
            waiting += [(name, inner, one) for inner in metadata.requires(name) or [] for one in need.extras or {""}]
    known = {name: _component(name, metadata.version(name)) for name in needs.keys() - {root}}
    known[root] = _component(root, own["Version"], ComponentType.APPLICATION)
    bom = Bom(components=[component for name, component in known.items() if name != root])
    bom.serial_number = uuid.uuid5(uuid.NAMESPACE_OID, _sha256(wheel))
    bom.metadata.timestamp = datetime.fromtimestamp(time_s, UTC)
    bom.metadata.component = known[root]
    for name, others in needs.items():
        bom.register_dependency(known[name], [known[other] for other in others])
    return JsonV1Dot6(bom).output_as_string(indent=1)


def _component(name: str, version: str, kind: ComponentType = ComponentType.LIBRARY) -> Component:
    purl = PackageURL("pypi", name=name, version=version)
    return Component(type=kind, name=name, version=version, bom_ref=f"{name}@{version}", purl=purl)


def _moved(built: Sequence[Path], to: Path) -> list[Path]:
    """Replace a release of before by this one; no other folder is emptied, because it may be mistyped."""
    if to.exists() and any(to.iterdir()) and not (to / CHECKSUMS).exists():
        raise ReleaseError(f"{to} has files that are no release: empty it, or name another folder")
    shutil.rmtree(to, ignore_errors=True)
    to.mkdir(parents=True)
    return [Path(shutil.copy(path, to)) for path in built]


def main(argv: Sequence[str] | None = None) -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--to", type=Path, default=ROOT / "dist", help="folder, emptied first (default dist)")
    parser.add_argument("--commit", default="HEAD", help="what is released (default HEAD)")
    parser.add_argument("--repository", default="", metavar="OWNER/NAME", help="on GitHub, where it is published")
    given = parser.parse_args(argv)
    try:
        with tempfile.TemporaryDirectory(prefix="dlx-router-release-") as folder, tempfile.TemporaryDirectory() as out:
            commit = git("rev-parse", "--verify", f"{given.commit}^{{commit}}").decode().strip()
            export(commit, Path(folder))
            time_s = int(git("show", "--no-patch", "--format=%ct", commit))
            built = build(Path(folder), Path(out), time_s, given.repository)
            files = _moved(built, given.to)
    except (ReleaseError, HistoryError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{commit[:12]}; what is not committed is not in it:")
    print(*(f"  {path.stat().st_size:>11,}  {path.name}" for path in files), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
