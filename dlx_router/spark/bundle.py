"""What Spark's workers import, as one zip: this package and pamqp, both pure Python.

`python -m dlx_router.spark.bundle dlx_router.zip` writes it, for `spark-submit --py-files dlx_router.zip`.
"""

import importlib.util
import sys
import zipfile
from functools import cache
from pathlib import Path
from typing import Final

from dlx_router.spark import scratch

PACKAGES: Final = ("dlx_router", "pamqp")
_A_DAY: Final = (1980, 1, 1, 0, 0, 0)  # of every member, so that equal sources give equal bytes


def root() -> str:
    """The folder that dlx_router is imported from."""
    return str(_folder("dlx_router").parent)


def _folder(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent


def write(target: Path) -> None:
    """Write the zip; the same sources give the same bytes."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in PACKAGES:
            folder = _folder(package)
            for path in sorted(folder.rglob("*.py")):
                member = zipfile.ZipInfo(f"{package}/{path.relative_to(folder).as_posix()}", _A_DAY)
                archive.writestr(member, path.read_bytes(), zipfile.ZIP_DEFLATED)


@cache
def made() -> Path:
    """The zip of this process, in a folder of its own that is removed at its end."""
    path = scratch.of_process() / "dlx_router.zip"
    write(path)
    return path


if __name__ == "__main__":
    write(Path(sys.argv[1] if len(sys.argv) > 1 else "dlx_router.zip"))
