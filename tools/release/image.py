"""The router's image as an OCI archive. Where there is nothing to build it with it is left out, and said.

Raises EngineError or BrokerError where it can be built here and was not: a release is whole, or none.
"""

import json
import re
import sys
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from tools.brokers.programs import BrokerMissingError
from tools.containers import stand_ins
from tools.containers.engine import Engine, EngineMissingError, engine
from tools.release.archive import tarred

TAG: Final = "localhost/dlx-router-release"
_BETWEEN: Final = re.compile(r"FROM [0-9a-f]{12}")


def write(source: Path, to: Path, time_s: int) -> str:
    """→ what it stands on (name and digest), "" where none was built. Nothing of a build before is in it."""
    try:
        podman = engine()
        if not podman.is_podman:
            return _none("Docker saves no OCI archive; podman does")
        stand_ins.provide(podman, stand_ins.PYTHON)
    except (EngineMissingError, BrokerMissingError) as error:
        return _none(str(error))
    podman.build(source, tag=TAG, target="router", time_s=time_s, cached=False)
    save(podman, TAG, to, time_s)
    return f"{stand_ins.PYTHON}@{podman.inspect('image', stand_ins.PYTHON)['Digest']} (a stand-in of Debian's)"


def save(podman: Engine, tag: str, to: Path, time_s: int) -> None:
    """An image of the store as a file. The archive that podman writes itself has the time of its writing."""
    with tempfile.TemporaryDirectory(dir=to.parent.resolve(), prefix=".image-") as folder:  # podman runs elsewhere
        podman.run("save", "--format", "oci-dir", "--output", folder, tag, within_s=300)
        _forget_images_between(Path(folder))
        tarred(Path(folder), to, time_s)


def _forget_images_between(layout: Path) -> None:
    """The history tells from which image each step went on, by a name that is another one with each build.

    `layout`: as https://github.com/opencontainers/image-spec/blob/v1.1.0/image-layout.md has it, of one image.
    """
    index = json.loads((layout / "index.json").read_bytes())
    (named,) = index["manifests"]
    manifest = json.loads(_blob(layout, named).read_bytes())
    config = json.loads(_blob(layout, manifest["config"]).read_bytes())
    for step in config["history"]:
        if _BETWEEN.fullmatch(step.get("comment", "")):
            del step["comment"]
    _replace(layout, manifest["config"], config)
    _replace(layout, named, manifest)
    (layout / "index.json").write_text(json.dumps(index), encoding="utf-8")


def _blob(layout: Path, descriptor: dict[str, Any]) -> Path:
    return layout / "blobs" / str(descriptor["digest"]).replace(":", "/")


def _replace(layout: Path, descriptor: dict[str, Any], document: dict[str, Any]) -> None:
    """What is described is this from now on."""
    _blob(layout, descriptor).unlink()
    content = json.dumps(document, sort_keys=True, separators=(",", ":")).encode()
    descriptor.update(digest=f"sha256:{sha256(content).hexdigest()}", size=len(content))
    _blob(layout, descriptor).write_bytes(content)


def _none(why: str) -> str:
    print(f"No image archive: {why}", file=sys.stderr)
    return ""
