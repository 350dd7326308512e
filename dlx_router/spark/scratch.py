"""Folders for what does not fit into memory: outside of archives and of the current folder, gone when they are over.

A folder is its process's own for as long as that holds its lock. Whoever was killed leaves one that nobody has locked,
and the next process of the same user that needs one removes it. No Spark in here.
"""

import atexit
import errno
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Final

from dlx_router.spark.options import OptionError

PREFIX: Final = "dlx-router-spill-"
SHARE: Final = 0.5  # of what is free on the disk when it begins: the rest is for others
FULL: Final = (errno.ENOSPC, errno.EDQUOT)
MORE_ROOM: Final = "temporary files lie in the folder that TMPDIR names: make room there, or name one on a larger disk"
_NOTES: Final = ("_manifest", "manifest", "_copies", "_ingest.lock")  # what only archives have
_TRIES: Final = 10


@contextmanager
def folder() -> Iterator[Path]:
    """A new one, empty, that only this user reads; gone at the end, whatever happens. OptionError: there is no place.

    Those that killed processes left are removed before.
    """
    place = checked(_temporary(), "TMPDIR")
    _sweep(place)
    handle, path = _claimed(place)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        os.close(handle)


@cache
def of_process() -> Path:
    """One that is there until this process ends."""
    held, ours = ExitStack(), os.getpid()
    atexit.register(lambda: held.close() if os.getpid() == ours else None)  # a fork has it from us
    return held.enter_context(folder())


def bound(path: Path) -> int:
    """So many bytes may be written there."""
    return int(shutil.disk_usage(path).free * SHARE)


def checked(path: Path, variable: str) -> Path:
    """The path. OptionError where it lies in an archive, whose every file means something."""
    for parent in (path, *path.parents):
        if any((parent / name).exists() for name in _NOTES[:2]) and any(
            (parent / name).exists() for name in _NOTES[2:]
        ):
            problem = f"temporary files would lie in the archive {parent}"
            raise OptionError(f"{variable} {path}: {problem}; name a folder outside of it")
    return path


def _temporary() -> Path:
    """As TMPDIR or the system has it, and never the current folder for want of another."""
    try:
        place = Path(tempfile.gettempdir()).resolve()
        is_shared = place != _current() or bool(place.stat().st_mode & stat.S_ISVTX)  # as those of the system are
    except OSError as error:
        raise OptionError(f"no folder for temporary files can be written ({error}); {MORE_ROOM}") from None
    named = [Path(value).resolve() for name in ("TMPDIR", "TEMP", "TMP") if (value := os.environ.get(name))]
    if os.environ.get("TMPDIR") and place not in named:  # Python would fill another disk than was meant
        raise OptionError(f"TMPDIR {named[0]}: cannot be written; make that folder, or name another")
    if not is_shared and place not in named:
        raise OptionError("no folder for temporary files but the current one can be written; set TMPDIR to another")
    return place


def _current() -> Path | None:
    """None where it was removed, which is no matter of ours."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return None


def _claimed(place: Path) -> tuple[int, Path]:
    """A new folder and its lock. Who sweeps may take it before it is locked; then there is another."""
    for _ in range(_TRIES):
        try:
            path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
        except OSError as error:
            raise OptionError(f"{place}: {error.strerror}; {MORE_ROOM}") from None
        with suppress(OSError):
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
            if _is_locked(handle) and path.exists():
                return handle, path
            os.close(handle)
            path.rmdir()
    raise OptionError(f"{place}: folders vanish or cannot be locked there; {MORE_ROOM}")


def _is_locked(handle: int) -> bool:
    """Whether we have the lock now."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _sweep(place: Path) -> None:
    """Remove folders of this user whose process is gone."""
    for path in place.glob(f"{PREFIX}*"):
        with suppress(OSError):  # gone meanwhile, or somebody else's
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if os.fstat(handle).st_uid == os.geteuid() and _is_locked(handle):
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(handle)
