"""Java's classes of Spark, read and verified once: an AppCDS archive that each later start of Java maps into memory.

The first session that ends writes it (170 MB, a few seconds) into the user's cache folder, one for each Java and Spark.
Java ignores an archive that does not fit. Without such a folder every session starts as slowly as the first one.
"""

import atexit
import hashlib
import os
import stat
import subprocess  # nosec B404 - waits for the JVM that Spark has started
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

import pyspark
from pyspark import SparkContext

from dlx_router.spark.java import Java

_QUIET: Final = "-Xlog:cds*=off -Xlog:class*=off"  # hints about classes that cannot be archived
_END_S: Final = 180
_STALE_S: Final = 3600  # of a file that a killed process left


def options(java: Java) -> str:
    """Java's options that use the archive or, where there is none yet, make one when this process ends."""
    archive = _archive(java)
    if archive is None:
        return ""
    if archive.is_file():
        return f'{_QUIET} "-XX:SharedArchiveFile={archive}"'
    for left in archive.parent.glob(f"{archive.stem}.*"):
        if time.time() - left.stat().st_mtime > _STALE_S:
            left.unlink(missing_ok=True)
    written = archive.with_suffix(f".{os.getpid()}")
    atexit.register(_keep, written, archive)
    return f'{_QUIET} "-XX:ArchiveClassesAtExit={written}"'


def _archive(java: Java) -> Path | None:
    """Where it belongs; None where no folder is this user's alone: its content is run as code."""
    spark = Path(pyspark.__file__).parent
    made_of = (java.home.resolve(), java.version, pyspark.__version__, spark, (spark / "jars").stat().st_mtime_ns)
    name = hashlib.sha256(repr(made_of).encode()).hexdigest()[:16]
    with suppress(OSError, RuntimeError):  # a user without a home
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache").resolve() / "dlx-router"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        owner = folder.stat()
        others = owner.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if owner.st_uid == os.geteuid() and not others and os.access(folder, os.W_OK) and " " not in str(folder):
            return folder / f"spark-{name}.jsa"
    return None


def _keep(written: Path, archive: Path) -> None:
    """End Java, which writes the archive then, and give it its name once it is whole."""
    gateway = SparkContext._gateway  # noqa: SLF001 - nothing else leads to the process
    process = getattr(gateway, "proc", None)
    if gateway is None or process is None:
        return
    gateway.shutdown()
    with suppress(OSError, subprocess.TimeoutExpired):
        process.stdin.close()  # which is what Java waits for
        if process.wait(_END_S) == 0 and written.is_file():
            written.replace(archive)
    with suppress(OSError):
        written.unlink(missing_ok=True)
