"""The router's image as an OCI archive, where images can be built here; elsewhere it is left out, and said."""

import importlib
import sys
from pathlib import Path
from typing import Any, Final

TAG: Final = "localhost/dlx-router-release"


def write(source: Path, to: Path) -> str:
    """→ what it stands on (name and digest), "" where none was built."""
    try:
        engines: Any = importlib.import_module("tools.containers.engine")
        stand_ins: Any = importlib.import_module("tools.containers.stand_ins")
    except ModuleNotFoundError as error:
        return _none(f"{error.name} is not in this tree")
    try:
        engine = engines.engine()
        if not engine.is_podman:
            return _none("Docker saves no OCI archive; podman does")
        stand_ins.provide(engine, stand_ins.PYTHON)
        engine.build(source, tag=TAG, target="router")
        engine.run("save", "--format", "oci-archive", "--output", str(to.resolve()), TAG)
        return f"{stand_ins.PYTHON}@{engine.inspect('image', stand_ins.PYTHON)['Digest']} (a stand-in of Debian's)"
    except engines.EngineError as error:
        to.unlink(missing_ok=True)
        return _none(str(error))


def _none(why: str) -> str:
    print(f"No image archive: {why}", file=sys.stderr)
    return ""
