"""`pipeline doctor`: is everything here that the pipeline needs? Each check says what it saw and what to do."""

import importlib.metadata
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Final

from dlx_router.spark.java import JavaMissing, find_java

PACKAGES: Final = {
    "pyspark": ((4, 2), (5, 0)),
    "pyarrow": ((18,), None),
    "pandas": ((2, 2), (3, 0)),
    "pamqp": ((3, 3), None),
    "duckdb": ((1, 4), None),
}
KEY_FILE: Final = "DLX_ROUTER_PROVENANCE_KEY_FILE"
_LOW_DISK_BYTES: Final = 1 << 30


class State(StrEnum):
    """How a check went; `note` is no fault."""

    OK = "ok"
    NOTE = "note"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Check:
    """What was looked at, how it went, what was seen and, where it is wrong, what to do."""

    name: str
    state: State
    said: str


def checks(
    archive: Path | None,
    connection: str,
    streams: str,
    *,
    source: Mapping[str, str],
    master: str | None,
    remote: str | None,
) -> Iterator[Check]:
    """Every check, as it is made; later ones are left out where earlier ones make them pointless.

    `source`: more options of the source, by which the broker is asked.
    """
    earlier = [_python(), *map(_package, PACKAGES)]
    if not remote:
        earlier.append(_java())
    yield from earlier
    if all(check.state is not State.FAIL for check in earlier):
        yield _session(master, remote)
        yield _broker(connection, streams, source)
    yield _key()
    if archive is not None:
        yield _folder(archive)
        yield _signed(archive)
        yield _whole(archive)


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    return Check("python", State.OK if sys.version_info >= (3, 11) else State.FAIL, f"{version} ({sys.executable})")


def _package(name: str) -> Check:
    least, below = PACKAGES[name]
    wanted = f"needs {'.'.join(map(str, least))} or newer" + (f", below {below[0]}" if below else "")
    try:
        installed = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Check(name, State.FAIL, f"not installed; {wanted}: pip install '.[spark]' in a clone")
    version = tuple(int(part) for part in installed.split(".")[:2] if part.isdigit())
    if version < least or (below and version >= below):
        return Check(name, State.FAIL, f"{installed}; {wanted}: pip install '.[spark]' in a clone")
    return Check(name, State.OK, installed)


def _java() -> Check:
    try:
        java = find_java()
    except JavaMissing as error:
        return Check("java", State.FAIL, str(error))
    return Check("java", State.OK, f"{java.version}, by {java.found} ({java.home})")


def _session(master: str | None, remote: str | None) -> Check:
    """A session that counts in a Python worker: what fails here fails everywhere."""

    def start() -> str:
        from dlx_router.spark.session import build_session  # noqa: PLC0415 - pyspark may be missing until here

        spark = build_session("dlx-router doctor", master=master, remote=remote)
        rows = spark.range(100).mapInArrow(lambda batches: batches, "id long").count()
        if rows != 100:  # noqa: PLR2004 - those above
            raise RuntimeError(f"counted {rows} of 100 rows in Python workers")
        return f"Spark {spark.version}, Python workers answer"

    return _tried("spark", start)


def _broker(connection: str, streams: str, source: Mapping[str, str]) -> Check:
    kind, _, where = connection.partition(":")
    if kind == "env" and where not in os.environ:
        return Check("broker", State.NOTE, f"not asked: {where} is not set; it holds the AMQP URL for ingest")

    def ask() -> str:
        from dlx_router.spark.options import Options  # noqa: PLC0415 - as above

        options = Options.read({**source, "connection": connection, "streams": streams})
        with options.connect() as link:
            probes = {stream: link.probe(stream) for stream in options.streams}
        return ", ".join(f"{stream}: offsets {now.begin} to {now.end}" for stream, now in probes.items())

    return _tried("broker", ask)


def _key() -> Check:
    """What tells whether a router wrote an event."""
    path = os.environ.get(KEY_FILE, "")
    if not path:
        message = f"{KEY_FILE} is not set: events are archived, and whether a router signed them is not known"
        return Check("key", State.NOTE, message)
    from dlx_router.service.vhost.signing_key import from_file  # noqa: PLC0415 - only with a key

    return _tried("key", lambda: f"{path}: {8 * len(from_file(Path(path)))} bits")


def _signed(archive: Path) -> Check:
    from dlx_router.spark.archive.layout import Archive  # noqa: PLC0415 - pyarrow may be missing until here
    from dlx_router.spark.archive.verify import signatures  # noqa: PLC0415 - as above

    def count() -> str:
        return ", ".join(f"{n} {name}" for name, n in signatures(Archive(archive)).items()) or "no events yet"

    check = _tried("signed", count)
    doubtful = check.state is State.OK and ("bad" in check.said or "none" in check.said)
    return replace(check, state=State.NOTE) if doubtful else check


def _whole(archive: Path) -> Check:
    """Whether files are lost or damaged, by their footers, and which losses were accepted."""
    from dlx_router.spark.archive.layout import Archive  # noqa: PLC0415 - pyarrow may be missing until here
    from dlx_router.spark.archive.missing import NOW, accepted, uncounted  # noqa: PLC0415 - as above

    def count() -> str:
        if problems := uncounted(Archive(archive).parts()):
            raise LookupError(f"{'; '.join(problems)}; {NOW}")
        return "; ".join(accepted(Archive(archive))) or "each file that counts is there, with its events"

    check = _tried("files", count)
    return replace(check, state=State.NOTE) if "accepted" in check.said and check.state is State.OK else check


def _folder(archive: Path) -> Check:
    def write() -> str:
        archive.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=archive) as file:
            file.write(b"x")
        return f"{archive}: {shutil.disk_usage(archive).free >> 20} MiB free"

    check = _tried("archive", write)
    if check.state is State.OK and shutil.disk_usage(archive).free < _LOW_DISK_BYTES:
        return Check("archive", State.FAIL, f"{check.said}; ingest stops where a disk is full: make room")
    return check


def _tried(name: str, look: Callable[[], str]) -> Check:
    try:
        return Check(name, State.OK, look())
    except Exception as error:  # noqa: BLE001 - Spark, Java and sockets have errors of their own; all are findings here
        return Check(name, State.FAIL, f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
