"""A folder as .tgz or .tar, the same bytes whoever packs it, where and when: ordered, one owner, time and two modes."""

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
        _add_all(tar, folder, f"{folder.name}/", time_s)


def tarred(folder: Path, to: Path, time_s: int) -> None:
    """All files below `folder`, by their names in it, and not compressed: they are."""
    with tarfile.open(to, "w", format=tarfile.PAX_FORMAT) as tar:
        _add_all(tar, folder, "", time_s)


def _add_all(tar: tarfile.TarFile, folder: Path, before: str, time_s: int) -> None:
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        _add(tar, path, f"{before}{path.relative_to(folder).as_posix()}", time_s)


def _add(tar: tarfile.TarFile, path: Path, name: str, time_s: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size = path.stat().st_size
    entry.mode = 0o755 if path.stat().st_mode & _EXECUTABLE else 0o644
    entry.mtime = time_s
    with path.open("rb") as content:
        tar.addfile(entry, content)
