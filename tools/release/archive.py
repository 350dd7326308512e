"""A folder as .tgz, the same bytes whoever packs it, where and when: names in order, one owner, one time, two modes."""

import gzip
import tarfile
from pathlib import Path
from typing import Final

_EXECUTABLE: Final = 0o100


def packed(folder: Path, to: Path, time_s: int) -> None:
    """All files below `folder`, behind its name, as `helm package` lays them out."""
    with (
        to.open("wb") as raw,
        gzip.GzipFile("", "wb", 9, raw, mtime=time_s) as file,
        tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            _add(tar, path, f"{folder.name}/{path.relative_to(folder).as_posix()}", time_s)


def _add(tar: tarfile.TarFile, path: Path, name: str, time_s: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = path.stat().st_size
    entry.mode = 0o755 if path.stat().st_mode & _EXECUTABLE else 0o644
    entry.mtime = time_s
    with path.open("rb") as content:
        tar.addfile(entry, content)
