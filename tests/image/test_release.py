"""The image archive of a release: complete, loaded by an engine, and of the same bytes when somebody else builds it."""

import json
import os
import shutil
import tarfile
from pathlib import Path
from typing import Any, Final

import pytest

from dlx_router import __version__
from tests.docs.pages import ROOT
from tests.image.test_image import USER
from tools.containers.engine import Engine
from tools.release import image

COPIED: Final = (
    "Dockerfile",
    ".dockerignore",
    "pyproject.toml",
    "constraints.txt",
    "README.md",
    "LICENSE",
    "dlx_router",
)


@pytest.fixture(scope="module")
def archive(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `make release` writes it, nothing of a build before in it; by somebody else.

    From another folder whose files have other times and modes, by who lets nobody read what he writes.
    """
    if not engine.is_podman:
        pytest.skip("Docker saves no OCI archive")
    folder = tmp_path_factory.mktemp("release")
    source = folder / "elsewhere"
    source.mkdir()
    umask = os.umask(0o077)
    try:
        for name in COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, source / name)
            else:
                shutil.copyfile(ROOT / name, source / name)
        (source / "constraints.txt").chmod(0o600)
        to = Path(os.path.relpath(folder / "router.oci.tar"))  # as `make release` names it; podman runs elsewhere
        assert image.write(source, to, time_s=0)
    finally:
        os.umask(umask)
    return folder / "router.oci.tar"


def test_two_builds_of_the_image_are_equal(engine: Engine, router_image: str, archive: Path, tmp_path: Path) -> None:
    """To the byte; layers of a build before, and the names of images between, which its history had, change nothing."""
    engine.run("tag", router_image, image.TAG)
    image.save(engine, image.TAG, tmp_path / "ours.oci.tar", time_s=0)
    ours, theirs = (_files(path) for path in (tmp_path / "ours.oci.tar", archive))
    first, second = (_blob(files, _manifest(files)["config"]) for files in (ours, theirs))
    assert first == second
    assert [step["created_by"] for step in first["history"]][-1].startswith("/bin/sh -c #(nop) COPY")
    assert ours == theirs


def test_an_archive_is_an_image_as_oci_has_it(archive: Path) -> None:
    files = _files(archive)
    assert {"oci-layout", "index.json"} <= files.keys()
    (descriptor,) = _json(files["index.json"])["manifests"]
    manifest = _manifest(files)
    config = _blob(files, manifest["config"])
    assert config["config"]["User"] == USER
    assert config["created"] == "1970-01-01T00:00:00Z"
    assert {*files} == {
        "oci-layout",
        "index.json",
        *(_name(each) for each in [descriptor, manifest["config"], *manifest["layers"]]),
    }


def test_an_engine_loads_it_and_the_router_in_it_says_its_version(engine: Engine, archive: Path) -> None:
    name = engine.run("load", "--input", str(archive)).split()[-1]
    try:
        assert __version__ in engine.run("run", "--rm", "--network", "none", "--read-only", name, "--version")
    finally:
        engine.tried("rmi", "--force", name)


def _files(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as tar:
        return {member.name: _content(tar, member) for member in tar}


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(member)
    assert file
    return file.read()


def _manifest(files: dict[str, bytes]) -> Any:
    (descriptor,) = _json(files["index.json"])["manifests"]
    return _blob(files, descriptor)


def _name(descriptor: dict[str, Any]) -> str:
    return f"blobs/{descriptor['digest'].replace(':', '/')}"


def _blob(files: dict[str, bytes], descriptor: dict[str, Any]) -> Any:
    return _json(files[_name(descriptor)])


def _json(text: bytes) -> Any:
    return json.loads(text)
