"""The router's image as an OCI archive. Where there is nothing to build it with it is left out, and said.

Raises EngineError or BrokerError where it can be built here and was not: a release is whole, or none.
"""

import sys
import tempfile
from pathlib import Path
from typing import Final

from tools.brokers.programs import BrokerMissingError
from tools.containers import stand_ins
from tools.containers.engine import Engine, EngineMissingError, engine
from tools.release.archive import tarred

TAG: Final = "localhost/dlx-router-release"


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
        tarred(Path(folder), to, time_s)


def _none(why: str) -> str:
    print(f"No image archive: {why}", file=sys.stderr)
    return ""
