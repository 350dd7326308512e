"""Files and folders of an archive: whole on the disk or not there, whatever is killed. No Spark in here."""

import fcntl
import json
import os
import re
import secrets
import shutil
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Final

FORMAT: Final = 1
_ADDRESS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")


class ArchiveError(Exception):
    """The archive cannot be used so; says where, why and what now."""


class ArchiveBusyError(ArchiveError):
    """Another process is at it; says which."""


def require_path(path: Path | str) -> None:
    """ArchiveError for an address (s3://…, file:///…), which would be taken for a folder of that name, here."""
    if _ADDRESS.match(str(path)):
        what = "an address, and only a file system will do: manifests are made by link(2)"
        raise ArchiveError(
            f"{path}: {what}; write a path (/x, not file:///x), and copy it to an object store afterwards"
        )


def require_writable(root: Path, what: str) -> None:
    """ArchiveError, before anything is done, where this user may not write the folder that `what` has to write."""
    place = next(folder for folder in (root, *root.parents) if folder.exists())
    if os.access(place, os.W_OK | os.X_OK):
        return
    is_mounted_so = os.statvfs(place).f_flag & os.ST_RDONLY
    why = "is mounted read-only" if is_mounted_so else f"may not be written by this user ({os.geteuid()})"
    now = f"run {what} where it may be written, as its owner ({place.stat().st_uid})"
    others = "sql, groups, report, backtest and advise only read"
    raise ArchiveError(f"{place}: {why}, and {what} writes there; {now}; {others}")


def require_readable(folders: Iterable[Path]) -> None:
    """ArchiveError where this user may not list one of these: what is in it would be missing without a word."""
    for folder in folders:
        if folder.is_dir() and not os.access(folder, os.R_OK | os.X_OK):
            raise ArchiveError(f"{folder}: may not be read by this user ({os.geteuid()}); run it as one who may")


def token() -> str:
    """A name that no other process has."""
    return secrets.token_hex(4)


def removed(folder: Path) -> None:
    """The folder is gone, if it was there. ArchiveError where it cannot be deleted."""
    try:
        if folder.exists():
            shutil.rmtree(folder)
    except OSError as error:
        problem = f"cannot be deleted ({error}), so events that should be gone are still on the disk"
        raise ArchiveError(f"{folder}: {problem}; make it deletable and run this again") from None


def moved(source: Path, target: Path) -> None:
    """The folder is at its place, whole, and stays there if the power goes."""
    for file in source.iterdir():
        settle(file)
    target.parent.mkdir(parents=True, exist_ok=True)
    source.rename(target)
    settle(target.parent)


def loaded(path: Path) -> dict[str, Any]:
    """What the file says. ArchiveError where it cannot be read, or is of another format."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        version = document.pop("format")
    except (OSError, ValueError, LookupError, AttributeError) as error:
        raise ArchiveError(f"{path}: cannot be read ({error}); restore it from a backup") from None
    if version != FORMAT:
        raise ArchiveError(f"{path}: format {version}; this version of dlx-router knows {FORMAT}; use a newer one")
    return dict(document)


def written(folder: Path, document: Mapping[str, Any]) -> Path:
    """A file of another name that says so, on the disk; to be linked or renamed to its place."""
    path = folder / f".{token()}.tmp"
    with path.open("w", encoding="utf-8") as file:
        json.dump({"format": FORMAT, **document}, file)
        file.flush()
        os.fsync(file.fileno())
    return path


def settle(path: Path) -> None:
    """What is in this file or folder is on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        with suppress(OSError):  # some network file systems sync no folders
            os.fsync(handle)
    finally:
        os.close(handle)


def linked(path: Path, copy: Path) -> None:
    """The same file stands under this name too, in the place of what stood there."""
    copy.parent.mkdir(parents=True, exist_ok=True)
    link = copy.parent / f".{token()}.tmp"
    os.link(path, link)
    link.replace(copy)
    link.unlink(missing_ok=True)  # rename(2) of a file to a name that it has already does nothing


def locked(file: IO[str], what: str) -> None:
    """This process has the lock until the file, which names it, is closed. ArchiveBusyError: another one has it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.seek(0)
        raise ArchiveBusyError(f"{what} is already running: {file.read() or 'another process'}") from None
    file.truncate(0)
    file.write(f"process {os.getpid()} on {socket.gethostname()}")
    file.flush()


@contextmanager
def awaited(path: Path) -> Iterator[None]:
    """This process alone has the lock of this file; where another one has it, its end is waited for."""
    with path.open("a", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
